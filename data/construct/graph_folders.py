"""The folders that extract() writes: out/name/graph_<i>/ for each graph, and rejected.json for those that are refused.

A folder appears whole or not at all: it is written beside its place and then renamed. graph_list.txt names them, so
that out/name is a task.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from data.construct.constraints import Finding, RejectedGraphError, check_constraints
from data.construct.extract import CapturedGraph
from data.construct.full_graph import full_graph, write_full_graph
from data.file_trees import GRAPH_LIST_FILE

logger = logging.getLogger(__name__)

REJECTED_FILE = "rejected.json"
"""A list of {"graph", "constraint", "reason"}."""
_NAME = re.compile(r"[\w.+-]+(/[\w.+-]+)*")


class GraphFolders:
    """Where the graphs of one extracted model go."""

    def __init__(self, out: str | Path, name: str, *, dynamic: bool, check: bool, overwrite: bool) -> None:
        if not _NAME.fullmatch(name) or ".." in name.split("/"):
            raise ValueError(f"name is {name!r}; give letters, digits and any of '._+-', with '/' between folders")
        self.name = name
        self.dynamic = dynamic
        self.check = check
        self.folder = Path(out) / name
        self.written: list[Path] = []
        self.rejected: list[dict[str, object]] = []
        self._num_graphs = 0
        self._seen: set[tuple[object, ...]] = set()
        earlier = sorted(path for path in self.folder.glob("graph_*") if path.is_dir())
        if earlier and not overwrite:
            raise FileExistsError(f"{earlier[0]}: there already; give another name or out, or say overwrite=True")
        for path in earlier:
            shutil.rmtree(path)
        for name in (REJECTED_FILE, GRAPH_LIST_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def add(self, captured: CapturedGraph) -> None:
        """Write one graph, or note which constraint it breaks. A graph that is there already is not written again."""
        number = self._num_graphs
        graph_dir = self.folder / f"graph_{number}"
        try:
            full = full_graph(captured, graph_dir.name, model_name=self.name, dynamic=self.dynamic)
        except RejectedGraphError as error:
            findings = [error.finding]
        else:
            graph = full.graph
            key = (graph.graph_hash, *((spec.shape, spec.dtype) for spec in graph.specs.values()))
            if key in self._seen:
                return
            self._seen.add(key)
            findings = check_constraints(graph, custom_ops=full.custom_ops) if self.check else []
            if not findings:
                staged = self.folder / f".{graph_dir.name}.partial"
                shutil.rmtree(staged, ignore_errors=True)
                write_full_graph(full, staged)
                staged.replace(graph_dir)
                self.written.append(graph_dir)
                self._list()
        self._num_graphs += 1
        self._note_rejected(number, findings)

    def _list(self) -> None:
        """The list that makes the folder a task: its graphs, one a line."""
        lines = "".join(f"{path.name}\n" for path in self.written)
        (self.folder / GRAPH_LIST_FILE).write_text(lines, encoding="utf-8")

    def _note_rejected(self, number: int, findings: Sequence[Finding]) -> None:
        for finding in findings:
            logger.warning("%s: graph %d is left out, %s", self.name, number, finding)
            self.rejected.append({"graph": number, "constraint": str(finding.constraint), "reason": finding.reason})
        if findings:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.rejected, indent=2) + "\n"
            (self.folder / REJECTED_FILE).write_text(text, encoding="utf-8")
