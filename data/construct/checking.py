"""Which graphs of a build have run: answers are appended to a file as they come, so that a stopped build goes on.

What a graph must do to stay is run_check.py's, and the processes that run graphs are run_pool.py's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from data.construct.run_pool import check_runs
from data.graph import Graph

TIME_LIMIT_S = 5.0
"""For one graph."""


class CheckLog:
    """The answers so far: uid -> reason, or None for a graph that may stay."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        """Answers that were given under another limit do not count."""
        self._path, self._max_bytes = path, max_bytes
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
        self.reasons[uid] = reason
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def check_graphs(graphs: Iterable[Graph], log: CheckLog, *, max_bytes: int, num_workers: int) -> None:
    """Check every graph that the log has no answer for. A graph's name is its uid."""
    todo = [graph for graph in graphs if graph.name not in log.reasons]
    answers = check_runs(todo, num_workers=num_workers, time_limit_s=TIME_LIMIT_S, max_bytes=max_bytes)
    for index, reason in tqdm(answers, total=len(todo), desc="check", unit="graph", disable=not todo):
        log.add(todo[index].name, reason)
