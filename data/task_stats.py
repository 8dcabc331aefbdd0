"""What a set of tasks consists of: counts by split, kind, domain, family, operators, sizes, dtypes. Reads text only."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from data.graph import Graph
from data.splits import operator_sequence
from data.task import Task

UNSTATED = "unstated"
"""Where a graph says nothing: upstream's graphs have none of our fields."""
_DOMAINS = {"nlp": "text", "computer_vision": "vision"}
"""Of GraphNet's heuristic_tag."""


class SplitStats(BaseModel):
    """Tasks of one split, or of all."""

    num_tasks: int
    num_graphs: int
    num_sources: int
    """Distinct model.py."""
    num_operator_sequences: int
    """Distinct ones; shapes and dtypes of one sequence count once."""
    num_architectures: int
    """Known ones; 0 where no graph states its model."""
    kinds: dict[str, int]
    """Tasks of each kind: fusible, classical, single_op."""
    domains: dict[str, int]
    """Graphs of each domain: text, vision, audio, multimodal, other."""
    families: dict[str, int]
    """Graphs of each family of batch-invariance contracts."""
    architectures: dict[str, int]
    """Graphs of each architecture, most first."""
    licences: dict[str, int]
    """Graphs of each licence of the model's code."""
    dtypes: dict[str, int]
    """Graphs by the dtype of most of their floating-point elements."""
    group_sizes: dict[str, int]
    """Tasks by their number of graphs, in ranges."""
    max_group_size: int
    operator_counts: dict[str, int]
    """Graphs by their number of operators, in ranges."""
    operators: dict[str, int]
    """Operators over the distinct sources, most first."""
    input_elements: dict[str, int]
    """Graphs by the elements of their largest argument, in powers of ten."""
    ranks: dict[str, int]
    """Arguments by their number of dimensions."""


class TaskStats(BaseModel):
    """All tasks, and each split apart."""

    all: SplitStats
    splits: dict[str, SplitStats]


def collect_stats(tasks: Sequence[Task]) -> TaskStats:
    """Count the tasks. Raises MalformedGraphError for a source whose operators cannot be told."""
    by_split: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_split[task.split or "no split"].append(task)
    sequences: dict[str, tuple[str, ...]] = {}
    splits = {split: _count(chosen, sequences) for split, chosen in sorted(by_split.items())}
    return TaskStats(all=_count(tasks, sequences), splits=splits)


def _count(tasks: Sequence[Task], sequences: dict[str, tuple[str, ...]]) -> SplitStats:
    graphs = [(task, graph) for task in tasks for graph in task.graphs]
    for _, graph in graphs:
        if graph.graph_hash not in sequences:
            sequences[graph.graph_hash] = operator_sequence(graph)
    sources = {graph.graph_hash: sequences[graph.graph_hash] for _, graph in graphs}
    architectures = _most_first(found for _, graph in graphs if (found := architecture_of(graph)))
    return SplitStats(
        num_tasks=len(tasks),
        num_graphs=len(graphs),
        num_sources=len(sources),
        num_operator_sequences=len(set(sources.values())),
        num_architectures=len(architectures),
        kinds=_most_first(kind_of(task) for task in tasks),
        domains=_most_first(domain_of(graph) for _, graph in graphs),
        families=_most_first(graph.family or UNSTATED for _, graph in graphs),
        architectures=architectures,
        licences=_most_first(str(_provenance(graph).get("licence", UNSTATED)) for _, graph in graphs),
        dtypes=_most_first(dtype_of(graph) for _, graph in graphs),
        group_sizes=_in_ranges((len(task.graphs) for task in tasks), (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)),
        max_group_size=max((len(task.graphs) for task in tasks), default=0),
        operator_counts=_in_ranges(
            (len(sequences[graph.graph_hash]) for _, graph in graphs), (1, 2, 4, 8, 16, 32, 64, 128)
        ),
        operators=_most_first(operator for sequence in sources.values() for operator in sequence),
        input_elements=_by_power(_largest(graph) for _, graph in graphs),
        ranks=_sorted(str(len(graph.specs[name].shape)) for _, graph in graphs for name in graph.arguments),
    )


def kind_of(task: Task) -> str:
    """fusible, classical or single_op, as the graphs or the task's facts say."""
    kinds = {str(graph.net["kind"]) for graph in task.graphs if "kind" in graph.net}
    return " and ".join(sorted(kinds)) or task.facts.get("kind", UNSTATED)


def domain_of(graph: Graph) -> str:
    """The model's domain, or what GraphNet tagged it with."""
    stated = graph.net.get("domain") or graph.net.get("heuristic_tag")
    return _DOMAINS.get(str(stated), str(stated)) if stated else UNSTATED


def architecture_of(graph: Graph) -> str | None:
    """Such as "bert"; None where the graph does not say."""
    found = _provenance(graph).get("architecture")
    return str(found) if found else None


def dtype_of(graph: Graph) -> str:
    """The floating-point dtype that most elements of the arguments have; where there is none, the most common one."""
    counts: Counter[str] = Counter()
    for name in graph.arguments:
        spec = graph.specs[name]
        counts[spec.dtype.removeprefix("torch.")] += spec.num_elements
    floating = {dtype: count for dtype, count in counts.items() if "float" in dtype}
    chosen: Mapping[str, int] = floating or counts
    return max(chosen, key=lambda dtype: chosen[dtype], default=UNSTATED)


def _provenance(graph: Graph) -> Mapping[str, Any]:
    found = graph.net.get("provenance")
    return found if isinstance(found, dict) else {}


def _largest(graph: Graph) -> int:
    return max((graph.specs[name].num_elements for name in graph.arguments), default=0)


def _most_first(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _sorted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _in_ranges(values: Iterable[int], starts: Sequence[int]) -> dict[str, int]:
    """ "4-7" -> how many of the values are 4 to 7; ranges without values are left out."""
    names = []
    for start, after in zip(starts, [*starts[1:], None], strict=True):
        names.append(f"{start}+" if after is None else str(start) if after == start + 1 else f"{start}-{after - 1}")
    counts = dict.fromkeys(names, 0)
    below = 0
    for value in values:
        position = sum(start <= value for start in starts) - 1
        if position < 0:
            below += 1
        else:
            counts[names[position]] += 1
    found = {name: count for name, count in counts.items() if count}
    return {"0": below, **found} if below else found


def _by_power(values: Iterable[int]) -> dict[str, int]:
    powers = Counter(int(math.log10(value)) if value > 0 else 0 for value in values)
    return {f"1e{power}": powers[power] for power in sorted(powers)}
