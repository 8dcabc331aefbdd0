"""Which graphs of a build may stay: answers are appended to a file as they come, so that a stopped build goes on.

What a graph must do is run_check.py's and, for screening, the harness's; the processes that run graphs are
run_pool.py's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data.construct.run_pool import run_each
from data.graph import Graph


@dataclass(frozen=True)
class Check:
    """One question put to graphs."""

    name: str
    """Of the progress bar."""
    function: str
    """"module:name": (graph, settings as keywords) -> why the graph is left out, in one line, or None."""
    settings: Mapping[str, Any]
    time_limit_s: float
    """For one graph."""


class CheckLog:
    """The answers to one check so far: uid -> reason, or None for a graph that may stay."""

    def __init__(self, path: Path, check: Check) -> None:
        """Answers that were given under other settings do not count."""
        self._path, self.check = path, check
        self.reasons: dict[str, str | None] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:  # the run was stopped while it wrote
                    continue
                if entry["settings"] == dict(check.settings):
                    self.reasons[entry["uid"]] = entry["reason"]

    def add(self, uid: str, reason: str | None) -> None:
        line = json.dumps({"uid": uid, "reason": reason, "settings": dict(self.check.settings)})
        self.reasons[uid] = reason
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def check_graphs(graphs: Iterable[Graph], logs: Iterable[CheckLog], *, num_workers: int) -> None:
    """Put every check to the graphs that it has no answer for; the next check sees those that may stay.

    A graph's name is its uid.
    """
    left = list(graphs)
    for log in logs:
        check = log.check
        todo = [graph for graph in left if graph.name not in log.reasons]
        answers = run_each(
            todo, check.function, check.settings, num_workers=num_workers, time_limit_s=check.time_limit_s
        )
        for index, found, fault in tqdm(answers, total=len(todo), desc=check.name, unit="graph", disable=not todo):
            log.add(todo[index].name, fault if fault is not None else found)
        left = [graph for graph in left if log.reasons[graph.name] is None]


def answers(logs: Iterable[CheckLog]) -> dict[str, str | None]:
    """uid -> the first reason against it, or None if every check lets it stay; without an answer yet: not in it."""
    found: dict[str, str | None] = {}
    for number, log in enumerate(logs):
        if number == 0:
            found = dict(log.reasons)
            continue
        found = {
            uid: reason if reason is not None else log.reasons[uid]
            for uid, reason in found.items()
            if reason is not None or uid in log.reasons
        }
    return found
