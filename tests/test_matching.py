"""Matching: what counts as the same computation, what may not be replaced, and what a failure says."""

from __future__ import annotations

import functools
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode, Ref
from eval_harness.rewriting import InvalidPatternError, RuleDescription, rewrite
from eval_harness.tracing import trace_callable
from tests.graph_helpers import BF16, F16, F32, make_rule, traced

X = {"in_0": ((4, 6), F32)}
XY = {"in_0": ((4, 6), F32), "in_1": ((4, 6), F32)}


def matches(graph: str, pattern: str, specs: dict) -> int:
    """Both are expressions of in_0, in_1, ...; how often the pattern matches."""
    names = [name for name in specs if name in pattern]
    rule = make_rule(f"def pattern({', '.join(names)}):\n    return {pattern}")
    return rewrite(traced(f"tmp_0 = {graph}\nreturn (tmp_0,)", **specs), [rule]).num_matches


IMAGE = {"in_0": ((2, 3, 8, 8), F32), "in_1": ((4, 3, 3, 3), F32), "in_2": ((3,), F32), "in_3": ((3,), F32)}
F = "torch.nn.functional"


@pytest.mark.parametrize(
    ("graph", "pattern", "specs"),
    [
        # Python functions, by signature
        (f"{F}.softmax(in_0, -1)", f"{F}.softmax(in_0, dim=-1)", X),
        (f"{F}.softmax(in_0, dim=-1)", f"{F}.softmax(in_0, dim=-1, _stacklevel=5, dtype=None)", X),
        (f"{F}.relu(in_0)", f"{F}.relu(in_0, inplace=False)", X),
        (f"{F}.silu(in_0, inplace=False)", f"{F}.silu(in_0)", X),
        (f"{F}.layer_norm(in_0, (6,))", f"{F}.layer_norm(in_0, [6])", X),
        (f"{F}.layer_norm(in_0, (6,), None, None, 1e-05)", f"{F}.layer_norm(in_0, (6,), eps=0.00001)", X),
        (f"{F}.pad(in_0, (1, 2))", f"{F}.pad(in_0, [1, 2], mode='constant', value=None)", X),
        (f"{F}.dropout(in_0, 0.1, False, False)", f"{F}.dropout(in_0, p=0.1, training=False)", X),
        (f"{F}.leaky_relu(in_0, 1)", f"{F}.leaky_relu(in_0, 1.0)", X),
        (f"{F}.max_pool2d(in_0, 2)", f"{F}.max_pool2d(in_0, 2, stride=None, padding=0)", IMAGE),
        (f"{F}.interpolate(in_0, scale_factor=2)", f"{F}.interpolate(in_0, None, 2)", IMAGE),
        (f"{F}.batch_norm(in_0, in_2, in_3, None, None, False, 0.1, 1e-05)",
         f"{F}.batch_norm(in_0, in_2, in_3)", IMAGE),
        # C functions, by schema
        (f"{F}.gelu(in_0)", f"{F}.gelu(in_0, approximate='none')", X),
        ("torch.conv2d(in_0, in_1, None, (1, 1), (0, 0), (1, 1), 1)", "torch.conv2d(in_0, in_1)", IMAGE),
        ("torch.conv2d(in_0, in_1, None, 2)", "torch.conv2d(in_0, in_1, stride=(2, 2))", IMAGE),
        (f"{F}.avg_pool2d(in_0, 2)", f"{F}.avg_pool2d(in_0, (2, 2))", IMAGE),
        ("torch.cat([in_0, in_1], 1)", "torch.cat((in_0, in_1), dim=1)", XY),
        ("torch.cat([in_0, in_1])", "torch.cat([in_0, in_1], dim=0)", XY),
        ("torch.sum(in_0, 1)", "torch.sum(in_0, dim=1, keepdim=False)", X),
        ("torch.sum(in_0, (1,))", "torch.sum(in_0, 1)", X),
        ("torch.clamp(in_0, min=1e-09)", "torch.clamp(in_0, 1e-09)", X),
        ("torch.softmax(in_0, -1)", "torch.softmax(input=in_0, dim=-1)", X),
        ("torch.roll(in_0, shifts=(1, 1), dims=(0, 1))", "torch.roll(in_0, (1, 1), (0, 1))", X),
        # methods, by schema
        ("in_0.view(2, 12)", "in_0.view((2, 12))", X),
        ("in_0.view(2, -1)", "in_0.view(size=[2, -1])", X),
        ("in_0.permute(1, 0)", "in_0.permute([1, 0])", X),
        ("in_0.sum(1, True)", "in_0.sum(dim=1, keepdim=True)", X),
        ("in_0.sum(axis=1, keepdims=True)", "in_0.sum(1, keepdim=True)", X),
        ("in_0.to(torch.float16)", "in_0.to(dtype=torch.float16, copy=False)", X),
        ("in_0.half()", "in_0.to(torch.float16)", X),
        ("in_0.contiguous()", "in_0.contiguous(memory_format=torch.contiguous_format)", X),
        ("in_0.transpose(0, 1)", "in_0.transpose(dim0=0, dim1=1)", X),
        ("in_0.masked_fill(in_1 > 0, 0)", "in_0.masked_fill(in_1 > 0.0, value=0.0)", XY),
        # one operation, spelled as operator, function or method
        ("in_0 + in_1", "torch.add(in_0, in_1)", XY),
        ("in_0 + in_1", "in_0.add(in_1, alpha=1)", XY),
        ("in_0 / in_1", "torch.true_divide(in_0, in_1)", XY),
        ("in_0 @ in_1.transpose(0, 1)", "torch.matmul(in_0, in_1.transpose(0, 1))", XY),
        # commutative operands may be swapped
        ("in_0 + in_1.relu()", "in_1.relu() + in_0", XY),
        ("in_1.relu() * in_0", "in_0 * in_1.relu()", XY),
        ("2 * in_0", "in_0 * 2.0", X),
        ("torch.maximum(in_0, in_1.relu())", "torch.maximum(in_1.relu(), in_0)", XY),
        # attributes, indices, factories, devices
        ("in_0[:, 1:3]", "in_0[:, 1:3]", X),
        ("in_0[..., None]", "in_0[..., None]", X),
        ("in_0.shape[0]", "in_0.shape[0]", X),
        ("torch.arange(6, device=device(type='cuda', index=0)) + in_0", "torch.arange(6, device='cpu') + in_0", X),
        ("torch.full((6,), float('nan')) + in_0", "torch.full((6,), float('nan')) + in_0", X),
    ],
)  # fmt: skip
def test_the_same_computation_spelled_differently_matches(graph, pattern, specs):
    assert matches(graph, pattern, specs) == 1


