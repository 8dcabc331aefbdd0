"""Rewriting: the identity equals eager, replacements land where data and memory allow, rules are described as data."""

from __future__ import annotations

import functools
import json
import types

import pytest
import torch

from data.graph import Graph
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from eval_harness.candidate_process.rules import CandidateRuleError, describe_rule, replacement_function
from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode, Ref
from eval_harness.rewriting import RuleDescription, build_module, check_structure, rewrite
from eval_harness.tracing import trace_graph
from tests.graph_helpers import BF16, F16, F32, draw, make_graph, make_rule, rule_module

F = "torch.nn.functional"
MAT = ((4, 6), F32)
TRICKY = {
    "bf16 += f32 stays bf16": (
        "tmp_0 = in_0 * 2\ntmp_0 += in_1\nreturn (tmp_0,)",
        {"in_0": ((4,), BF16), "in_1": ((4,), F32)},
    ),
    "bf16 + f32 is f32": ("return (in_0 + in_1,)", {"in_0": ((4,), BF16), "in_1": ((4,), F32)}),
    "setitem": (
        "tmp_0 = in_0.clone()\ntmp_0[0] = in_1\ntmp_0[1:3, ::2] = 7.0\nreturn (tmp_0,)",
        {"in_0": MAT, "in_1": ((6,), F32)},
    ),
    "an input is changed": ("in_0 += 1\ntmp_0 = in_0.view(-1)\ntmp_0[0] = 5.0\nreturn (in_0 * 2,)", {"in_0": MAT}),
    "a changed view": ("tmp_0 = in_0 * 2\ntmp_1 = tmp_0.t()\ntmp_0.add_(1)\nreturn (tmp_1, tmp_0)", {"in_0": MAT}),
    "unpacked shape": ("a, b = in_0.shape\nreturn (in_0.reshape(b, a), torch.zeros(a, b) + in_0)", {"in_0": MAT}),
    "unpacked results": ("a, b = torch.chunk(in_0, 2, 1)\nreturn (a * b,)", {"in_0": MAT}),
    "factories": (
        "tmp_0 = torch.arange(6, device=device(type='cuda', index=0))\ntmp_1 = torch.tensor([1.0, 2.0, 3.0, 4.0])\n"
        "tmp_2 = torch.full((6,), float('-inf'), device=device(type='cuda', index=0))\n"
        "return (in_0 + tmp_0, tmp_1, torch.maximum(in_0, tmp_2))",
        {"in_0": MAT},
    ),
    "strides": (
        "tmp_0 = in_0.transpose(0, 1)\ntmp_1 = tmp_0 + 1\nreturn (tmp_0, tmp_1, tmp_1.contiguous())",
        {"in_0": MAT},
    ),
    "channels last": (
        "return (in_0.to(memory_format=torch.channels_last), in_0.contiguous(memory_format=torch.channels_last) * 2)",
        {"in_0": ((2, 3, 4, 5), F32)},
    ),
    "integer division and shifts": (
        "return (in_0 // 2, in_0 % 3, in_0 << 1, ~in_0, in_0 ** 2, in_0 / 2)",
        {"in_0": ((7,), "int64")},
    ),
    "reflected": ("return (1 - in_0, 2 / (in_0 + 9), 2 ** in_0, -in_0, 3 * in_0)", {"in_0": MAT}),
    "comparison and where": (
        "tmp_0 = in_0 > 0\nreturn (torch.where(tmp_0, in_0, 0.0), in_0.masked_fill(tmp_0, -1))",
        {"in_0": MAT},
    ),
    "indexing": (
        "return (in_0[..., None, 1:5:2], in_0[:, -1], in_0[[0, 2]], in_0[in_1])",
        {"in_0": MAT, "in_1": ((3,), "int64")},
    ),
    "shape from data": ("tmp_0 = in_0[in_1]\nreturn (tmp_0 * 2,)", {"in_0": ((8,), F32), "in_1": ((8,), "bool")}),
    "result tuples": ("a = torch.max(in_0, 1)\nb = in_0.sort(-1)\nreturn (a[0], a[1], b[1])", {"in_0": MAT}),
    "pools and norms": (
        f"tmp_0 = {F}.max_pool2d(in_0, 2)\ntmp_1 = {F}.batch_norm(in_0, in_1, in_2, None, None, False, 0.1, 1e-05)\n"
        f"return (tmp_0, tmp_1, {F}.adaptive_avg_pool2d(in_0, (1, 1)), {F}.interpolate(in_0, scale_factor=2))",
        {"in_0": ((2, 3, 4, 4), F32), "in_1": ((3,), F32), "in_2": ((3,), F32)},
    ),
    "statistics in training": (
        f"tmp_0 = {F}.batch_norm(in_0, in_1, in_2, None, None, True, 0.1, 1e-05)\nreturn (tmp_0, in_1 + 0)",
        {"in_0": ((2, 3, 4, 4), F32), "in_1": ((3,), F32), "in_2": ((3,), "float32")},
    ),
    "linear, gelu, attention": (
        f"tmp_0 = torch._C._nn.linear(in_0, in_1, None)\ntmp_1 = {F}.gelu(tmp_0, approximate='tanh')\n"
        "tmp_2 = torch._C._nn.scaled_dot_product_attention(tmp_1, tmp_1, tmp_1, attn_mask=None, dropout_p=0.0)\n"
        "return (tmp_2,)",
        {"in_0": ((2, 4, 6), F16), "in_1": ((6, 6), F16)},
    ),
    "einsum, split, meshgrid": (
        "a = torch.functional.einsum('ij,kj->ik', in_0, in_0)\nb = torch.functional.split(in_0, 2, dim=1)\n"
        "c = torch.functional.meshgrid(in_0[0], in_0[1], indexing='ij')\nreturn (a, b[1], c[0])",
        {"in_0": MAT},
    ),
    "aten by name": ("return (torch.ops.aten.index(in_0, [in_1, None]),)", {"in_0": MAT, "in_1": ((3,), "int64")}),
    "one hot and casts": (
        f"return ({F}.one_hot(in_0, 5), in_0.float(), in_0.to(torch.bfloat16), in_0.bool())",
        {"in_0": ((3,), "int64")},
    ),
    "dead values": ("tmp_0 = in_0 * 2\ntmp_1 = tmp_0.shape\ntmp_0 = None\nreturn (in_0 + 1,)", {"in_0": MAT}),
    "same value twice": ("tmp_0 = in_0 * 2\nreturn (tmp_0, tmp_0, in_0)", {"in_0": MAT}),
    "dunder calls": ("return (in_0.__add__(1), in_0.__and__(3), in_0.__eq__(2))", {"in_0": ((3,), "int64")}),
    "window reverse (H.1)": (
        "a = in_0.contiguous().view(-1, 14, 14, 3)\nb = torch.roll(a, shifts=(3, 3), dims=(1, 2))[:, :8, :8, :]\n"
        f"c = in_1 + b.contiguous().view(1, 64, 3)\nreturn (c, {F}.layer_norm(c, (3,), in_2, in_2, 1e-05))",
        {"in_0": ((1, 2, 7, 2, 7, 3), BF16), "in_1": ((1, 64, 3), BF16), "in_2": ((3,), BF16)},
    ),
}


