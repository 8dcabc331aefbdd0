"""Run many graphs, each within a time limit, in worker processes that may die: a killed one costs its graph only."""

from __future__ import annotations

import importlib
import multiprocessing
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
    settings = {"time_limit_s": time_limit_s, "max_bytes": max_bytes}
    checked = run_each(
        graphs, "data.construct.run_check:check_instance", settings, num_workers=num_workers, time_limit_s=time_limit_s
    )
    for index, found, fault in checked:
        yield index, fault if fault is not None else found


def run_each(
    graphs: Sequence[Graph], function: str, settings: Mapping[str, Any], *, num_workers: int, time_limit_s: float
) -> Iterator[tuple[int, Any, str | None]]:
    """(index, what the function returns, or why it could not) of every graph, as they come.

    function: "module:name", called in a worker process with a graph and settings as keywords; its result is pickled.
    """
    waiting = deque(range(len(graphs)))
    workers = [_start(function, settings) for _ in range(min(num_workers, len(graphs)))]
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
                answer = _look_at(worker, time_limit_s)
                if answer is None:
                    continue
                assert worker.index is not None
                yield (worker.index, *answer)
                if worker.process.is_alive():
                    worker.index = None
                else:
                    workers[workers.index(worker)] = _start(function, settings)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _look_at(worker: _Worker, time_limit_s: float) -> tuple[Any, str | None] | None:
    """(result, why there is none) of a graph that is done with, or None."""
    try:
        while worker.pipe.poll():
            kind, value = worker.pipe.recv()
            if kind == "begun":  # torch is imported: now the graph's own time counts
                worker.deadline = time.monotonic() + time_limit_s + GRACE_S
            else:
                return value, None
    except (EOFError, ConnectionResetError):
        worker.process.join()
        status = worker.process.exitcode
        return None, f"ends its process (exit status {status}); out of memory, or a fault in an operator"
    if time.monotonic() < worker.deadline:
        return None
    worker.process.kill()
    worker.process.join()
    return None, f"takes longer than {time_limit_s:g} s and does not come back"


def _start(function: str, settings: Mapping[str, Any]) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork after threads were used
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, function, dict(settings)), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, function: str, settings: Mapping[str, Any]) -> None:
    import torch

    module, _, name = function.partition(":")
    of_graph = getattr(importlib.import_module(module), name)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch, about the graphs' own calls
    while True:
        try:
            graph_name, files = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(("begun", None))
        pipe.send(("done", of_graph(Graph(graph_name, files), **settings)))