INTS = {"in_0": ((4, 6), "int64"), "in_1": ((4, 6), "int64")}


@pytest.mark.parametrize(
    ("graph", "pattern", "specs"),
    [
        (f"{F}.softmax(in_0, -1)", f"{F}.softmax(in_0, 0)", X),
        (f"{F}.softmax(in_0, -1)", f"{F}.log_softmax(in_0, -1)", X),
        (f"{F}.layer_norm(in_0, (6,), None, None, 1e-05)", f"{F}.layer_norm(in_0, (6,), None, None, 1e-06)", X),
        (f"{F}.dropout(in_0, 0.1, False, False)", f"{F}.dropout(in_0, 0.1, True, False)", X),
        (f"{F}.gelu(in_0)", f"{F}.gelu(in_0, approximate='tanh')", X),
        ("in_0 + in_1", "torch.add(in_0, in_1, alpha=2)", XY),
        ("in_0 - in_1.relu()", "in_1.relu() - in_0", XY),
        ("in_0 / in_1.relu()", "in_1.relu() / in_0", XY),
        ("in_0 * 2", "in_0 * 3", X),
        ("in_0 * 1", "in_0 * True", X),  # 1 is not True
        ("in_0 * 2", "in_0 * 2.0", INTS),  # int64 * 2.0 is float
        ("in_0 * 0.0", "in_0 * -0.0", X),
        ("in_0.sum(1, True)", "in_0.sum(1)", X),
        ("in_0.sum(1)", "in_0.sum()", X),
        ("in_0.view(2, 12)", "in_0.view(12, 2)", X),
        ("in_0.view(2, 12)", "in_0.reshape(2, 12)", X),
        ("in_0[:, 1:3]", "in_0[:, 1:4]", X),
        ("in_0[[0, 1]]", "in_0[(0, 1)]", X),  # a list selects rows, a tuple one element
        ("in_0.to(torch.float16)", "in_0.to(torch.bfloat16)", X),
        ("in_0 / in_1", "torch.div(in_0, in_1, rounding_mode='floor')", XY),
        ("in_0 + 1.5", "in_0 + in_1", XY),  # a placeholder binds to a node, not to a literal
        ("in_0 + in_1", "in_0 + 1.5", XY),
        ("in_0.shape[0]", "in_0.shape[1]", X),
        ("torch.cat([in_0, in_1], 1)", "torch.cat([in_0, in_1, in_1], 1)", XY),
        ("torch.arange(6) + in_0", "torch.arange(7) + in_0", X),
        ("in_0 + in_1", "in_0 + in_0", XY),
    ],
)  # fmt: skip
def test_different_computations_do_not_match(graph, pattern, specs):
    assert matches(graph, pattern, specs) == 0