def assert_same(expected: object, found: object) -> None:
    """Values (NaN equal), dtype, shape and strides, through nested results."""
    assert type(expected) is type(found)
    if isinstance(expected, torch.Tensor):
        assert expected.dtype is found.dtype and expected.shape == found.shape
        assert expected.stride() == found.stride() and expected.storage_offset() == found.storage_offset()
        assert torch.equal(torch.nan_to_num(expected), torch.nan_to_num(found))
    elif isinstance(expected, (tuple, list)):
        assert len(expected) == len(found)
        for first, second in zip(expected, found, strict=True):
            assert_same(first, second)
    else:
        assert expected == found


def assert_identity(graph: Graph, inputs: list[torch.Tensor]) -> None:
    ir = rewrite(trace_graph(graph), []).ir
    module = build_module(IRGraph.from_json(json.loads(json.dumps(ir.to_json()))), {}, device="cpu")
    ours, theirs = [value.clone() for value in inputs], [value.clone() for value in inputs]
    with torch.no_grad():
        torch.manual_seed(5)
        expected = load_graph_module(graph, "cpu")(*theirs)
        torch.manual_seed(5)
        assert_same(expected, module(*ours))
    assert_same(theirs, ours)


@pytest.mark.parametrize("name", TRICKY)
def test_the_identity_rewrite_equals_eager(name):
    body, specs = TRICKY[name]
    graph = make_graph(body, **specs)
    assert_identity(graph, draw(graph))


