"""Run many graphs, each within a time limit, in worker processes that may die: a killed one costs its graph only."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from data.graph import Graph

GRACE_S = 5.0
"""Beyond the time limit, for an operator that does not come back: then the worker is killed."""
START_S = 120.0
"""For a worker to import torch, on a busy machine."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    index: int | None = None
    """Of the graph that it runs."""
    deadline: float = 0.0


def check_runs(
    graphs: Sequence[Graph], *, num_workers: int, time_limit_s: float, max_bytes: int
) -> Iterator[tuple[int, str | None]]:
    """(index, reason, or None for a graph that may stay) of every graph, as they come."""
    waiting = deque(range(len(graphs)))
    workers = [_start(time_limit_s, max_bytes) for _ in range(min(num_workers, len(graphs)))]
    try:
        while waiting or any(worker.index is not None for worker in workers):
            for worker in workers:
                if worker.index is None and waiting:
                    worker.index = waiting.popleft()
                    worker.deadline = time.monotonic() + time_limit_s + GRACE_S + START_S
                    graph = graphs[worker.index]
                    worker.pipe.send((graph.name, dict(graph.files)))
            busy = [worker for worker in workers if worker.index is not None]
            wait([worker.pipe for worker in busy], timeout=0.5)
            for worker in busy:
                answered, reason = _look_at(worker, time_limit_s)
                if not answered:
                    continue
                assert worker.index is not None
                yield worker.index, reason
                if worker.process.is_alive():
                    worker.index = None
                else:
                    workers[workers.index(worker)] = _start(time_limit_s, max_bytes)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _look_at(worker: _Worker, time_limit_s: float) -> tuple[bool, str | None]:
    """(is the graph done with, the reason against it)."""
    try:
        while worker.pipe.poll():
            kind, value = worker.pipe.recv()
            if kind == "begun":  # torch is imported: now the graph's own time counts
                worker.deadline = time.monotonic() + time_limit_s + GRACE_S
            else:
                return True, value
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return (
            True,
            f"ends its process (exit status {worker.process.exitcode}); out of memory, or a fault in an operator",
        )
    if time.monotonic() < worker.deadline:
        return False, None
    worker.process.kill()
    worker.process.join()
    return True, f"takes longer than {time_limit_s:g} s and does not come back"


def _start(time_limit_s: float, max_bytes: int) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork after threads were used
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, time_limit_s, max_bytes), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, time_limit_s: float, max_bytes: int) -> None:
    import torch

    from data.construct.run_check import check_instance

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch, about the graphs' own calls
    while True:
        try:
            name, files = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(("begun", None))
        pipe.send(("done", check_instance(Graph(name, files), time_limit_s=time_limit_s, max_bytes=max_bytes)))
