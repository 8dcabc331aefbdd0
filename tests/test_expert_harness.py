"""The expert's numba passes for a seeded sample of training tasks, judged by the real harness."""

from __future__ import annotations

import math
import random

import pytest

from data.passbench import load_tasks
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from eval_harness.verdict import Outcome
from trajectories.policies.expert_pass import plan_pass

MAX_ELEMENTS = 200_000


def sample(count: int) -> list[Task]:
    """Tasks of small graphs, cut to their two smallest."""
    found = []
    for task in random.Random(11).sample(list(load_tasks("passbench_lite:train")), 60):
        graphs = sorted(task.graphs, key=lambda graph: sum(math.prod(spec.shape) for spec in graph.specs.values()))[:2]
        if all(sum(math.prod(s.shape) for s in graph.specs.values()) < MAX_ELEMENTS for graph in graphs):
            found.append(Task(task.task_id, tuple(graphs)))
    return found[:count]


@pytest.mark.slow
def test_numba_passes_of_sampled_training_tasks_are_correct(executor: LocalExecutor) -> None:
    protocol = load_protocol("reward", timing=False, num_draws=1, unseen_shapes=1, unseen_dtypes=0)
    for task in sample(3):
        plan = plan_pass(task.graphs, "cpu")
        assert plan.rules, f"{task.task_id}: {plan.refused}"
        verdict = executor.submit(Candidate(plan.files), task, protocol=protocol, seed=2).result(timeout=300)
        outcomes = [(graph.outcome, graph.message) for graph in verdict.graphs]
        assert all(outcome is Outcome.CORRECT for outcome, _ in outcomes), f"{task.task_id}: {outcomes}"