def test_swapping_is_for_commutative_operations_with_their_own_binding():
    body = "tmp_0 = in_1 * in_0\ntmp_1 = in_0 - tmp_0\nreturn (tmp_1,)"
    rule = make_rule("def pattern(a, b):\n    t = a * b\n    return a - t")
    result = rewrite(traced(body, **XY), [rule])
    assert result.num_matches == 1 and dict(result.matches[0].match.bindings) == {"a": "in_0", "b": "in_1"}


def test_the_overload_is_that_of_the_graph_not_of_the_pattern():
    for dtype, pattern, expected in ((F32, "in_0 + 1.0", 1), ("int64", "in_0 + 1.0", 0), ("int64", "in_0 + 1", 1)):
        assert matches("in_0 + 1", pattern, {"in_0": ((3,), dtype)}) == expected


LAYER_NORM = """
tmp_0 = in_2 + in_3
tmp_1 = torch.nn.functional.layer_norm(tmp_0, (96,), in_1, in_0, 1e-05)
return (tmp_0, tmp_1)
"""
LN_SPECS = {"in_0": ((96,), F16), "in_1": ((96,), F16), "in_2": ((2, 5, 96), F16), "in_3": ((2, 5, 96), F16)}
LN_PATTERN = """
def pattern(in_0, in_1, in_2, in_3):
    tmp_0 = in_2 + in_3
    tmp_1 = torch.nn.functional.layer_norm(tmp_0, ({n},), in_1, in_0, 1e-05)
    return {returns}
"""


def test_a_miss_names_the_node_and_both_literals():
    result = rewrite(traced(LAYER_NORM, **LN_SPECS), [make_rule(LN_PATTERN.format(n=128, returns="(tmp_0, tmp_1)"))])
    assert result.num_matches == 0
    assert "node tmp_1 = layer_norm(" in result.report
    assert "normalized_shape is (96,) in the graph, (128,) in the pattern" in result.report


