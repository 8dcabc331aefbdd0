"""What a run of `passwright bench expert` is asked for, the order of its tasks, and the expert's pass for each."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.presets import EvaluationProtocol
from scripts.benches.expert_records import PlanRecord, Row


@dataclass(frozen=True)
class RunSettings:
    """What is measured."""

    device: str
    protocol: EvaluationProtocol
    """Of the tasks; the comparisons take it too, and again with `apply: compile`."""
    seed: int
    """Draws the order of the tasks, and the graph of each that is compared."""
    baselines: tuple[Row, ...] = ()
    guards: bool = True
    """Compare through torch.compile too."""
    max_compared: int | None = None
    """Graphs that are compared, one of each task with a pass; None: of every such task."""

    @property
    def guarded_protocol(self) -> EvaluationProtocol:
        """Other shapes were checked without guards already."""
        return self.protocol.model_copy(update={"apply": "compile", "max_unseen_graphs": 0})


def draw_order(tasks: Sequence[Task], *, seed: int, sample: int | None) -> list[Task]:
    """The tasks in the order of the run; a larger sample of the same seed begins with the smaller one."""
    ordered = sorted(tasks, key=lambda task: task.task_id)
    random.Random(seed).shuffle(ordered)
    return ordered[:sample]


def draw_graph(task: Task, seed: int) -> Graph:
    """The graph of a task that is compared."""
    return task.graphs[random.Random(f"{seed} {task.task_id}").randrange(len(task.graphs))]


def plan_task(task: Task, device: str) -> tuple[PlanRecord, Candidate | None]:
    """The expert's pass for a task. What the expert itself fails on is a record, not an end of the bench."""
    from trajectories.policies.expert_pass import plan_pass

    started = time.perf_counter()
    try:
        plan = plan_pass(task.graphs, device)
        candidate = Candidate(dict(plan.files)) if plan.files else None
    except Exception as error:
        return PlanRecord(
            state="error", refused=[f"the expert fails: {type(error).__name__}: {error}"], seconds=_since(started)
        ), None
    state = "none" if candidate is None else "part" if plan.refused else "whole"
    return PlanRecord(
        state=state,  # type: ignore[arg-type]
        refused=[_without_name(text, task) for text in plan.refused],
        summary=list(plan.summary),
        candidate_hash=candidate.candidate_hash if candidate else "",
        seconds=_since(started),
    ), candidate


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 4)


def _without_name(text: str, task: Task) -> str:
    """A reason without the graph's name before it, so that reasons can be counted."""
    head, _, rest = text.partition(": ")
    return rest if rest and any(graph.name == head for graph in task.graphs) else text
