"""Tracing keeps what a function does: what plain FX tracing changes or refuses is a node here."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from eval_harness.graph_ir import IRGraph
from eval_harness.tracing import UNKNOWN, TensorMeta, TraceError, trace_callable, trace_graph
from tests.graph_helpers import F32, make_graph, traced


def lines(function, *names) -> list[str]:
    return [str(node) for node in trace_callable(function, names).calls]


def test_nodes_are_named_after_the_source_and_know_their_line():
    def pattern(in_0, in_1):
        tmp_0 = in_0 + in_1
        tmp_1 = F.softmax(tmp_0, -1).transpose(0, 1)
        return tmp_1

    ir = trace_callable(pattern, ["in_0", "in_1"])
    assert [node.name for node in ir.calls] == ["tmp_0", "softmax", "tmp_1"]
    first = pattern.__code__.co_firstlineno
    assert [node.where.rpartition(":")[2] for node in ir.calls] == [str(first + 1), str(first + 2), str(first + 2)]


def test_in_place_operators_stay_in_place():
    def pattern(a, b):
        a += b
        a *= 2
        a -= b
        a /= 3
        return a

    assert [node.target for node in trace_callable(pattern, ["a", "b"]).calls] == [
        "_operator.iadd", "_operator.imul", "_operator.isub", "_operator.itruediv",
    ]  # fmt: skip


def test_setitem_is_a_node():
    def pattern(x, y):
        x[0] = y
        x[..., 1:3, None] = 2.0
        return x

    assert lines(pattern, "x", "y") == [
        "setitem = setitem(x, 0, y)",
        "setitem_1 = setitem(x, (Ellipsis, slice(1, 3, None), None), 2.0)",
    ]


def test_unpacking_a_shape():
    def pattern(x):
        a, b = x.shape
        (c, d, e) = x.size()
        return x.view(a * b, c, d, e)

    assert lines(pattern, "x")[:3] == [
        "shape = x.shape",
        "getitem = getitem(shape, 0)",
        "getitem_1 = getitem(shape, 1)",
    ]


def test_factories_are_nodes_and_not_constants():
    def pattern(x):
        n = x.size(0)
        a = torch.arange(8, device=torch.device(type="cuda", index=0))
        b = torch.zeros(n, 4) + torch.zeros((n, 4)) + torch.full((2,), float("-inf"))
        c = torch.tensor([1.0, 2.0])
        d = torch.ones(2, 3, dtype=torch.float16)
        return a, b, c, d, x.new_zeros(n, 2)

    text = "\n".join(lines(pattern, "x"))
    for expected in (
        "a = arange(8, device=device(type='cuda', index=0))", "zeros(n, 4)", "zeros((n, 4))", "full((2,), -inf)",
        "c = tensor([1.0, 2.0])", "d = ones(2, 3, dtype=torch.float16)", "x.new_zeros(n, 2)",
    ):  # fmt: skip
        assert expected in text
    assert torch.zeros.__name__ == "zeros" and isinstance(torch.zeros(2), torch.Tensor), "torch is left as it was"


def test_c_functions_methods_attributes_and_reflected_operators():
    def pattern(x, w):
        y = F.gelu(F.conv2d(x, w, None, (1, 1)), approximate="tanh")
        z = torch.cat([y, x], 1).mT
        return (1 - z) @ w.T, -z, ~(x > 0), 2**z, torch.ops.aten.relu(z), torch.einsum("ij,jk->ik", x, w)

    targets = [node.target for node in trace_callable(pattern, ["x", "w"]).calls]
    assert targets == [
        "torch.conv2d", "torch.nn.functional.gelu", "torch.cat", "mT", "_operator.sub", "T", "_operator.matmul",
        "_operator.neg", "_operator.gt", "_operator.invert", "_operator.pow", "torch.ops.aten.relu", "torch.einsum",
    ]  # fmt: skip


def test_attribute_of_a_result_tuple_and_method_of_the_same_name():
    def pattern(x):
        return torch.max(x, 1).values, x.sort(-1).indices

    targets = [(node.op, node.target) for node in trace_callable(pattern, ["x"]).calls]
    assert ("getattr", "values") in targets and ("getattr", "indices") in targets


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, "condition on a traced value"),
        (lambda x: [item for item in x], "iterates over a traced value"),  # noqa: C416
        (lambda x: x.view(int(x.size(0))), "needs the value"),
        (lambda x: x.numpy(), "numpy of a tensor"),
        (lambda x: x.no_such_method(), "no_such_method"),
        (lambda x: x + torch.nn.Parameter(torch.ones(2)), "cannot be part of a graph|cannot be traced"),
        (lambda x: len(x), "needs the value"),
        (lambda x: x.undefined.y + missing_name, "missing_name"),  # noqa: F821
        (lambda x: f"{x:.3f}", "needs the value"),
    ],
)
def test_what_has_no_graph_is_one_line_that_names_file_and_line(function, message):
    with pytest.raises(TraceError, match=message) as caught:
        trace_callable(function, ["x"])
    assert "test_tracing.py:" in str(caught.value) and "\n" not in str(caught.value)


def test_a_tensor_constant_is_refused():
    constant = torch.ones(3)
    with pytest.raises(TraceError, match="Tensor"):
        trace_callable(lambda x: x + constant, ["x"])


def test_metadata_of_every_node():
    found = traced(
        """
        tmp_0 = in_0 + in_1
        tmp_1 = tmp_0.transpose(0, 1)
        tmp_2 = tmp_1.contiguous()
        tmp_3 = tmp_2.shape
        tmp_4 = tmp_2.size(0)
        tmp_5 = torch.max(tmp_2, 1)
        tmp_6 = tmp_5[0]
        return (tmp_2, tmp_6)
        """,
        in_0=((3, 4), "bfloat16"), in_1=((4,), F32),
    )  # fmt: skip
    first, view, copied = (found.values[name] for name in ("tmp_0", "tmp_1", "tmp_2"))
    assert isinstance(first, TensorMeta) and first.dtype is torch.float32 and first.shape == (3, 4)
    assert view.shape == (4, 3) and view.stride == (1, 4) and view.storage == first.storage
    assert copied.stride == (3, 1) and copied.storage != first.storage
    assert found.values["tmp_3"] == (4, 3) and found.values["tmp_4"] == 4
    assert found.values["tmp_6"].shape == (4,) and found.storages["tmp_6"] <= found.storages["tmp_5"]


@pytest.mark.parametrize(
    "statement",
    [
        "in_0 += in_1",
        "in_0[0] = in_1",
        "in_0.add_(in_1)",
        "tmp_1 = torch.nn.functional.relu(in_0, inplace=True)",
        "tmp_1 = in_0.view(-1).mul_(2)",
    ],
)
def test_writes_are_seen_through_views(statement):
    body = f"tmp_0 = in_0.reshape(4, 3)\n{statement}\nreturn (tmp_0,)"
    found = traced(body, in_0=((3, 4), F32), in_1=((4,), F32))
    writers = [name for name, written in found.writes.items() if written & found.storages["tmp_0"]]
    assert len(writers) == 1 and found.storages["in_0"] == found.storages["tmp_0"]


def test_batch_norm_in_training_writes_its_statistics():
    found = traced(
        "tmp_0 = torch.nn.functional.batch_norm(in_0, in_1, in_2, None, None, True, 0.1, 1e-05)\nreturn (tmp_0,)",
        in_0=((2, 3, 4, 4), F32), in_1=((3,), F32), in_2=((3,), F32),
    )  # fmt: skip
    assert found.writes["tmp_0"] >= found.storages["in_1"] | found.storages["in_2"]


def test_a_result_whose_shape_depends_on_data_is_unknown_and_suspected_of_aliasing():
    found = traced("tmp_0 = in_0[in_1]\ntmp_1 = tmp_0 * 2\nreturn (tmp_1,)", in_0=((4,), F32), in_1=((4,), "bool"))
    assert found.values["tmp_0"] is UNKNOWN and found.values["tmp_1"] is UNKNOWN
    assert found.storages["tmp_0"] > found.storages["in_0"]


def test_graph_errors_name_the_graph_file():
    graph = make_graph("tmp_0 = in_0.relu_() if in_0 else in_0\nreturn (tmp_0,)", in_0=((2,), F32))
    with pytest.raises(ValueError, match=r"graph/model\.py"):
        trace_graph(graph)


def test_a_method_on_a_module_is_traced_too():
    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    assert isinstance(trace_callable(Module().forward, ["x"]), IRGraph)