def test_a_miss_says_what_must_be_returned_as_well():
    result = rewrite(traced(LAYER_NORM, **LN_SPECS), [make_rule(LN_PATTERN.format(n=96, returns="tmp_1"))])
    assert result.num_matches == 0 and "node tmp_0 = add(in_2, in_3)" in result.report
    assert "output outside of the match uses it too, so the pattern must return it" in result.report
    assert (
        rewrite(
            traced(LAYER_NORM, **LN_SPECS), [make_rule(LN_PATTERN.format(n=96, returns="(tmp_1, tmp_0)"))]
        ).num_matches
        == 1
    )


def test_a_miss_says_which_operation_is_absent_and_which_is_another():
    graph = traced("tmp_0 = in_0 * 2\ntmp_1 = torch.sigmoid(tmp_0)\nreturn (tmp_1,)", **X)
    report = rewrite(graph, [make_rule("def pattern(x):\n    return torch.tanh(x * 2)")]).report
    assert "the graph has no tanh" in report
    report = rewrite(graph, [make_rule("def pattern(x):\n    return torch.sigmoid(x + 2)")]).report
    assert "node tmp_0 = mul(in_0, 2): the pattern has add = add(x, 2) there" in report


def test_the_nearest_miss_is_the_one_that_went_deepest():
    body = """
    tmp_0 = in_0 * 2
    tmp_1 = torch.exp(tmp_0)
    tmp_2 = torch.relu(tmp_1)
    tmp_3 = in_0 + 1
    tmp_4 = torch.relu(tmp_3)
    return (tmp_2, tmp_4)
    """
    report = rewrite(traced(body, **X), [make_rule("def pattern(x):\n    return torch.relu(torch.exp(x * 3))")]).report
    assert (
        "2 of 3 nodes agree" in report
        and "(in the pattern mul = mul(x, 3)): other is 2 in the graph, 3" in report
    )


def test_outputs_that_do_not_depend_on_each_other():
    body = "tmp_0 = torch.exp(in_0)\ntmp_1 = torch.tanh(in_0)\nreturn (tmp_1, tmp_0)"
    rule = make_rule("def pattern(x):\n    a = torch.exp(x)\n    b = torch.tanh(x)\n    return a, b")
    result = rewrite(traced(body, **X), [rule])
    assert result.num_matches == 1 and result.matches[0].match.outputs == ("tmp_0", "tmp_1")
    other = "tmp_0 = torch.exp(in_0)\ntmp_1 = torch.tanh(in_1)\nreturn (tmp_1, tmp_0)"
    assert rewrite(traced(other, **XY), [rule]).num_matches == 0, "both read the same value in the pattern"


def test_all_matches_that_do_not_overlap_are_found():
    body = """
    tmp_0 = torch.relu(in_0)
    tmp_1 = torch.relu(tmp_0)
    tmp_2 = torch.relu(tmp_1)
    tmp_3 = torch.relu(tmp_2)
    return (tmp_3,)
    """
    result = rewrite(traced(body, **X), [make_rule("def pattern(x):\n    return torch.relu(torch.relu(x))")])
    assert result.num_matches == 2 and result.replaced_nodes == {"tmp_0", "tmp_1", "tmp_2", "tmp_3"}


def test_a_node_that_depends_on_the_match_and_feeds_it_refuses_the_match():
    body = "tmp_0 = torch.exp(in_0)\ntmp_1 = torch.tanh(tmp_0)\ntmp_2 = tmp_0 + tmp_1\nreturn (tmp_2,)"
    rule = make_rule("def pattern(x, y):\n    a = torch.exp(x)\n    return a, a + y")
    result = rewrite(traced(body, **X), [rule])
    assert result.num_matches == 0 and "tmp_1" in result.report and "cannot be moved" in result.report


