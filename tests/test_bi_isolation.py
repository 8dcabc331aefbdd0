"""The replaced part of a graph stands alone: what goes in, what comes out, and that the rule fits it again."""

from __future__ import annotations

import torch

from eval_harness.batch_invariance.isolation import isolated_parts
from eval_harness.graph_ir import Ref
from eval_harness.rewriting import Rewrite, RuleDescription, rewrite
from eval_harness.tracing import TracedGraph, trace_callable, trace_graph
from tests.helpers import make_graph

TWO_LAYERS = """
tmp_0 = torch.matmul(in_0, in_1)
tmp_1 = tmp_0 + in_2
tmp_2 = torch.relu(tmp_1)
tmp_3 = torch.matmul(tmp_2, in_1)
tmp_4 = tmp_3 + in_2
tmp_5 = torch.relu(tmp_4)
return (tmp_5,)
"""
SPECS = {"in_0": ((8, 16), "float32"), "in_1": ((16, 16), "float32"), "in_2": ((16,), "float32")}


def whole(a, b, c):
    return torch.relu(torch.matmul(a, b) + c)


def rule_of(function, *arguments: str) -> RuleDescription:
    return RuleDescription(
        rule="Fuse",
        pattern=trace_callable(function, arguments),
        replacement_args=tuple(Ref(name) for name in arguments),
    )


def parts_of(traced: TracedGraph, rule: RuleDescription) -> tuple[list, list[str], Rewrite]:
    rewritten = rewrite(traced, [rule])
    return *isolated_parts(traced, rewritten), rewritten


def test_equal_parts_are_one_and_the_rule_fits_it_again() -> None:
    def pattern(a, b):
        return torch.relu(a + b)

    rule = rule_of(pattern, "a", "b")
    parts, reasons, rewritten = parts_of(trace_graph(make_graph("two", TWO_LAYERS, SPECS)), rule)
    assert rewritten.num_matches == 2 and reasons == []
    (part,) = parts
    assert {name: spec.shape for name, spec in part.specs.items()} == {"in_0": (16,), "in_1": (8, 16)}
    assert "matmul" not in part.model_source
    again = rewrite(trace_graph(part), [rule])
    assert again.num_matches == 1
    assert again.replaced_nodes == {node.name for node in trace_graph(part).ir.calls}


def test_what_is_replaced_as_a_whole_is_its_own_part() -> None:
    body = "tmp_0 = torch.matmul(in_0, in_1)\ntmp_1 = tmp_0 + in_2\ntmp_2 = torch.relu(tmp_1)\nreturn (tmp_2,)"
    graph = make_graph("one", body, SPECS)
    parts, reasons, _ = parts_of(trace_graph(graph), rule_of(whole, "a", "b", "c"))
    assert parts == [graph] and reasons == []


def test_computed_indices_are_a_reason() -> None:
    body = "tmp_0 = in_1.argmax(dim=-1)\ntmp_1 = in_0[tmp_0]\ntmp_2 = tmp_1 * 2\nreturn (tmp_2,)"
    graph = make_graph("indexed", body, {"in_0": ((8, 16), "float32"), "in_1": ((4, 8), "float32")})

    def pattern(a, b):
        return a[b] * 2

    parts, reasons, rewritten = parts_of(trace_graph(graph), rule_of(pattern, "a", "b"))
    assert rewritten.num_matches == 1 and parts == []
    assert "tmp_0 holds integers that the graph computes" in reasons[0]


def test_several_operators_in_one_line() -> None:
    body = "tmp_0 = torch.relu(in_0 + in_2) * 2\nreturn (tmp_0, in_0 * 3)"
    graph = make_graph("nested", body, {"in_0": ((8, 16), "float32"), "in_2": ((16,), "float32")})

    def pattern(a, b):
        return torch.relu(a + b) * 2

    parts, reasons, rewritten = parts_of(trace_graph(graph), rule_of(pattern, "a", "b"))
    assert rewritten.num_matches == 1
    assert reasons == [] and len(parts) == 1 and "* 3" not in parts[0].model_source
