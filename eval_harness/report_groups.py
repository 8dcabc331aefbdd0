"""A row's figures by domain, kind, dtype, size, operator count, and apart for graphs that launches decide. No torch.

Groups are of graphs, not tasks: the graphs of one task differ in dtype and size. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from eval_harness.report_facts import UNKNOWN, GraphFacts
from eval_harness.scores import Scoring, as_score, geometric_mean, has_coverage
from eval_harness.summary import FAST_THRESHOLDS, fast_key, is_scored, pooled_graphs
from eval_harness.verdict import GraphVerdict, Outcome, Verdict

LAUNCH_US = {"cuda": 12.0, "cpu": 4.0}
"""Microseconds a kernel (on a CPU: an operator) of eager below which its launch is taken to decide, not its work.
Chosen between graphs that grow with their elements and graphs that do not; no measurement of this machine."""
OPERATOR_BOUNDS = (2, 4, 8, 16, 32)
"""Upper bounds of the groups by operator count."""
ELEMENT_BOUNDS = (2**12, 2**16, 2**20, 2**24)
"""Upper bounds of the groups by elements of the largest argument."""
OVERHEAD, WORK, UNTIMED = "launches decide", "work decides", "eager time unknown"


@dataclass(frozen=True)
class Member:
    """One graph of a row."""

    graph: GraphVerdict
    facts: GraphFacts
    device: str


GROUPINGS: dict[str, Callable[[Member], str]] = {
    "domain": lambda member: member.facts.domain,
    "kind": lambda member: member.facts.kind,
    "dtype": lambda member: member.facts.dtype,
    "size": lambda member: _bin(member.facts.num_elements, ELEMENT_BOUNDS, "elements"),
    "operators": lambda member: _bin(member.facts.num_operators, OPERATOR_BOUNDS, "operators"),
    "overhead": lambda member: launch_share(member),
}
"""Name of a grouping -> the group that a graph is in."""


def group_figures(
    verdicts: Iterable[Verdict],
    facts: Mapping[str, GraphFacts],
    *,
    scoring: Scoring = "passwright",
    p: float = 0.0,
    reference: Mapping[str, GraphVerdict] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Grouping -> its groups, each with figures; nothing where no graph has facts.

    facts: by graph hash. reference: task id + graph name -> a verdict that knows the eager time, for graphs that were
    never timed in this row. Tasks without a score are left out and counted as such in each group.
    """
    verdicts = list(verdicts)
    if not facts:
        return {}
    scored = [verdict for verdict in verdicts if is_scored(verdict) and verdict.as_score is not None]
    pooled = iter(pooled_graphs(scored))
    members = []
    for verdict in scored:
        for raw in verdict.graphs:
            graph, key = next(pooled), f"{verdict.task_id} {raw.graph}"
            if graph.reference_latency_us is None and reference and key in reference:
                known = reference[key]
                update = {name: getattr(known, name) for name in ("reference_latency_us", "reference_num_kernels")}
                graph = graph.model_copy(update=update)
            members.append(Member(graph, facts.get(graph.graph_hash, GraphFacts()), verdict.device))
    left_out = sum(len(verdict.graphs) for verdict in verdicts) - len(members)
    return {
        name: [_figures(group, part, scoring, p) for group, part in _split(members, group_of)]
        + ([{"group": "not scored", "num_graphs": left_out}] if left_out else [])
        for name, group_of in GROUPINGS.items()
    }


def launch_share(member: Member) -> str:
    """Whether eager spends its time on launches or on work, by its microseconds a kernel."""
    latency = member.graph.reference_latency_us
    on_gpu = member.device.startswith("cuda")
    count = (member.graph.reference_num_kernels if on_gpu else None) or member.facts.num_operators
    if latency is None or not count:
        return UNTIMED
    return OVERHEAD if latency / count < LAUNCH_US["cuda" if on_gpu else "cpu"] else WORK


def _split(members: Sequence[Member], group_of: Callable[[Member], str]) -> list[tuple[str, list[Member]]]:
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(group_of(member), []).append(member)
    return sorted(groups.items(), key=lambda item: (_order(item[0]), item[0]))


def _order(group: str) -> float:
    """Bins by their bound, names after their spelling, what is unknown last."""
    if group in (UNKNOWN, UNTIMED):
        return float("inf")
    number = group.split()[1] if group.startswith(("up ", "over ")) else ""
    number = group.split()[2] if group.startswith("up to ") else number
    digits = number.replace(",", "")
    return float(digits) + (0.5 if group.startswith("over ") else 0) if digits.isdigit() else 0.0


def _bin(value: int, bounds: Sequence[int], unit: str) -> str:
    if not value:
        return UNKNOWN
    bound = next((bound for bound in bounds if value <= bound), None)
    return f"over {bounds[-1]:,} {unit}" if bound is None else f"up to {bound:,} {unit}"


def _figures(group: str, members: Sequence[Member], scoring: Scoring, p: float) -> dict[str, Any]:
    graphs = [member.graph for member in members]
    correct = [graph for graph in graphs if graph.outcome is Outcome.CORRECT]
    speeds = [graph.speedup for graph in correct if graph.speedup is not None]
    latencies = [graph.reference_latency_us for graph in graphs if graph.reference_latency_us is not None]
    covered = as_score(graphs, scoring=scoring, p=p, covered=True) if has_coverage(graphs) else None
    return {
        "group": group,
        "num_graphs": len(graphs),
        "num_correct": len(correct),
        "subgraph_success": len(correct) / len(graphs),
        "fast": {fast_key(bound): sum(speed >= bound for speed in speeds) / len(graphs) for bound in FAST_THRESHOLDS},
        "g_mean": geometric_mean(speeds),
        "as_score": as_score(graphs, scoring=scoring, p=p),
        "as_covered": covered,
        "median_eager_us": median(latencies) if latencies else None,
    }