def test_two_matches_that_would_need_each_other_are_not_both_taken():
    body = """
    tmp_0 = torch.exp(in_0)
    tmp_1 = torch.exp(in_1)
    tmp_2 = tmp_0 + tmp_1
    tmp_3 = tmp_1 * tmp_0
    return (tmp_2, tmp_3)
    """
    # each match alone is convex: exp(in_0) with tmp_3, exp(in_1) with tmp_2
    first = make_rule("def pattern(x, y):\n    a = torch.exp(x)\n    return a, y * a", name="First")
    second = make_rule("def pattern(x, y):\n    a = torch.exp(x)\n    return a, y + a", name="Second")
    result = rewrite(traced(body, **XY), [first, second])
    assert result.num_matches == 1 and result.matches[0].rule == "First"


def test_a_placeholder_cannot_be_a_node_inside_the_match():
    body = "tmp_0 = torch.relu(in_0)\ntmp_1 = tmp_0 + tmp_0\nreturn (tmp_1,)"
    result = rewrite(traced(body, **X), [make_rule("def pattern(x, y):\n    return torch.relu(x) + y")])
    assert result.num_matches == 0


def test_one_placeholder_is_one_value():
    rule = make_rule("def pattern(x):\n    return torch.exp(x) + torch.tanh(x)")
    assert rewrite(traced("tmp_0 = torch.exp(in_0) + torch.tanh(in_0)\nreturn (tmp_0,)", **X), [rule]).num_matches == 1
    result = rewrite(traced("tmp_0 = torch.exp(in_0) + torch.tanh(in_1)\nreturn (tmp_0,)", **XY), [rule])
    assert result.num_matches == 0 and "is already in_" in result.report


def test_dead_nodes_are_ignored_on_both_sides():
    body = "tmp_0 = torch.exp(in_0)\ntmp_1 = tmp_0.shape\ntmp_2 = tmp_0 * 3\ntmp_3 = torch.tanh(tmp_0)\nreturn (tmp_3,)"
    rule = make_rule("def pattern(x):\n    a = torch.exp(x)\n    dead = a.shape\n    return torch.tanh(a)")
    result = rewrite(traced(body, **X), [rule])
    assert result.num_matches == 1
    assert [node.name for node in result.ir.calls] == ["Rule_call"]


# mutations


@pytest.mark.parametrize("mutation", ["in_0 += 1", "in_0.add_(1)", "tmp_9[0] = 1.0", "tmp_8 = torch.relu_(tmp_9)"])
def test_no_match_reaches_across_a_mutation_of_what_it_reads(mutation):
    """tmp_2 reads the changed value, tmp_1 the unchanged one; tmp_9 is a view of in_0."""
    body = f"tmp_9 = in_0.view(6, 4)\ntmp_1 = torch.exp(in_0)\n{mutation}\ntmp_2 = tmp_1 + in_0\nreturn (tmp_2,)"
    pattern = "def pattern(x, y):\n    return torch.exp(x) + y"
    result = rewrite(traced(body, **X), [make_rule(pattern)])
    assert result.num_matches == 0 and "cannot be moved" in result.report
    unmutated = body.replace(mutation, "pass")
    assert rewrite(traced(unmutated, **X), [make_rule(pattern)]).num_matches == 1


def test_a_mutation_of_something_else_is_no_obstacle():
    body = "tmp_1 = torch.exp(in_0)\nin_1 += 1\ntmp_2 = tmp_1 + in_0\nreturn (tmp_2, in_1)"
    result = rewrite(traced(body, **XY), [make_rule("def pattern(x, y):\n    return torch.exp(x) + y")])
    assert result.num_matches == 1


def test_a_view_that_is_changed_later_cannot_become_a_copy():
    body = "tmp_0 = in_0 * 2\ntmp_1 = tmp_0.view(-1)\ntmp_0 += 1\ntmp_2 = tmp_1 * 3\nreturn (tmp_2, tmp_0)"
    result = rewrite(traced(body, **X), [make_rule("def pattern(x):\n    return x.view(-1)")])
    assert result.num_matches == 0 and "is a view" in result.report
    unmutated = body.replace("tmp_0 += 1\n", "")
    assert rewrite(traced(unmutated, **X), [make_rule("def pattern(x):\n    return x.view(-1)")]).num_matches == 1


