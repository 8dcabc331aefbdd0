"""What is wrong with tasks that load: calls, hashes, statistics, constraints, leaks between splits. Runs nothing.

The faults of files that do not load come from passbench.load_tasks(refuse=...); running graphs is the caller's, since
it needs torch and a process that may be killed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from data.constraints_file import graph_constraints
from data.graph import GRAPH_HASH_FILE, META_CLASS_PREFIX, Graph, MalformedGraphError, TensorSpec
from data.model_check import check_model_source
from data.splits import leak_report, operator_sequence
from data.task import Task
from data.task_folders import task_id_of

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    task: str
    """task_id; of a task that does not load, its folder."""
    graph: str | None
    check: str
    """"format", "calls", "hash", "statistics", "constraints", "run" or "leak"."""
    reason: str
    """One line that names file and line where there is one."""

    def line(self) -> str:
        # a reason of a graph's file begins with the graph
        about = f"{self.graph}: " if self.graph and not self.reason.startswith(self.graph) else ""
        return f"{self.task}: {self.check}: {about}{self.reason}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find_faults(tasks: Sequence[Task]) -> list[Fault]:
    """Everything that can be said without running a graph, task by task, and leaks last."""
    checked_calls: dict[str, str | None] = {}
    found = [fault for task in tasks for fault in task_faults(task, checked_calls)]
    return found + list(leaks(tasks))


def task_faults(task: Task, checked_calls: dict[str, str | None]) -> Iterator[Fault]:
    """Faults of one task. checked_calls: reason by model.py's hash; variants of a graph share their source."""
    if task.uids and _SHA256.fullmatch(task.task_id) and task_id_of(task.uids) != task.task_id:
        yield Fault(task.task_id, None, "hash", f"its uids give the name {task_id_of(task.uids)}")
    first_with: dict[str, str] = {}
    for graph in task.graphs:
        same = first_with.setdefault(graph.content_hash, graph.name)
        if same != graph.name:
            yield Fault(task.task_id, graph.name, "hash", f"has the same content as {same}")
        for check, reason in _graph_faults(graph, checked_calls):
            yield Fault(task.task_id, graph.name, check, reason)


def leaks(tasks: Sequence[Task]) -> Iterator[Fault]:
    """What train and evaluation splits have in common."""
    if len({task.split for task in tasks}) < 2:
        return
    readable = []
    for task in tasks:
        reasons = [_reason(operator_sequence, graph) for graph in task.graphs]
        if bad := next((reason for reason in reasons if reason is not None), None):
            yield Fault(task.task_id, None, "leak", f"cannot be compared with the other splits: {bad}")
        else:
            readable.append(task)
    report = leak_report(readable)
    for train, held_out, sequence in report.shared_sequences:
        yield Fault(train, None, "leak", f"shares the operators {' '.join(sequence)[:120]} with {held_out}")
    for train, held_out, digest in report.shared_graphs:
        yield Fault(train, None, "leak", f"shares the graph {digest[:12]} with {held_out}")


def _graph_faults(graph: Graph, checked_calls: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    key = graph.graph_hash
    if key not in checked_calls:
        checked_calls[key] = _reason(check_model_source, graph)
    if (reason := checked_calls[key]) is not None:
        yield "calls", reason
    stated = graph.files.get(GRAPH_HASH_FILE)
    # PassNet hashes a text without a newline at its end; GraphNet's full graphs were formatted after they were hashed
    if stated is not None and not graph.model_source.endswith("\n") and stated.strip() != graph.graph_hash:
        yield "hash", f"{GRAPH_HASH_FILE} states {stated.strip()[:12]}, model.py has {graph.graph_hash[:12]}"
    if (reason := _reason(graph_constraints, graph)) is not None:
        yield "constraints", reason
    for name in graph.arguments:
        for reason in spec_faults(graph.specs[name]):
            yield "statistics", f"{META_CLASS_PREFIX}* of {name}: {reason}"


def spec_faults(spec: TensorSpec) -> Iterator[str]:
    """What of a tensor's statistics no tensor can have."""
    if any(size < 0 for size in spec.shape):
        yield f"shape {list(spec.shape)} has a size below 0"
        return
    for statistic, value in (("mean", spec.mean), ("std", spec.std)):
        # the std of one element is not a number, rightly
        if value is not None and not math.isfinite(value) and spec.num_elements > 1:
            yield f"{statistic} is {value}"
    if spec.std is not None and spec.std < 0:
        yield f"std is {spec.std}"
    if spec.min_val is not None and spec.max_val is not None and spec.min_val > spec.max_val:
        yield f"min_val {spec.min_val} is above max_val {spec.max_val}"
    if spec.data is not None and (num_values := _count(spec.data)) != spec.num_elements:
        yield f"data has {num_values} values, shape {list(spec.shape)} needs {spec.num_elements}"


def _count(data: Any) -> int:
    return sum(map(_count, data)) if isinstance(data, list | tuple) else 1


def _reason(check: Callable[[Graph], object], graph: Graph) -> str | None:
    try:
        check(graph)
    except MalformedGraphError as error:
        return str(error)
    return None


def by_check(faults: Iterable[Fault]) -> dict[str, int]:
    """Number of faults of each check."""
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault.check] = counts.get(fault.check, 0) + 1
    return counts
