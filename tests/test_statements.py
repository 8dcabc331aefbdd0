"""Programs as text: what is read, what a cut computes, and which cuts a write in place forbids."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from data.construct.cutting import cut, cut_graph, cut_source, explain_cut
from data.construct.extract import measure
from data.construct.metas import ValueRecord, meta_class, read_values
from data.construct.rendering import rename
from data.construct.single_op import single_op_cuts
from data.construct.statements import parse_program
from data.construct.writer import meta_class as writers_meta_class
from data.graph import Graph, MalformedGraphError
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from data.passbench import load_tasks
from data.splits import operator_sequence
from tests.program_helpers import names_of, program_of, run_cut, run_statements, source_of

MINI = [task.graphs[0] for task in load_tasks("mini")]


def upstream_text() -> str:
    return source_of(
        """l_x_ = L_x_
size = l_x_.size(-1)
view = torch.nn.functional.pad(
    l_x_,
    (
        0,
        1,
    ),
    "constant",
    value=0.0,
)
l_x_ = None
hidden = view[(Ellipsis, slice(None, -1, None))]
view = None
hidden += L_dim_
dim = hidden
hidden = L_dim_ = None
dim[0] = 1
setitem = dim
setitem = None
out = torch.softmax(dim.to(device = device(type="cuda", index=0)), dim=-1, dtype=torch.float32)
dim = None
return (out,)""",
        "L_x_: torch.Tensor, L_dim_: torch.Tensor",
    )


def test_upstreams_layout_is_read_and_cut_in_ours() -> None:
    program = parse_program(upstream_text(), "g/model.py")
    assert program.arguments == ("L_x_", "L_dim_")
    assert program.operators == ("size", "pad", "getitem", "add", "setitem", "to+softmax")
    augmented = program.statements[3]
    assert augmented.lines == ("hidden += L_dim_", "dim = hidden")
    assert (augmented.target, augmented.reads, augmented.mutates) == ("dim", ("hidden", "L_dim_"), ("hidden",))
    assert (program.statements[4].target, program.statements[4].mutates) == (None, ("dim",))
    part = cut(program, [1, 2, 3, 4, 5], tensors=names_of(program))
    assert part is not None
    assert cut_source(program, part) == (
        "import torch\n\nfrom torch import device\n\nclass GraphModule(torch.nn.Module):\n\n"
        "    def forward(self, in_0, in_1):\n"
        "        tmp_0 = torch.nn.functional.pad(in_0, (0, 1), 'constant', value = 0.0)\n"
        "        tmp_1 = tmp_0[(..., slice(None, -1, None))]\n"
        "        tmp_0 = None\n"
        "        tmp_1 += in_1\n"
        "        tmp_2 = tmp_1\n"
        "        tmp_1 = None\n"
        "        tmp_2[0] = 1\n"
        "        tmp_4 = torch.softmax(tmp_2.to(device = device(type='cuda', index=0)), dim = -1, "
        "dtype = torch.float32)\n"
        "        tmp_2 = None\n"
        "        return (tmp_4,)"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return (z,)", r"g/model.py:4: 'z', which is neither an argument nor assigned before"),
        ("y = None\nz = x + y\nreturn (z,)", r"g/model.py:5: 'y', which is neither"),
        ("for i in x:\n    pass\nreturn (x,)", r"g/model.py:4: a For statement is no part of a graph; leave the graph"),
        ("z = (lambda: 1)()\nreturn (z,)", r"Lambda '\(?lambda: 1\)?'"),
        ("z = x + y", "forward returns nothing"),
        ("z = x <", "g/model.py:4: not Python"),
        ("x.data = y\nreturn (x,)", "assignment to 'x.data'"),
        ("z = x << y\nreturn (z,)", "g/model.py:4: LShift is no tensor operator; leave the graph out$"),
        ("z = torch.add(*x)\nreturn (z,)", "Starred"),
        ("z = torch.add(**x)\nreturn (z,)", r"\*\* in a call"),
    ],
)
def test_a_malformed_program_is_refused_with_its_line(body: str, reason: str) -> None:
    with pytest.raises(MalformedGraphError, match=reason):
        program_of(body)


def test_names_that_are_assigned_twice_and_tuples_that_are_unpacked() -> None:
    program = program_of("a, b = x.chunk(2)\nx = a + b\nx = x * x\nx_2 = x - 1\nreturn (x, [x_2, 3], x + 1)")
    assert [statement.lines for statement in program.statements] == [
        ("unpacked = x.chunk(2)",),
        ("a = unpacked[0]",),
        ("b = unpacked[1]",),
        ("x_3 = a + b",),
        ("x_4 = x_3 * x_3",),
        ("x_2 = x_4 - 1",),
        ("returned = x_4 + 1",),
    ]
    assert program.returns == ("x_4", "x_2", "returned")


def test_values_are_renamed_and_nothing_else() -> None:
    line = "dim = x.dim(x, dim = dim, eq = 'x -> dim')[1e-05:x] == dim.x"
    assert rename(line, {"x": "in_0", "dim": "tmp_1"}) == (
        "tmp_1 = in_0.dim(in_0, dim = tmp_1, eq = 'x -> dim')[1e-05:in_0] == tmp_1.x"
    )


@pytest.mark.parametrize("graph", MINI, ids=lambda graph: graph.name.rpartition("/")[2])
def test_a_bundled_graph_cut_whole_and_in_pieces_computes_the_same(graph: Graph) -> None:
    program = parse_program(graph.model_source, graph.name)
    assert tuple(name for name in program.operators if name) == operator_sequence(graph)
    values: dict[str, Any] = dict(draw_inputs(graph, seed=3))
    inputs = {name: value.clone() for name, value in values.items()}
    with torch.no_grad():
        run_statements(program, range(len(program.statements)), values)
        expected = load_graph_module(graph, "cpu")(**{name: value.clone() for name, value in inputs.items()})
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        records = {name: ValueRecord.model_validate(vars(measure(value))) for name, value in tensors.items()}
        end = len(program.statements)
        for size in {1, 2, 3, end}:
            found: dict[str, Any] = {name: value.clone() for name, value in inputs.items()}
            for start in range(0, end, size):
                indices = range(start, min(start + size, end))
                part = cut(program, indices, tensors=tensors, inputs_may_change=True)
                if part is None:
                    run_statements(program, indices, found)
                    continue
                piece = cut_graph(program, part, records, "piece", net={"model_name": "piece"}, specs=graph.specs)
                assert piece.files["graph_hash.txt"] == piece.graph_hash
                again = parse_program(piece.model_source, "piece")
                first = again.arguments[: sum(name in program.arguments for name in part.inputs)]
                whole = cut(
                    again, range(len(again.statements)),
                    tensors=names_of(again), parameters=first, inputs_may_change=True,
                )  # fmt: skip
                assert whole is not None
                assert cut_source(again, whole) == piece.model_source
                run_cut(program, part, found, load_graph_module(piece, "cpu"))
            for name, value in zip(program.returns, expected, strict=True):
                assert torch.equal(found[name], value)


def test_inputs_of_a_cut_are_described_by_what_they_were() -> None:
    body = "e = torch.nn.functional.embedding(ids, table, None)\nh = e * scale\nz = h + e\nreturn (z,)"
    program = program_of(body, "ids, scale, table")
    values = read_values(
        '{"ids": {"shape": [2], "dtype": "torch.int64", "mean": null, "std": null, "min_val": 2, "max_val": 3},'
        ' "table": {"shape": [9, 4], "dtype": "torch.float16", "mean": 0.5, "std": NaN, "min_val": null,'
        ' "max_val": null}, "scale": {"shape": [], "dtype": "torch.float16"},'
        ' "e": {"shape": [2, 4], "dtype": "torch.float16"}, "z": {"shape": [2, 4], "dtype": "torch.float16"},'
        ' "h": {"shape": [2, 4], "dtype": "torch.float16"}}',
        "values.json",
    )
    part = cut(program, [0, 1, 2], tensors=values, parameters={"table", "scale"})
    assert part is not None
    assert part.inputs == ("table", "scale", "ids")
    graph = cut_graph(program, part, values, "g", net={"model_name": "m", "kind": "fusible"})
    assert (graph.specs["in_2"].min_val, graph.specs["in_2"].max_val) == (0, 8)  # any row, not only those seen
    assert graph.specs["in_0"].original_name == "table"
    assert graph.net["kind"] == "fusible"
    assert draw_inputs(graph, seed=0)["in_2"].shape == (2,)
    stats = measure(torch.tensor([1.0, float("inf")]))
    ours = meta_class("in_0", "e", ValueRecord.model_validate(vars(stats)), [1, float("nan")])
    assert ours == writers_meta_class("in_0", "e", stats, [1, float("nan")])
    with pytest.raises(MalformedGraphError, match=r"values.json: e/shape: .*; extract the model again"):
        read_values('{"e": {"dtype": "torch.float16"}}', "values.json")


NORM = "torch.nn.functional.batch_norm(x, m, n, None, None, {training}, 0.1, 1e-05)"


@pytest.mark.parametrize(
    ("body", "indices", "reason"),
    [
        # written in place inside, seen outside
        ("a = x + 1\nb = a.relu_()\nc = a * 2\nreturn (b, c)", [1], "'b = a.relu_()' writes its input a in place"),
        ("a = x + 1\nv = a.view(-1)\nb = a.relu_()\nreturn (b, v)", [0, 2], "v = a.view(-1)' lies between"),
        ("a = x + 1\nv = a.view(-1)\na[0] = y\nb = a + v\nreturn (b,)", [2], "writes its input a in place"),
        ("a = x + 1\nv = a.T\nb = a.relu_()\nc = v + b\nreturn (c,)", [2, 3], "that its inputs a and v may share"),
        ("v = x.T\nx += y\nz = x\nw = v + z\nreturn (w,)", [0], "'x += y' outside writes storage that"),
        ("a = x + 1\nv = a[0]\na.mul_(y)\nreturn (v, a)", [0, 1], "'a.mul_(y)' outside writes storage that v, used"),
        ("a = torch.relu(x, inplace = True)\nreturn (a,)", [0], "writes its input x in place"),
        ("a = torch.nn.functional.elu(x, 1.0, True)\nreturn (a,)", [0], "writes its input x in place"),
        ("a = torch.add(x, 1, out = y)\nreturn (a,)", [0], "writes its input y in place"),
        ("a = torch.ops.aten.add_.Tensor(x, 1)\nreturn (a,)", [0], "writes its input x in place"),
        ("a = x + 1\na.view(-1)[0] = 1\nreturn (a,)", [1], "'a.view(-1)[0] = 1' writes its input a in place"),
        (f"z = {NORM.format(training='True')}\nreturn (z,)", [0], "writes its input m in place"),
        # order and modes
        ("a = x + 1\nb = a * 2\nc = a - b\nreturn (c,)", [0, 2], "not convex: 'b = a * 2' lies between"),
        ("a = x + 1\nx.mul_(2)\nb = x + a\nreturn (b,)", [0, 2], "not convex: 'x.mul_(2)' lies between"),
        (
            "m = torch.amp.autocast_mode._enter_autocast('cuda', None, True, None)\na = x @ y\n"
            "e = torch.amp.autocast_mode._exit_autocast(m)\nreturn (a,)",
            [1],
            "lies partly under",
        ),
        # what goes in and out
        ("s = x.size(0)\nv = y.view(s, -1)\nreturn (v,)", [1], "its input s is no tensor"),
        ("s = x.size(0)\nv = y.view(s, -1)\nreturn (v,)", [0], "its output s is no tensor"),
        ("a = x + 1\nb = x + 2\nreturn (b,)", [0], "nothing that it makes is used"),
        ("torch._check(True)\nreturn (x,)", [0], "no statement that computes something"),
    ],
)
def test_a_cut_that_cannot_stand_alone_says_why(body: str, indices: list[int], reason: str) -> None:
    program = program_of(body, "x, y, m, n")
    tensors = names_of(program) - {"s"}
    assert cut(program, indices, tensors=tensors) is None
    assert reason in (explain_cut(program, indices, tensors=tensors) or "")


@pytest.mark.parametrize(
    ("body", "indices", "inputs", "outputs"),
    [
        # an activation in place on what the cut itself made, as in residual networks
        (
            "a = torch.conv2d(x, y)\nb = torch.nn.functional.relu(a, inplace = True)\nc = b * 2\nreturn (c,)",
            [0, 1], "x y", "b",
        ),
        ("a = torch.conv2d(x, y)\nb = torch.nn.functional.relu(a, inplace = True)\nreturn (b,)", [0], "x y", "a"),
        (f"z = {NORM.format(training='False')}\nreturn (z,)", [0], "x m n", "z"),
        ("a = x + 1\na += y\nb = a\nc = b + x\nreturn (c,)", [1, 2], "y x a", "c"),
        # sizes are no content: they may be asked for after the write
        ("a = x + 1\nb = a.relu_()\ns = a.size(0)\nreturn (b, s)", [0, 1], "x", "a b"),
        # apart, and one is not between the others
        ("a = x + 1\nb = y * 2\nc = a.exp()\nreturn (b, c)", [0, 2], "x", "c"),
        # an autocast that is off changes nothing, nor does a usage log
        (
            "m = torch.amp.autocast_mode._enter_autocast('cpu', None, False, None)\na = x @ y\n"
            "e = torch.amp.autocast_mode._exit_autocast(m)\ntorch._C._log_api_usage_once('a')\nb = a + 1\nreturn (b,)",
            [1, 2, 3, 4], "x y", "b",
        ),
    ],
)  # fmt: skip
def test_a_cut_that_can_stand_alone(body: str, indices: list[int], inputs: str, outputs: str) -> None:
    program = program_of(body, "x, y, m, n")
    found = cut(program, indices, tensors=names_of(program), inputs_may_change=True)
    assert found is not None, explain_cut(program, indices, tensors=names_of(program), inputs_may_change=True)
    assert (" ".join(found.inputs), " ".join(found.outputs)) == (inputs, outputs)


SINGLE = """a = torch.nn.functional.layer_norm(x, (4,), y, None, 1e-05)
b = a.view(-1)
c = b + 1
d = c.to(torch.float16)
e = torch.zeros(4)
f = e + b
g = f + 2
h = g + 1
i = torch.nn.functional.layer_norm(h, (4,), e, None, 1e-05)
s = x.size(0)
j = torch.nn.functional.relu(h, inplace = True)
k = torch.nn.functional.dropout(j, 0.1, False)
l = h.softmax(-1) * c
return (a, d, i, j, k, l)"""


def test_single_operators_once_an_argument_pattern() -> None:
    program = program_of(SINGLE)
    cuts = single_op_cuts(program, names_of(program) - {"s"})
    assert [found.indices for found in cuts] == [(0,), (2,), (5,), (6,)]
