"""Running many graphs once, each in a process that may die or hang: which may stay, and why others may not.

What a graph must do is run_check.py's. Answers are appended to a file as they come, so that a run that is stopped goes
on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data.graph import Graph

HARD_TIME_LIMIT_S = 30.0
"""For one graph: its own limit is watched between operators, and one operator may hang."""
START_TIME_LIMIT_S = 120.0
"""For a process to import torch."""


class CheckLog:
    """The answers so far: uid -> reason, or None for a graph that may stay."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        """Answers that were given under another limit do not count."""
        self._path, self._max_bytes = path, max_bytes
        self._lock = threading.Lock()
        self.reasons: dict[str, str | None] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:  # the run was stopped while it wrote
                    continue
                if entry["max_bytes"] == max_bytes:
                    self.reasons[entry["uid"]] = entry["reason"]

    def add(self, uid: str, reason: str | None) -> None:
        line = json.dumps({"uid": uid, "reason": reason, "max_bytes": self._max_bytes})
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            self.reasons[uid] = reason
            file.write(line + "\n")


def check_graphs(graphs: Iterable[Graph], log: CheckLog, *, max_bytes: int, num_workers: int) -> None:
    """Check every graph that the log has no answer for. A graph's name is its uid."""
    todo = [graph for graph in graphs if graph.name not in log.reasons]
    if not todo:
        return
    waiting: Iterator[Graph] = iter(todo)
    lock = threading.Lock()
    progress = tqdm(total=len(todo), desc="check", unit="graph")

    def work() -> None:
        process = _Process(max_bytes)
        try:
            while True:
                with lock:
                    graph = next(waiting, None)
                if graph is None:
                    return
                log.add(graph.name, process.check(graph))
                progress.update()
        finally:
            process.close()

    with progress, ThreadPoolExecutor(num_workers) as threads:
        for job in [threads.submit(work) for _ in range(min(num_workers, len(todo)))]:
            job.result()


class _Process:
    """A process that checks one graph after the other; it is replaced when it dies or hangs."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._process: Any = None
        self._channel: Connection | None = None

    def check(self, graph: Graph) -> str | None:
        channel = self._start()
        try:
            channel.send((graph.name, dict(graph.files)))
            if not channel.poll(HARD_TIME_LIMIT_S):
                self.close()
                return f"no answer within {HARD_TIME_LIMIT_S:.0f} s"
            answer: str | None = channel.recv()
            return answer
        except (EOFError, OSError):
            self._process.join(5)
            status = self._process.exitcode
            self.close()
            return f"ended its process (exit status {status})"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _start(self) -> Connection:
        if self._channel is None:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._max_bytes), daemon=True)
            self._process.start()
            theirs.close()
            if not ours.poll(START_TIME_LIMIT_S):
                raise RuntimeError(f"a process for checks did not start within {START_TIME_LIMIT_S:.0f} s")
            ours.recv()
            self._channel = ours
        return self._channel


def _serve(channel: Connection, max_bytes: int) -> None:
    import torch

    from data.construct.run_check import check_instance

    torch.set_num_threads(1)
    channel.send("ready")
    while True:
        try:
            name, files = channel.recv()
        except EOFError:
            return
        channel.send(check_instance(Graph(name, files), max_bytes=max_bytes))
