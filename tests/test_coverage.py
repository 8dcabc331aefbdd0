"""Coverage: the share of a graph's own eager time that was replaced."""

from __future__ import annotations

import pytest
import torch

from eval_harness.coverage import coverage, is_vendor_primitive, time_nodes
from eval_harness.rewriting import rewrite
from eval_harness.tracing import trace_callable, trace_graph
from tests.graph_helpers import F32, draw, make_graph, make_rule, traced

F = torch.nn.functional


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w,
        lambda x, w: torch.matmul(x, w),
        lambda x, w: x.matmul(w),
        lambda x, w: torch.mm(x, w),
        lambda x, w: x.bmm(w),
        lambda x, w: torch.addmm(x, w, w),
        lambda x, w: torch.baddbmm(x, w, w),
        lambda x, w: F.linear(x, w),
        lambda x, w: torch._C._nn.linear(x, w, None),
        lambda x, w: torch.einsum("ij,jk->ik", x, w),
        lambda x, w: torch.functional.einsum("ij,jk->ik", x, w),
        lambda x, w: torch.conv2d(x, w),
        lambda x, w: F.conv1d(x, w),
        lambda x, w: F.conv_transpose2d(x, w),
        lambda x, w: torch.convolution(x, w, None, (1,), (0,), (1,), False, (0,), 1),
        lambda x, w: F.scaled_dot_product_attention(x, w, w),
        lambda x, w: torch._C._nn.scaled_dot_product_attention(x, w, w),
        lambda x, w: torch.ops.aten.mm(x, w),
        lambda x, w: torch.ops.aten.mm.default(x, w),
    ],
)
def test_vendor_primitives_in_every_spelling(function):
    (node,) = trace_callable(function, ["x", "w"]).calls
    assert is_vendor_primitive(node)


@pytest.mark.parametrize(
    "function",
    [lambda x: x + 1, lambda x: x.view(-1), lambda x: F.softmax(x, -1), lambda x: x.shape, lambda x: x.sum(1),
     lambda x: F.layer_norm(x, (3,)), lambda x: x[0], lambda x: torch.arange(3), lambda x: F.embedding(x, x)],
)  # fmt: skip
def test_other_operators_are_not(function):
    (node,) = trace_callable(function, ["x"]).calls
    assert not is_vendor_primitive(node)


GRAPH = """
tmp_0 = in_0 @ in_1
tmp_1 = tmp_0 * 2
tmp_2 = tmp_1.view(-1)
tmp_3 = torch.exp(tmp_2)
return (tmp_3,)
"""
SPECS = {"in_0": ((4, 4), F32), "in_1": ((4, 4), F32)}
SECONDS = {"tmp_0": 100.0, "tmp_1": 3.0, "tmp_2": 1.0, "tmp_3": 6.0}


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        (set(), 0.0),
        ({"tmp_3"}, 0.6),
        ({"tmp_1", "tmp_2", "tmp_3"}, 1.0),
        ({"tmp_2"}, 0.1),
        ({"tmp_0"}, 0.0),  # the vendor's work counts on neither side
        ({"tmp_0", "tmp_1"}, 0.3),
    ],
)
def test_the_share_of_time_other_than_vendor_primitives(replaced, expected):
    assert coverage(traced(GRAPH, **SPECS), replaced, SECONDS) == pytest.approx(expected)


def test_a_graph_of_vendor_primitives_alone():
    graph = traced("tmp_0 = in_0 @ in_1\nreturn (tmp_0,)", **SPECS)
    assert coverage(graph, {"tmp_0"}, {"tmp_0": 1.0}) == 1.0 and coverage(graph, set(), {"tmp_0": 1.0}) == 0.0


def test_without_measurable_times_nodes_are_counted():
    assert coverage(traced(GRAPH, **SPECS), {"tmp_1"}, {}) == pytest.approx(1 / 3)


def test_more_replaced_is_never_less_coverage():
    graph = traced(GRAPH, **SPECS)
    shares = [coverage(graph, set(list(SECONDS)[:count]), SECONDS) for count in range(5)]
    assert shares == sorted(shares)


def test_coverage_of_a_rewrite():
    graph = traced(GRAPH, **SPECS)
    result = rewrite(graph, [make_rule("def pattern(x):\n    return torch.exp(x)")])
    assert coverage(graph, result.replaced_nodes, SECONDS) == pytest.approx(0.6)


def test_time_nodes_measures_every_node_and_orders_them():
    graph = make_graph(
        "tmp_0 = torch.exp(in_0)\ntmp_1 = tmp_0.view(-1)\ntmp_2 = tmp_1.shape\ntmp_3 = tmp_1[0]\ntmp_3 += 1\n"
        "return (tmp_3,)",
        in_0=((2000, 2000), F32),
    )
    ir = trace_graph(graph).ir
    inputs = draw(graph)
    before = inputs[0].clone()
    # other work on the machine may fall into one measurement, hardly into each of several
    tries = [time_nodes(ir, inputs, "cpu", repeats=5) for _ in range(5)]
    seconds = max(tries, key=lambda found: found["tmp_0"] / max(found["tmp_1"], 1e-9))
    assert set(seconds) == {node.name for node in ir.calls} and all(value >= 0.0 for value in seconds.values())
    assert seconds["tmp_0"] > 10 * seconds["tmp_1"], "four million exponentials against a view"
    assert min(found["tmp_0"] for found in tries) < 5 and torch.equal(inputs[0], before)


def test_time_nodes_does_not_change_inputs_that_the_graph_changes():
    graph = make_graph("in_0 += 1\nreturn (in_0 * 2,)", in_0=((4,), F32))
    inputs = draw(graph)
    before = inputs[0].clone()
    time_nodes(trace_graph(graph).ir, inputs, "cpu", repeats=2)
    assert torch.equal(inputs[0], before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_time_nodes_on_cuda():
    graph = make_graph("tmp_0 = torch.exp(in_0)\ntmp_1 = tmp_0.view(-1)\nreturn (tmp_1,)", in_0=((8000, 8000), F32))
    inputs = [value.cuda() for value in draw(graph)]
    seconds = time_nodes(trace_graph(graph).ir, inputs, "cuda", repeats=5)
    assert 1e-5 < seconds["tmp_0"] < 1e-1 and seconds["tmp_1"] < seconds["tmp_0"] / 5
