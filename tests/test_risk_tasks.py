"""The bundled set bi_risk: what is in it, that its recipes make it, and that every graph has a batch to judge."""

from __future__ import annotations

import pytest

from data.construct.build_risk import build_task
from data.construct.risk_models import RISK_TASKS
from data.passbench import load_tasks
from eval_harness.batch_invariance.batch_axis import find_batch_layout
from eval_harness.batch_invariance.registry import ContractRegistry
from eval_harness.batch_invariance.row_axis import BatchLayout

TASKS = load_tasks("bi_risk")


def test_it_has_the_risks_that_the_paper_names() -> None:
    assert len(TASKS) >= 12 and all(len(task.graphs) == 3 for task in TASKS)
    families = {graph.family for task in TASKS for graph in task.graphs}
    assert families >= {
        "attention.gqa", "attention.mla", "attention.dsa", "attention.prefill", "attention.paged", "moe", "sampling",
        "linear_attention.kda", "linear_attention.gated_deltanet", "normalization", "reduction", "softmax",
    }  # fmt: skip
    registry = ContractRegistry.shipped()
    assert all(registry.for_family(family) is not None for family in families)


@pytest.mark.parametrize("recipe", RISK_TASKS[::5], ids=lambda recipe: recipe.task_id)
def test_it_is_what_its_recipes_make(recipe: object) -> None:
    made = build_task(recipe)  # type: ignore[arg-type]
    (shipped,) = (task for task in TASKS if task.task_id == made.task_id)
    assert [graph.graph_hash for graph in made.graphs] == [graph.graph_hash for graph in shipped.graphs]


@pytest.mark.slow
def test_every_graph_has_a_batch_axis_that_can_be_resized() -> None:
    for task in TASKS:
        for graph in task.graphs:
            layout = find_batch_layout(graph)
            assert isinstance(layout, BatchLayout) and layout.size in (2, 5, 16) and layout.resizable, graph.name
