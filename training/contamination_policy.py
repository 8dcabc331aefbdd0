"""What becomes of trajectories that share something with the evaluation tasks: no dataset, left out, or told.

Finding it: contamination.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from data.passbench import load_tasks
from data.sequence_overlap import normalised_sequence
from data.splits import operator_sequence
from data.task import Task
from eval_harness.errors import UserError
from training.contamination import KINDS, EvalIndex
from training.dataset_config import DatasetConfig
from training.dataset_workers import RecordDigest
from trajectories.selection_choice import TrajectoryDigest
from trajectories.store import load_trajectory

logger = logging.getLogger(__name__)

_TOLD = {
    "graph": "has a graph of an evaluation task",
    "operators": "has the operators of an evaluation task",
    "code": "holds the code of an evaluation task",
}
_NAMED = 4
"""Tasks named in an error."""


class ContaminationSummary(BaseModel):
    """What the comparison with the evaluation tasks found, among trajectories that are good by themselves."""

    model_config = ConfigDict(extra="forbid")

    eval_tasks: list[str]
    """References."""
    num_eval_tasks: int
    num_eval_graphs: int
    eval_hash: str
    """sha256 over the content hashes of the evaluation tasks."""
    mode: str
    num_compared: int
    """Trajectories."""
    num_found: int
    """Of these, with something in common."""
    by_kind: dict[str, int]
    """graph, operators, code -> trajectories; the strongest of each trajectory."""
    tasks: dict[str, str]
    """Task of such a trajectory -> evaluation task."""
    num_unknown_operators: int
    """Trajectories whose prompt does not show all operators, and whose tasks are not at hand."""


def settle_contamination(
    records: Sequence[RecordDigest],
    config: DatasetConfig,
    index: EvalIndex,
    task_refs: Sequence[Sequence[str]],
) -> tuple[list[RecordDigest], ContaminationSummary]:
    """The records, refused where they are to be left out, and what was found.

    task_refs: references of each collection's tasks. Raises UserError in mode `fail` if anything was found.
    """
    completed, num_unknown = _complete(records, index, task_refs)
    by_kind: Counter[str] = Counter()
    tasks: dict[str, str] = {}
    settled: list[RecordDigest] = []
    for record in completed:
        hits = {hit.kind: hit.eval_task_id for hit in record.findings.hits}
        if record.selection.refusal is None and hits:
            kind = next(kind for kind in KINDS if kind in hits)
            by_kind[kind] += 1
            tasks.setdefault(record.task_id, hits[kind])
            if config.contamination == "drop":
                refused = TrajectoryDigest(record.task_id, record.selection.teacher, _TOLD[kind])
                record = replace(record, selection=refused)
        settled.append(record)
    num_compared = sum(record.selection.refusal is None for record in records)
    summary = ContaminationSummary(
        eval_tasks=list(index.refs),
        num_eval_tasks=index.num_tasks,
        num_eval_graphs=index.num_graphs,
        eval_hash=index.content_hash,
        mode=config.contamination,
        num_compared=num_compared,
        num_found=by_kind.total(),
        by_kind={kind: by_kind[kind] for kind in KINDS},
        tasks=dict(sorted(tasks.items())),
        num_unknown_operators=num_unknown,
    )
    if num_unknown:
        logger.warning(
            "%d trajectories have graphs whose operators are not in the prompt, and their tasks are not at hand: "
            "only their hashes and code were compared with %s",
            num_unknown,
            ", ".join(index.refs),
        )
    if summary.num_found and config.contamination == "fail":
        raise UserError(_describe(summary))
    return settled, summary


def _describe(summary: ContaminationSummary) -> str:
    named = [f"{task} (like {evaluated[:40]})" for task, evaluated in summary.tasks.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in summary.by_kind.items() if count)
    return (
        f"eval_tasks {', '.join(summary.eval_tasks)}: {summary.num_found} of {summary.num_compared} trajectories share "
        f"something with them (same {counts}), of the tasks {', '.join(named[:_NAMED])}{more}; set contamination=drop "
        "to leave them out, contamination=report to keep them and say so, or eval_tasks to what you evaluate on"
    )


def _complete(
    records: Sequence[RecordDigest], index: EvalIndex, task_refs: Sequence[Sequence[str]]
) -> tuple[list[RecordDigest], int]:
    """Look at the tasks themselves where a prompt does not show all of their operators."""
    known: dict[int, Mapping[str, Task]] = {}
    completed: list[RecordDigest] = []
    num_unknown = 0
    for record in records:
        if record.selection.refusal is None and not record.findings.is_complete:
            if record.collection not in known:
                known[record.collection] = _load_quietly(task_refs[record.collection])
            task = known[record.collection].get(record.task_id)
            if task is not None and task.content_hash == record.task_hash:
                sequences = {normalised_sequence(operator_sequence(graph)) for graph in task.graphs}
                findings = index.look_up(load_trajectory(record.path), sequences=sequences)
                record = replace(record, findings=findings)
            else:
                num_unknown += 1
        completed.append(record)
    return completed, num_unknown


def _load_quietly(refs: Sequence[str]) -> dict[str, Task]:
    """Tasks by id; a reference that names none here, as on another machine, gives none."""
    tasks: dict[str, Task] = {}
    for ref in refs:
        try:
            tasks.update({task.task_id: task for task in load_tasks(ref)})
        except (ValueError, OSError) as error:
            logger.info("%s: %s", ref, error)
    return tasks


def refs_of(manifest: Mapping[str, Any]) -> list[str]:
    """References of a collection's tasks, from its manifest."""
    refs = manifest.get("config", {}).get("tasks", [])
    return [str(ref) for ref in refs] if isinstance(refs, list) else []