@functools.cache
def _bundled() -> list[Graph]:
    passbench = pytest.importorskip("data.passbench")
    try:
        tasks = passbench.load_tasks("mini")
    except (ValueError, FileNotFoundError):
        pytest.skip("the bundled tasks are not there yet")
    return [graph for task in tasks for graph in task.graphs]


@pytest.mark.slow
def test_the_identity_rewrite_equals_eager_over_every_bundled_graph():
    """One graph of each model.py and dtype: shapes change nothing in a trace."""
    chosen = {}
    for graph in _bundled():
        size = sum(spec.num_elements for spec in graph.specs.values())
        key = (graph.graph_hash, *sorted(spec.dtype for spec in graph.specs.values()))
        if key not in chosen or size < chosen[key][0]:
            chosen[key] = (size, graph)
    assert len(chosen) >= 16
    for _, graph in chosen.values():
        assert_identity(graph, list(draw_inputs(graph, seed=3).values()))


def run(graph: Graph, rules: list[RuleDescription], functions: dict) -> tuple[object, object]:
    """Eager's result and the rewritten module's, on one draw."""
    result = rewrite(trace_graph(graph), rules)
    assert result.num_matches and not result.violations, result.report
    module = build_module(
        IRGraph.from_json(result.ir.to_json()), functions, device="cpu", num_outputs=result.num_outputs
    )
    inputs = draw(graph)
    with torch.no_grad():
        expected = load_graph_module(graph, "cpu")(*[value.clone() for value in inputs])
        return expected, module(*[value.clone() for value in inputs])


ADD_LN = f"tmp_0 = in_2 + in_3\ntmp_1 = {F}.layer_norm(tmp_0, (6,), in_1, in_0, 1e-05)\nreturn (tmp_0, tmp_1)"
ADD_LN_SPECS = {"in_0": ((6,), F32), "in_1": ((6,), F32), "in_2": MAT, "in_3": MAT}
ADD_LN_PATTERN = f"def pattern(b, w, x, r):\n    s = x + r\n    return s, {F}.layer_norm(s, (6,), w, b, 1e-05)"


def add_ln(b, w, x, r):
    s = x + r
    return s, torch.nn.functional.layer_norm(s, (6,), w, b, 1e-05)


def test_two_outputs_and_the_kernel_called_with_what_replacement_args_says():
    seen = []

    def kernel(route, x, r, w, b):
        seen.append(route)
        return add_ln(b, w, x, r)

    rule = make_rule(ADD_LN_PATTERN, args="return ('ln6', x, r, w, b)", name="AddLn")
    assert_same(*run(make_graph(ADD_LN, **ADD_LN_SPECS), [rule], {"AddLn": kernel}))
    assert seen == ["ln6"]