def test_in_place_on_a_value_that_nobody_else_reads_may_be_replaced():
    body = (
        "tmp_0 = in_0 * 2\ntmp_1 = torch.nn.functional.relu(tmp_0, inplace=True)\ntmp_2 = tmp_1 + in_1\nreturn (tmp_2,)"
    )
    pattern = "def pattern(x, y):\n    return torch.nn.functional.relu(x, inplace=True) + y"
    assert rewrite(traced(body, **XY), [make_rule(pattern)]).num_matches == 1
    read_later = body.replace("return (tmp_2,)", "tmp_3 = tmp_0 + 1\nreturn (tmp_2, tmp_3)")
    result = rewrite(traced(read_later, **XY), [make_rule(pattern)])
    assert result.num_matches == 0 and "tmp_3 reads afterwards" in result.report
    of_an_input = body.replace("relu(tmp_0", "relu(in_0")
    result = rewrite(traced(of_an_input, **XY), [make_rule(pattern)])
    assert result.num_matches == 0 and "an input is changed" in result.report


def test_what_goes_through_the_output_of_an_in_place_match_is_no_obstacle():
    """flatten reads the changed storage, but through the match's own output."""
    body = f"""
    tmp_0 = in_0 * 2
    tmp_1 = {F}.relu(tmp_0, inplace=True)
    tmp_2 = tmp_1.view(-1)
    tmp_2 += 1
    return (tmp_2 * 3,)
    """
    result = rewrite(traced(body, **X), [make_rule(f"def pattern(x):\n    return {F}.relu(x, inplace=True)")])
    assert result.num_matches == 1
    seen_elsewhere = body.replace("return (tmp_2 * 3,)", "return (tmp_2 * 3, tmp_0)")
    result = rewrite(traced(seen_elsewhere, **X), [make_rule(f"def pattern(x):\n    return {F}.relu(x, inplace=True)")])
    assert result.num_matches == 0


def test_in_place_is_not_out_of_place():
    body = "tmp_0 = in_0 * 2\ntmp_0 += in_1\nreturn (tmp_0,)"
    assert rewrite(traced(body, **XY), [make_rule("def pattern(a, b):\n    return a * 2 + b")]).num_matches == 0
    in_place = "def pattern(a, b):\n    t = a * 2\n    t += b\n    return t"
    assert rewrite(traced(body, **XY), [make_rule(in_place)]).num_matches == 1


def test_setitem_inside_of_a_match():
    body = "tmp_0 = torch.zeros(4, 6)\ntmp_0[0] = in_0[0]\ntmp_1 = tmp_0 + in_0\nreturn (tmp_1,)"
    pattern = "def pattern(a):\n    t = torch.zeros(4, 6)\n    t[0] = a[0]\n    return t + a"
    result = rewrite(traced(body, **X), [make_rule(pattern)])
    assert result.num_matches == 1 and len(result.replaced_nodes) == 4
    late = "def pattern(a):\n    t = torch.zeros(4, 6)\n    s = t + a\n    t[0] = a[0]\n    return s"
    assert rewrite(traced(body, **X), [make_rule(late)]).num_matches == 0, "another order, another result"


# patterns


@pytest.mark.parametrize(
    ("returned", "message"),
    [("x", "returns its argument"), ("(torch.relu(x), x)", "returns its argument"), ("()", "must return"),
     ("(torch.relu(x), 1)", "must return"), ("None", "must return")],
)  # fmt: skip
def test_patterns_that_match_nothing_or_everything_are_refused(returned, message):
    def describe():
        scope = {"torch": torch}
        exec(f"def pattern(x):\n    return {returned}", scope)
        return RuleDescription("Rule", trace_callable(scope["pattern"], ["x"]), ())

    with pytest.raises(InvalidPatternError, match=message):
        rewrite(traced("tmp_0 = torch.relu(in_0)\nreturn (tmp_0,)", **X), [describe()])


