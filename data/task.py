"""Task: what is asked of a policy: a named list of graphs, its limits, and the facts that a prompt may show. Frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from data.graph import Graph


@dataclass(frozen=True)
class Task:
    """A list of graphs that one pass folder is to serve (upstream: a sample)."""

    task_id: str
    """Unique name; upstream uses the sha256 of the sorted uids joined with newlines."""
    graphs: tuple[Graph, ...]
    """In the order of graph_list.txt."""
    split: str = ""
    """"train", "eval" or empty."""
    uids: tuple[str, ...] = ()
    """Lines of sample_uids.txt, if the folder has one."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What a prompt may show: origin, kind, a one-line title. Never a solution."""

    def __post_init__(self) -> None:
        if not self.graphs:
            raise ValueError(f"task {self.task_id}: no graphs; list at least one in graph_list.txt")
        names = [graph.name for graph in self.graphs]
        if len(set(names)) != len(names):
            raise ValueError(f"task {self.task_id}: graph_list.txt names a graph twice")

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the content hashes of the graphs, in order."""
        return hashlib.sha256("\n".join(graph.content_hash for graph in self.graphs).encode()).hexdigest()

    def graph(self, name: str) -> Graph:
        for graph in self.graphs:
            if graph.name == name:
                return graph
        raise KeyError(f"task {self.task_id} has no graph {name!r}")