def test_several_rules_with_different_functions_in_manifest_order():
    body = f"""
    tmp_0 = in_0 * 2
    tmp_1 = torch.exp(tmp_0)
    tmp_2 = torch.tanh(tmp_1)
    tmp_3 = {F}.relu(tmp_2)
    return (tmp_3,)
    """
    graph = make_graph(body, in_0=MAT)
    first = make_rule("def pattern(x):\n    return torch.exp(x * 2)", name="First")
    second = make_rule(f"def pattern(x):\n    return {F}.relu(torch.tanh(x))", name="Second")
    greedy = make_rule("def pattern(x):\n    return torch.tanh(torch.exp(x))", name="Greedy")
    functions = {
        "First": lambda x: torch.exp(x * 2),
        "Second": lambda x: torch.relu(torch.tanh(x)),
        "Greedy": lambda x: torch.tanh(torch.exp(x)),
    }
    assert_same(*run(graph, [first, second], functions))
    result = rewrite(trace_graph(graph), [greedy, first, second])
    assert [applied.rule for applied in result.matches] == ["Greedy"], "what is replaced is not matched again"
    assert "First: no match" in result.report and "Second: no match" in result.report
    assert result.report.count("already replaced by an earlier match") == 2
    assert_same(*run(graph, [greedy, first, second], functions))


def test_a_replacement_is_placed_between_its_inputs_and_the_first_use_of_any_output():
    body = f"""
    tmp_0 = in_2 + in_3
    tmp_5 = tmp_0 * 3
    tmp_6 = in_1 * 2
    tmp_1 = {F}.layer_norm(tmp_0, (6,), tmp_6, in_0, 1e-05)
    return (tmp_5, tmp_1)
    """
    rule = make_rule(ADD_LN_PATTERN, name="AddLn")
    expected, found = run(make_graph(body, **ADD_LN_SPECS), [rule], {"AddLn": lambda b, w, x, r: add_ln(b, w, x, r)})
    assert_same(expected, found)


def test_what_is_moved_stays_in_order_with_mutations_of_what_it_reads():
    body = """
    tmp_0 = torch.exp(in_0)
    tmp_1 = in_1 * 2
    tmp_1 += 1
    tmp_2 = tmp_0 + tmp_1
    tmp_1 *= 5
    return (tmp_2, tmp_1)
    """
    graph = make_graph(body, in_0=MAT, in_1=MAT)
    rule = make_rule("def pattern(x, y):\n    return torch.exp(x) + y")
    assert_same(*run(graph, [rule], {"Rule": lambda x, y: torch.exp(x) + y}))


def test_a_match_may_feed_another_match_of_the_same_rule():
    body = "tmp_0 = torch.exp(in_0) * 2\ntmp_1 = torch.exp(tmp_0) * 2\nreturn (tmp_1, tmp_0)"
    rule = make_rule("def pattern(x):\n    return torch.exp(x) * 2")
    expected, found = run(make_graph(body, in_0=MAT), [rule], {"Rule": lambda x: torch.exp(x) * 2})
    assert_same(expected, found)


def test_a_pattern_that_returns_one_value_in_a_tuple():
    graph = make_graph("return (torch.exp(in_0) * 2,)", in_0=MAT)
    rule = make_rule("def pattern(x):\n    return (torch.exp(x) * 2,)")
    for function in (lambda x: torch.exp(x) * 2, lambda x: (torch.exp(x) * 2,), lambda x: [torch.exp(x) * 2]):
        assert_same(*run(graph, [rule], {"Rule": function}))


@pytest.mark.parametrize("result", [lambda x: x, lambda x: (x,), lambda x: (x, x, x)])
def test_a_replacement_with_another_number_of_results_says_so(result):
    rule = make_rule("def pattern(x):\n    a = torch.exp(x)\n    return a, a * 2")
    graph = make_graph("tmp_0 = torch.exp(in_0)\nreturn (tmp_0, tmp_0 * 2)", in_0=MAT)
    with pytest.raises(TypeError, match="the pattern returns 2 values"):
        run(graph, [rule], {"Rule": result})


class _Callable:
    def __call__(self, x):
        return torch.exp(x)


