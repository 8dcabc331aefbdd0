"""The IR as data: exact JSON round trips, and refusal of whatever an untrusted process could send instead."""

from __future__ import annotations

import contextlib
import copy
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data import allowed_calls
from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode, Ref
from eval_harness.graph_targets import is_attribute_name, is_method_name, is_target_name, resolve_target, target_name
from eval_harness.graph_values import MAX_DEPTH, decode_value, encode_value, iter_refs, map_refs

_NAMES = st.sampled_from(["in_0", "in_1", "tmp_7"])
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True, allow_infinity=True),
    st.complex_numbers(),
    st.text(max_size=20),
    st.just(Ellipsis),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]),
    st.sampled_from([torch.device("cpu"), torch.device("cuda"), torch.device("cuda:1")]),
    st.sampled_from([torch.contiguous_format, torch.channels_last, torch.preserve_format, torch.strided]),
    st.sampled_from([int, float, bool, complex]),
    st.lists(st.integers(0, 9), max_size=4).map(torch.Size),
    _NAMES.map(Ref),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.tuples(inner, inner, inner).map(lambda parts: slice(*parts)),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=12,
)


def same(first: object, second: object) -> bool:
    """Equality that tells 1 from True and 1.0, a list from a tuple, and that NaN passes."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return repr(first) == repr(second)
    if isinstance(first, complex):
        return repr(first) == repr(second)
    if isinstance(first, (list, tuple)) and not isinstance(first, torch.Size):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, slice):
        return same((first.start, first.stop, first.step), (second.start, second.stop, second.step))
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    return first == second


@settings(deadline=None, max_examples=60)
@given(_VALUES)
def test_values_survive_json_with_their_types(value):
    assert same(decode_value(json.loads(json.dumps(encode_value(value)))), value)


@settings(deadline=None, max_examples=60)
@given(st.lists(_VALUES, max_size=4), st.dictionaries(st.sampled_from(["dim", "eps", "dtype"]), _VALUES))
def test_graphs_survive_json(args, kwargs):
    nodes = [IRNode(name, "placeholder", name) for name in ("in_0", "in_1", "tmp_7")]
    nodes.append(IRNode("call", "call_function", "torch.relu", tuple(args), kwargs, "model.py:3"))
    nodes.append(IRNode("output", "output", "output", ((Ref("call"), Ref("in_0")),)))
    graph = IRGraph(nodes)
    data = json.loads(json.dumps(graph.to_json(), allow_nan=False))
    back = IRGraph.from_json(data)
    for before, after in zip(graph.nodes, back.nodes, strict=True):
        assert same(before.args, after.args) and same(dict(before.kwargs), dict(after.kwargs))
    assert [(n.name, n.op, n.target, n.where) for n in graph.nodes] == [
        (n.name, n.op, n.target, n.where) for n in back.nodes
    ]


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["node", "slice", "dtype", "tuple", "x"]), inner, max_size=2)
        ),
        max_leaves=8,
    )
)
def test_arbitrary_json_is_decoded_or_refused_never_worse(data):
    with contextlib.suppress(IRFormatError):
        decode_value(data)
    with pytest.raises(IRFormatError):
        IRGraph.from_json({"nodes": [data]})


def valid() -> dict:
    return {
        "nodes": [
            {"name": "x", "op": "placeholder", "target": "x"},
            {"name": "y", "op": "call_function", "target": "torch.relu", "args": [{"node": "x"}]},
            {"name": "output", "op": "output", "target": "output", "args": [{"node": "y"}]},
        ]
    }


def test_the_valid_example_is_valid():
    assert str(IRGraph.from_json(valid())) == "x\ny = relu(x)\noutput = output(y)"


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        (1, "target", "os.system", "not an accepted target"),
        (1, "target", "torch.save", "not an accepted target"),
        (1, "target", "torch.ops.aten.from_file", "not an accepted target"),
        (1, "target", "torch.nn.functional.torch", "not an accepted target"),
        (1, "target", "_operator.attrgetter", "not an accepted target"),
        (1, "target", "replacement:../x", "not an accepted target"),
        (1, "op", "call_method", "not an accepted target"),  # torch.relu is no method
        (1, "op", "import", "bad name or op"),
        (1, "args", [{"node": "y"}], "no earlier node"),
        (1, "args", [{"node": "later"}], "no earlier node"),
        (1, "args", [{"eval": "1"}], "not an encoded value"),
        (1, "args", [{"dtype": "load"}], "unknown name"),
        (1, "args", [{"device": "../dev"}], "not a device"),
        (1, "args", [2**70], "64 bits"),
        (1, "args", ["s" * 20_000], "characters"),
        (1, "args", [[0] * 200_000], "at most"),
        (1, "args", {"0": 1}, "args must be a list"),
        (1, "kwargs", {"a b": 1}, "identifier"),
        (1, "name", "x", "used twice"),
        (1, "name", "x\n", "bad name"),
        (1, "name", "x" * 200, "bad name"),
        (1, "name", "__import__('os')", "bad name"),
        (2, "args", [], "one output"),
        (0, "args", [1], "placeholders"),
        (1, "extra", 1, "expected an object"),
    ],
)
def test_what_is_not_a_graph_is_refused(where, key, value, message):
    data = copy.deepcopy(valid())
    data["nodes"][where][key] = value
    with pytest.raises(IRFormatError, match=message):
        IRGraph.from_json(data)


def test_methods_that_reach_outside_are_refused():
    for name in ("numpy", "tolist", "data_ptr", "__reduce__", "__class__", "_base", "register_hook", "share_memory_"):
        assert not is_method_name(name) and not is_attribute_name(name)
    assert is_method_name("view") and is_method_name("add_") and is_attribute_name("shape") and is_attribute_name("T")
    assert not is_attribute_name("view") and not is_attribute_name("grad_fn_")


def test_nesting_is_capped_on_both_ways():
    data: object = 1
    value: object = 1
    for _ in range(MAX_DEPTH + 2):
        data, value = [data], [value]
    with pytest.raises(IRFormatError, match="nested"):
        decode_value(data)
    with pytest.raises(IRFormatError, match="nested"):
        encode_value(value)


def test_a_tensor_has_no_place_in_a_graph():
    with pytest.raises(IRFormatError, match="Tensor"):
        encode_value([torch.ones(2)])


@pytest.mark.parametrize(
    "function",
    [
        torch.relu, torch.nn.functional.softmax, torch.nn.functional.gelu, torch.conv2d, torch.cat, torch.arange,
        torch.tensor, torch.einsum, torch._C._nn.linear, torch._C._fft.fft_rfft, torch._weight_norm, math.sqrt,
        torch.ops.aten.index, torch.ops.aten.index.Tensor, torch.nn.functional.max_pool2d,
        torch.nn.functional.interpolate,
    ],
)  # fmt: skip
def test_a_function_and_its_name(function):
    name = target_name(function)
    assert name is not None and is_target_name(name) and resolve_target(name) is function


def test_every_function_that_a_graph_may_call_has_a_name():
    """data.allowed_calls lets a graph in; what cannot be traced would be refused only in an evaluation."""
    # conditions on shapes and types, and vmap internals: no tensor computation
    not_traced = {
        "_assert",
        "_check",
        "_check_index",
        "_check_is_size",
        "_check_value",
        "broadcast_shapes",
        "is_tensor",
    }
    for module in (torch, torch.nn.functional, torch.functional, torch._C._nn):
        for name in allowed_calls.FUNCTIONS[module.__name__] - not_traced:
            function = getattr(module, name, None)
            if function is not None and not isinstance(function, type):
                assert target_name(function) is not None, f"{module.__name__}.{name}"
    for name in allowed_calls.METHODS:
        if callable(getattr(torch.Tensor, name, None)):
            assert is_method_name(name), name
    assert all(is_attribute_name(name) for name in allowed_calls.TENSOR_ATTRIBUTES)


def test_refs_are_found_and_replaced_in_every_container():
    value = (Ref("a"), [1, Ref("b")], slice(None, Ref("c"), 2), {"k": Ref("d")}, torch.Size([2]))
    assert list(iter_refs(value)) == ["a", "b", "c", "d"]
    swapped = map_refs(value, lambda ref: ref.name.upper())
    assert swapped == ("A", [1, "B"], slice(None, "C", 2), {"k": "D"}, torch.Size([2]))
    assert isinstance(swapped[4], torch.Size)
