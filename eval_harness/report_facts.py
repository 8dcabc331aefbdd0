"""Facts that a report groups by and cannot read from verdicts: about the graphs, and about what an attempt was shown.

Plain records, kept in a row's file, so that a report needs neither the tasks nor the trajectories. No torch.
"""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict

from data.graph import Graph
from data.splits import operator_sequence
from data.task import Task
from eval_harness.verdict import Verdict

UNKNOWN = "unknown"
_HALF = frozenset({"float16", "bfloat16"})


class GraphFacts(BaseModel):
    """What is known of a graph before anything is run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: str = UNKNOWN
    """Of the model it comes from: text, vision, ..."""
    kind: str = UNKNOWN
    """fusible, classical, single_op."""
    dtype: str = UNKNOWN
    """The floating type of most of its arguments; of graphs without one, their most frequent type."""
    num_elements: int = 0
    """Of its largest argument."""
    num_operators: int = 0


class ShownEvaluation(BaseModel):
    """One verdict that a policy was shown during an attempt, in figures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turn: int
    as_score: float | None
    as_covered: float | None
    num_correct: int
    num_graphs: int
    rules: tuple[str, ...] = ()
    """Ids of the integrity rules that the candidate broke, each once."""

    @property
    def is_correct(self) -> bool:
        """Every graph is correct: what counts as a pass in pass-fail-pass."""
        return self.num_correct == self.num_graphs

    @classmethod
    def of(cls, turn: int, verdict: Verdict) -> ShownEvaluation:
        """Of one verdict; an incomplete one has no scores."""
        return cls(
            turn=turn,
            as_score=verdict.as_score,
            as_covered=verdict.as_covered,
            num_correct=verdict.num_correct,
            num_graphs=len(verdict.graphs),
            rules=tuple(sorted({violation.rule for violation in verdict.all_violations})),
        )


def facts_of_graph(graph: Graph, task: Task) -> GraphFacts:
    """Facts of one graph, from its own graph_net.json where that says them."""
    dtypes = Counter(spec.dtype.removeprefix("torch.") for spec in graph.specs.values())
    floats = {dtype: count for dtype, count in dtypes.items() if dtype.startswith("float") or dtype in _HALF}
    counted = floats or dtypes
    stated = graph.net.get("num_operators")
    return GraphFacts(
        domain=str(graph.net.get("domain") or task.facts.get("domain") or UNKNOWN),
        kind=str(graph.net.get("kind") or task.facts.get("kind") or UNKNOWN),
        dtype=max(sorted(counted), key=lambda dtype: counted[dtype]) if counted else UNKNOWN,
        num_elements=max((spec.num_elements for spec in graph.specs.values()), default=0),
        num_operators=stated if isinstance(stated, int) else len(operator_sequence(graph)),
    )


def facts_of_tasks(tasks: list[Task]) -> dict[str, GraphFacts]:
    """Content hash of a graph -> its facts."""
    return {graph.content_hash: facts_of_graph(graph, task) for task in tasks for graph in task.graphs}