@pytest.mark.parametrize("function", [lambda x: torch.exp(x), functools.partial(torch.exp), _Callable(), torch.exp])
def test_any_callable_can_be_a_replacement(function):
    graph = make_graph("return (torch.exp(in_0),)", in_0=MAT)
    assert_same(*run(graph, [make_rule("def pattern(x):\n    return torch.exp(x)")], {"Rule": function}))


def test_two_rules_may_share_one_function():
    graph = make_graph("tmp_0 = torch.exp(in_0)\nreturn (torch.tanh(tmp_0),)", in_0=MAT)

    def shared(x, route):
        return torch.exp(x) if route == "exp" else torch.tanh(x)

    rules = [
        make_rule("def pattern(x):\n    return torch.exp(x)", args="return (x, 'exp')", name="A"),
        make_rule("def pattern(x):\n    return torch.tanh(x)", args="return (x, 'tanh')", name="B"),
    ]
    assert_same(*run(graph, rules, {"A": shared, "B": shared}))


def test_device_literals_become_the_machines_device():
    graph = make_graph(
        "tmp_0 = torch.arange(3, device=device(type='cuda', index=0))\nreturn (tmp_0.to('cuda:0') + in_0,)",
        in_0=((3,), F32),
    )
    assert_identity(graph, draw(graph))
    module = build_module(rewrite(trace_graph(graph), []).ir, {}, device="meta")
    assert module(torch.empty(3, device="meta")).__class__ is tuple


# structure


def test_the_structure_rule_sees_a_foreign_node():
    graph = trace_graph(make_graph("tmp_0 = torch.exp(in_0)\nreturn (tmp_0,)", in_0=MAT))
    foreign = IRGraph([
        IRNode("in_0", "placeholder", "in_0"),
        IRNode("extra", "call_function", "torch.exp", (Ref("in_0"),)),
        IRNode("output", "output", "output", ((Ref("extra"),),)),
    ])  # fmt: skip
    assert [violation.rule for violation in check_structure(graph, foreign, [])] == ["structure.extra-node"]
    assert not check_structure(graph, graph.ir, [])


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("return (x * 2, y)", "mul(x, 2)"),
        ("return (torch.cat([x, y]),)", "cat([x, y])"),
        ("return (x, y.contiguous())", "y.contiguous()"),
        ("return (x, y, x.shape[0])", "x.shape"),
        ("return (x[0], y)", "getitem(x, 0)"),
        ("x += 1\nreturn (x, y)", "iadd(x, 1)"),
        ("torch.exp(x)\nreturn (x, y)", "exp(x)"),
        ("return (x, y, torch.zeros(3))", "zeros(3)"),
    ],
)
def test_tensor_operations_in_replacement_args_are_violations(args, found):
    rule = make_rule("def pattern(x, y):\n    return torch.exp(x) + y", args=args)
    assert rule.violations and rule.violations[0].rule == "structure.traced-compute"
    assert found in rule.violations[0].message and rule.violations[0].file == "Rule.py" and rule.violations[0].line
    graph = trace_graph(make_graph("return (torch.exp(in_0) + in_1,)", in_0=MAT, in_1=MAT))
    assert rewrite(graph, [rule]).violations == rule.violations


def test_literals_and_nested_arguments_may_be_handed_on():
    rule = make_rule(
        "def pattern(x, y):\n    return torch.exp(x) + y", args="return ([y, x], 1e-5, 'r', torch.float16, (1, None))"
    )
    assert not rule.violations
    graph = make_graph("return (torch.exp(in_0) + in_1,)", in_0=MAT, in_1=MAT)
    assert_same(*run(graph, [rule], {"Rule": lambda pair, *rest: torch.exp(pair[1]) + pair[0]}))


# rules are described in the candidate process


def module_of(source: str) -> types.ModuleType:
    module = types.ModuleType("Bad")
    exec(compile("import torch\n" + source, "Bad.py", "exec"), module.__dict__)
    return module