def test_an_argument_that_binds_to_nothing_is_refused():
    rule = make_rule("def pattern(x, y):\n    return torch.relu(x)")
    with pytest.raises(InvalidPatternError, match="passes y"):
        rewrite(traced("tmp_0 = torch.relu(in_0)\nreturn (tmp_0,)", **X), [rule])
    used = make_rule("def pattern(x, y):\n    return torch.relu(x)", args="return (x,)")
    assert rewrite(traced("tmp_0 = torch.relu(in_0)\nreturn (tmp_0,)", **X), [used]).num_matches == 1


def test_a_hostile_pattern_ends():
    """Sums of sums match in exponentially many ways, all of which fail at the leaf."""
    depth = 9
    names = ["in_0", "in_1"] * 2 ** (depth - 1)
    body, count = [], 0
    while len(names) > 1:
        following = []
        for left, right in zip(names[::2], names[1::2], strict=True):
            body.append(f"tmp_{count} = {left} + {right}")
            following.append(f"tmp_{count}")
            count += 1
        names = following
    text = "\n".join(body)
    pattern = text.replace("tmp_0 = in_0 + in_1", "tmp_0 = in_0 + in_2").replace("\n", "\n    ")
    rule = make_rule(f"def pattern(in_0, in_1, in_2):\n    {pattern}\n    return {names[0]}")
    started = time.monotonic()
    result = rewrite(traced(f"{text}\ntmp_{count} = {names[0]} - in_0\nreturn (tmp_{count},)", **XY), [rule])
    assert time.monotonic() - started < 60
    assert result.num_matches in (0, 1)


