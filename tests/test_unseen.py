"""Unseen shapes through whole evaluations: right or refusing is fine, silently wrong is the graph's failure."""

from __future__ import annotations

import torch

from eval_harness.judge.unseen import wrong_elements
from eval_harness.presets import load_protocol
from eval_harness.verdict import Outcome
from tests.helpers import ADD_RELU_MUL_KERNEL, SHORT_CLOCK, add_relu_mul, add_relu_mul_pass, make_task

QUICK = {"num_draws": 2, **SHORT_CLOCK}
PROTOCOL = load_protocol("strict", **QUICK)


def evaluate(executor, candidate, *graphs, protocol=PROTOCOL, seed=5):
    task = make_task(*(graphs or (add_relu_mul(rows=64, columns=40),)))
    return executor.submit(candidate, task, protocol=protocol, seed=seed).result(timeout=300)


def wrapper(*first_lines):
    lines = [
        *first_lines,
        "out = torch.empty_like(x)",
        "_kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())",
        "return out",
    ]
    return "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n" + "".join(f"    {line}\n" for line in lines)


def results(graph):
    return sorted(check.result for check in graph.unseen)


def test_a_general_pass_is_right_at_unseen_shapes_and_may_refuse_a_dtype(executor):
    (graph,) = evaluate(executor, add_relu_mul_pass()).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert results(graph) == ["correct", "correct", "refused"]  # numba has no half types
    shapes = [check.change for check in graph.unseen if "->" in check.change and "in_0" in check.change]
    assert len(set(shapes)) == 2


def test_a_pass_that_is_right_at_the_tasks_shapes_only_is_wrong(executor):
    """It computes, at any other shape, without an error: something else."""
    other = "if x.shape != (64, 40):\n        return torch.zeros_like(x)"
    (graph,) = evaluate(executor, add_relu_mul_pass(wrapper=wrapper(other))).graphs
    assert graph.outcome is Outcome.WRONG_VALUES
    assert "outside the task's shapes (in_0 (64, 40) -> " in graph.message and "raise an error" in graph.message
    assert graph.first_correct_t is None and graph.speedup is None
    assert graph.unseen[-1].result == "wrong"


def test_a_tail_that_is_left_out_is_wrong(executor):
    """Loops over whole tiles of four: right at 64 x 40."""
    kernel = ADD_RELU_MUL_KERNEL.replace("range(a.shape[1])", "range(a.shape[1] // 4 * 4)")
    kernel = kernel.replace("range(a.shape[0])", "range(a.shape[0] // 4 * 4)")
    (graph,) = evaluate(executor, add_relu_mul_pass(kernel=kernel), seed=6).graphs
    assert graph.outcome is Outcome.WRONG_VALUES and "outside the task's shapes" in graph.message


def test_an_error_at_another_shape_is_an_honest_refusal(executor):
    refusal = "if x.shape != (64, 40):\n        raise ValueError('served are 64 x 40 only')"
    (graph,) = evaluate(executor, add_relu_mul_pass(wrapper=wrapper(refusal))).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert set(results(graph)) == {"refused"} and "64 x 40 only" in graph.unseen[0].message


def test_a_crash_at_another_shape_is_reported_and_the_graph_is_timed(executor):
    kernel = """

@numba.njit
def _kernel(a, b, c, o):
    if a.shape[0] != 64 or a.shape[1] != 40:
        for i in range(1 << 40):
            o[0, i] = np.float32(1.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]
"""
    (graph,) = evaluate(executor, add_relu_mul_pass(kernel=kernel)).graphs
    assert graph.outcome is Outcome.CORRECT and graph.speedup, graph.message
    assert "lost" in results(graph)


def test_another_dtype_of_the_output_is_wrong(executor):
    other = "if x.dtype != torch.float32:\n        return torch.empty(x.shape, dtype=torch.float32)"
    protocol = load_protocol("strict", **QUICK, unseen_shapes=0)
    (graph,) = evaluate(executor, add_relu_mul_pass(wrapper=wrapper(other)), protocol=protocol).graphs
    assert graph.outcome is Outcome.WRONG_VALUES
    assert "WRONG_DTYPE" in graph.message and "float32 -> " in graph.message


def test_reward_checks_a_secret_choice_of_graphs(executor):
    graphs = [add_relu_mul(f"g{rows}", rows=rows, columns=40) for rows in (8, 9, 10, 11)]
    protocol = load_protocol("reward", **QUICK, max_unseen_graphs=1, unseen_dtypes=0, max_timed_graphs=1)
    chosen = set()
    for seed in range(3):
        verdict = evaluate(executor, add_relu_mul_pass(), *graphs, protocol=protocol, seed=seed)
        checked = [graph.graph for graph in verdict.graphs if graph.unseen]
        assert len(checked) == 1 and verdict.num_correct == 4
        chosen |= set(checked)
    assert len(chosen) > 1


def test_what_rounding_explains_is_not_wrong():
    exact = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    eager = exact.bfloat16()
    assert not wrong_elements((exact * 1.01).bfloat16(), eager, exact, level=-4, eps=2.0**-7).any()
    assert wrong_elements(torch.zeros_like(eager), eager, exact, level=-4, eps=2.0**-7).sum() > 1000
    assert wrong_elements(eager.roll(1, 0), eager, exact, level=-4, eps=2.0**-7).sum() > 1000
    single = exact.float()
    assert wrong_elements(single * 1.01, single, exact, level=-4, eps=2.0**-23).sum() > 1000


def test_what_is_not_finite_counts_only_where_eager_and_float64_are():
    exact = torch.tensor([1.0, 1e6, 1.0], dtype=torch.float64)
    eager = torch.tensor([1.0, torch.inf, 1.0]).half()
    ours = torch.tensor([1.0, 3.0, torch.nan]).half()
    assert wrong_elements(ours, eager, exact, level=-4, eps=2.0**-10).tolist() == [False, False, True]