PATTERN = "def pattern(x):\n    return torch.exp(x)\n"
ARGS = "def replacement_args(x):\n    return (x,)\n"
FUNC = "def kernel(x):\n    return x\ndef replacement_func():\n    return kernel\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ARGS + FUNC, "defines no function pattern"),
        (PATTERN + FUNC, "defines no function replacement_args"),
        (PATTERN + ARGS, "defines no function replacement_func"),
        (PATTERN + ARGS + "def replacement_func():\n    return lambda x: x\n", "another callable at each call"),
        (PATTERN + ARGS + "def replacement_func():\n    return 3\n", "returned int"),
        (PATTERN + ARGS + "def replacement_func():\n    raise RuntimeError('no')\n", "RuntimeError: no"),
        (PATTERN + "def replacement_args(x, y):\n    return (x,)\n" + FUNC, "takes 2 arguments, pattern takes 1"),
        (PATTERN + "def replacement_args(x):\n    return x\n" + FUNC, "return a tuple"),
        (PATTERN + "def replacement_args(x):\n    return (object(),)\n" + FUNC, "object"),
        ("def pattern(x):\n    return x\n" + ARGS + FUNC, "returns its argument x"),
        ("def pattern(x):\n    if x > 0:\n        return x\n    return -x\n" + ARGS + FUNC, r"Bad\.py:3: a condition"),
        ("def pattern(x):\n    return torch.nope(x)\n" + ARGS + FUNC, r"Bad\.py:3: cannot be traced: AttributeError"),
        ("def pattern(x, *, k):\n    return x + k\n" + ARGS + FUNC, "keyword argument"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_used_is_one_line_with_file_and_cure(source, message):
    with pytest.raises(CandidateRuleError, match=message) as caught:
        describe_rule(module_of(source), "Bad")
    assert str(caught.value).startswith("Bad.py") and "\n" not in str(caught.value) and caught.value.stage == "compile"


def test_the_replacement_is_the_callable_of_the_module():
    module = module_of(PATTERN + ARGS + FUNC)
    assert replacement_function(module, "Bad") is module.kernel


@pytest.mark.parametrize(
    "body", ["a, b = args\n    return torch.exp(a) + b", "return torch.exp(args[0]) + args[1]",
             "def f(a, b):\n        return torch.exp(a) + b\n    return f(*args)"],
)  # fmt: skip
def test_star_args_patterns_have_placeholders_and_no_getitem(body):
    source = f"def pattern(*args):\n    {body}\ndef replacement_args(*args):\n    return args\n" + FUNC
    rule = RuleDescription.from_json(describe_rule(module_of(source), "Rule"))
    assert len(rule.pattern.placeholders) == 2 and [node.short_target for node in rule.pattern.calls] == ["exp", "add"]
    graph = make_graph("return (torch.exp(in_0) + in_1,)", in_0=MAT, in_1=MAT)
    assert_same(*run(graph, [rule], {"Rule": lambda x, y: torch.exp(x) + y}))


def test_a_parameter_with_a_default_is_a_literal():
    module = module_of(
        "def pattern(x, eps=2):\n    return torch.exp(x) * eps\n"
        "def replacement_args(x, eps=2):\n    return (x, eps)\n" + FUNC
    )
    rule = RuleDescription.from_json(describe_rule(module, "Rule"))
    assert len(rule.pattern.placeholders) == 1 and rule.replacement_args == (Ref("x"), 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rule", "../evil"), ("rule", ""), ("rule", 3), ("replacement_args", [{"node": "nowhere"}]),
        ("replacement_args", "x"), ("replacement_args", [0] * 1000), ("violations", [{"rule": 1}]),
        ("violations", None),
        ("pattern", {"nodes": []}), ("pattern", None), ("extra", 1),
    ],
)  # fmt: skip
def test_a_description_from_an_untrusted_process_is_validated(key, value):
    data = json.loads(json.dumps(describe_rule(rule_module("def pattern(x):\n    return torch.exp(x)"), "Rule")))
    assert RuleDescription.from_json(data).rule == "Rule"
    with pytest.raises(IRFormatError):
        RuleDescription.from_json(data | {key: value})