_CALLS = [
    *(("call_function", f"torch.{name}") for name in ("exp", "cat", "zeros", "ops.aten.add.Tensor")),
    *(("call_function", f"_operator.{name}") for name in ("add", "iadd", "getitem", "setitem")),
    *(("call_function", f"{F}.{name}") for name in ("softmax", "relu")),
    *(("call_method", name) for name in ("sum", "float", "view")),
    ("getattr", "shape"),
]
_HOSTILE_VALUES = st.recursive(
    st.sampled_from(["x", "y", "n0", "n1"]).map(Ref) | st.none() | st.integers(-2, 2) | st.floats() | st.just(Ellipsis),
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner, inner) | st.dictionaries(st.just("k"), inner),
    max_leaves=4,
)
_HOSTILE_NODES = st.lists(
    st.tuples(
        st.sampled_from(_CALLS),
        st.lists(_HOSTILE_VALUES, max_size=3),
        st.dictionaries(st.sampled_from(["dim", "inplace", "out", "training"]), _HOSTILE_VALUES, max_size=1),
    ),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(_HOSTILE_NODES, st.integers(0, 2))
def test_whatever_pattern_an_untrusted_process_sends_is_matched_or_refused(nodes, returned):
    """Data that pass validation must not break the judge, which would book it as its own failure."""
    graph = _hostile_graph()
    found = [IRNode("x", "placeholder", "x"), IRNode("y", "placeholder", "y")]
    found += [IRNode(f"n{i}", *call, tuple(args), kwargs) for i, (call, args, kwargs) in enumerate(nodes)]
    found.append(IRNode("output", "output", "output", (Ref(f"n{min(returned, len(nodes) - 1)}"),)))
    try:
        data = RuleDescription("Rule", IRGraph(found), ()).to_json()
        rewrite(graph, [RuleDescription.from_json(data)])
    except (IRFormatError, InvalidPatternError):
        pass


@functools.cache
def _hostile_graph():
    return traced(
        "tmp_0 = torch.exp(in_0)\ntmp_0 += in_1\ntmp_1 = tmp_0[0].sum(0).float()\ntmp_2 = torch.cat([in_0, in_1])\n"
        f"tmp_2[0] = in_0[1]\nreturn (tmp_1 + {F}.softmax(in_0, -1), {F}.relu(tmp_2).view(in_0.shape[0] * 2, 6))",
        **XY,
    )


def test_a_pattern_that_calls_a_replacement_is_refused():
    call = IRNode("c", "call_function", "replacement:Other", (Ref("x"),))
    ir = IRGraph([IRNode("x", "placeholder", "x"), call, IRNode("output", "output", "output", (Ref("c"),))])
    with pytest.raises(IRFormatError, match="calls no replacement"):
        RuleDescription.from_json(RuleDescription("Rule", ir, ()).to_json())


# the papers' two showcase graphs

H1 = """
tmp_2 = in_3.contiguous()
tmp_3 = tmp_2.view(-1, 133, 133, 96)
tmp_4 = torch.roll(tmp_3, shifts=(3, 3), dims=(1, 2))
tmp_5 = tmp_4[slice(None, None, None), slice(None, 128, None), slice(None, 128, None), slice(None, None, None)]
tmp_6 = tmp_5.contiguous()
tmp_7 = tmp_6.view(1, 16384, 96)
tmp_8 = in_2 + tmp_7
tmp_9 = torch.nn.functional.layer_norm(tmp_8, (96,), in_1, in_0, 1e-05)
return (tmp_8, tmp_9)
"""
H1_SPECS = {
    "in_0": ((96,), BF16), "in_1": ((96,), BF16), "in_2": ((1, 16384, 96), BF16), "in_3": ((1, 19, 7, 19, 7, 96), BF16),
}  # fmt: skip


def test_case_h1_window_reverse_residual_layer_norm_two_outputs():
    """PassNet, appendix H.1, S = 133, C = 96, SC = 128; the pattern is spelled in its own way."""
    pattern = """
    def pattern(in_0, in_1, in_2, in_3):
        x = in_3.contiguous().view((-1, 133, 133, 96))
        x = torch.roll(x, (3, 3), (1, 2))[:, :128, :128, :]
        s = in_2 + x.contiguous().view(1, 16384, 96)
        return s, torch.nn.functional.layer_norm(s, [96], weight=in_1, bias=in_0)
    """
    result = rewrite(traced(H1, **H1_SPECS), [make_rule(pattern, args="return (in_3, in_2, in_1, in_0, 'r133')")])
    assert result.num_matches == 1 and len(result.replaced_nodes) == 8
    call = result.ir.calls[0]
    assert call.target == "replacement:Rule" and [str(arg) for arg in call.args] == [
        "in_3",
        "in_2",
        "in_1",
        "in_0",
        "r133",
    ]
    other = pattern.replace("133", "70")
    assert "(-1, 133, 133, 96) in the graph" in rewrite(traced(H1, **H1_SPECS), [make_rule(other)]).report


H2 = """
tmp_0 = in_0.to(torch.float32)
tmp_1 = in_1 * tmp_0
tmp_2 = torch.sum(tmp_1, 1)
tmp_3 = tmp_0.sum(1)
tmp_4 = torch.clamp(tmp_3, min=1e-09)
tmp_5 = tmp_2 / tmp_4
tmp_6 = torch.cat([tmp_5], 1)
return (tmp_6,)
"""


@pytest.mark.parametrize("shape", [(2, 7, 16), (5, 3, 8)])
def test_case_h2_masked_mean_pooling_one_rule_for_all_shapes(shape):
    """PassNet, appendix H.2."""
    pattern = """
    def pattern(in_0, in_1):
        m = in_0.to(dtype=torch.float32)
        a = in_1 * m
        return torch.cat([torch.sum(a, dim=1) / torch.clamp(m.sum(dim=1), 1e-9)], dim=1)
    """
    result = rewrite(traced(H2, in_0=(shape, "int64"), in_1=(shape, BF16)), [make_rule(pattern)])
    assert result.num_matches == 1 and len(result.replaced_nodes) == 7
