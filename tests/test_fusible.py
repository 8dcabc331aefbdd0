"""Prefix analysis: K counts what Inductor would launch, and the ranges are those of the curve measured in full."""

from __future__ import annotations

import copy
import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode

from data.construct import fusible
from data.construct.extract import capture
from data.construct.full_graph import full_graph
from data.construct.fusible import FusibleReport, analyse, bisected, plateaus
from data.construct.kernel_count import KernelCounter, KernelCountError, scheduled_kernels
from data.construct.pictures_curve import prefix_curve_svg
from data.construct.statements import parse_program
from data.construct.zoo import build_model
from data.graph import Graph, MalformedGraphError
from data.model_check import load_graph_module
from data.passbench import load_task
from tests.graph_helpers import BF16, F32, draw, make_graph

PICTURE = Path(__file__).parents[1] / "docs/pictures/prefix_curve_resnet18.svg"
SQUARE = ((96, 96), F32)
"""Large enough that Inductor unrolls no reduction over it."""
INT64 = "int64"


def kernels(body: str, **specs: Any) -> list[int]:
    """K(1) to K(n), each measured."""
    graph = make_graph(body, **specs)
    program = parse_program(graph.model_source, "graph")
    counter = KernelCounter(graph, program)
    return [counter.count(0, stop) for stop in range(1, len(program.statements) + 1)]


def captured_model(name: str) -> Graph:
    example = build_model(name, "small", torch.float32)
    return full_graph(capture(example.module, example.args, example.kwargs)[0], name, model_name=name).graph


def operators(graph: Graph, report: FusibleReport) -> list[str]:
    names = parse_program(graph.model_source, graph.name).operators
    return [" ".join(names[start:stop]) for start, stop in report.ranges]


# --- K ---


def test_pointwise_operators_share_a_kernel_and_library_calls_do_not() -> None:
    body = """
        a = x + y
        b = a.relu()
        c = torch.matmul(b, w)
        d = c.t()
        e = torch.nn.functional.gelu(c)
        f = torch.nn.functional.softmax(e, -1)
        return (f, d)
    """
    assert kernels(body, x=SQUARE, y=SQUARE, w=SQUARE) == [1, 1, 2, 2, 3, 3]


def test_views_sizes_and_dropout_that_is_off_launch_nothing() -> None:
    body = """
        a = x.view(48, 192)
        b = a.size(0)
        c = torch.nn.functional.dropout(a, 0.1, False, False)
        d = c.transpose(0, 1)
        e = d.contiguous()
        return (e, b)
    """
    assert kernels(body, x=SQUARE) == [0, 0, 0, 0, 1]


def test_a_value_that_is_read_later_is_kept_and_one_that_is_dead_is_not() -> None:
    body = """
        a = x + 1
        b = x.sum()
        c = a * 2
        d = torch.matmul(c, a)
        return (d, b)
    """
    # the sum over all is a kernel of its own beside the elementwise one
    curve = kernels(body, x=SQUARE)
    assert curve[0] == 1 and curve[2] == curve[1] and curve[3] == curve[2] + 1
    unread = "a = x + 1\nb = torch.matmul(x, x)\nc = x * 2\nreturn (c,)"
    assert kernels(unread, x=SQUARE) == [1, 1, 1]  # each value counts while it is the last one, and not after


def test_writes_in_place_are_values_of_their_own() -> None:
    body = """
        a = x * 2
        a += y
        b = a
        a[0] = y[1]
        c = a.relu_()
        d = torch.matmul(c, b)
        return (d,)
    """
    assert kernels(body, x=SQUARE, y=SQUARE) == [1, 1, 1, 1, 2]
    # what a write replaced is not kept: after the third statement x * 2 is gone
    replaced = "a = x * 2\nb = torch.matmul(x, y)\nc = a.copy_(b)\nd = torch.matmul(a, c)\nreturn (d,)"
    assert kernels(replaced, x=SQUARE, y=SQUARE) == [1, 2, 1, 2]
    # an argument that was written is seen by the caller, though nobody reads it here
    assert kernels("x.add_(1)\na = y.exp()\nreturn (a,)", x=SQUARE, y=((3, 5), F32)) == [1, 2]


def test_captured_devices_constants_and_half_types() -> None:
    body = """
        a = torch.arange(4, device = device(type='cuda', index=0))
        b = torch.tensor([1.0, 2.0, 4.0, 8.0], device = device(type='cuda', index=0))
        c = x * b
        d = c.to(torch.bfloat16) + a
        return (d,)
    """
    curve = kernels(body, x=((96, 4), BF16))
    assert curve[0] == 1 and curve[-1] == 1


def by_aot_autograd(graph: Graph) -> int:
    """Kernels of the graph that AOTAutograd itself makes of the loaded module: what torch.compile would lower."""
    counted: list[int] = []

    def count(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        runnable = copy.deepcopy(module)
        fake_mode = next(fake.fake_mode for fake in inputs if hasattr(fake, "fake_mode"))
        assert isinstance(fake_mode, FakeTensorMode)
        counted.append(scheduled_kernels(module, fake_mode))
        return runnable

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=count, inference_compiler=count, decompositions=select_decomp_table())
    with torch.no_grad():
        torch.compile(load_graph_module(graph), backend=backend, dynamic=False)(*draw(graph))
    (only,) = counted
    return only


@pytest.mark.parametrize(
    "task",
    [
        "llama_rotary_embedding",
        "resnet_bn_residual_relu",
        "sentence_masked_mean_pooling",
    ],
)
def test_the_count_is_that_of_autograds_own_graph(task: str) -> None:
    graph = load_task(f"mini/{task}").graphs[-1]
    program = parse_program(graph.model_source, task)
    assert KernelCounter(graph, program).count(0, len(program.statements)) == by_aot_autograd(graph)


def test_equal_stretches_are_counted_once() -> None:
    layer = "{b} = torch.matmul({a}, w)\n{c} = {b} + 1\n{d} = {c}.relu()\n"
    one = layer.format(a="x", b="b0", c="c0", d="d0")
    three = "".join(layer.format(a=f"d{i - 1}" if i else "x", b=f"b{i}", c=f"c{i}", d=f"d{i}") for i in range(3))
    first = analyse(make_graph(one + "return (d0,)", x=SQUARE, w=SQUARE))
    repeated = analyse(make_graph(three + "return (d2,)", x=SQUARE, w=SQUARE))
    assert first.ranges == ((1, 3),)
    assert repeated.ranges == ((1, 3), (4, 6), (7, 9))
    assert repeated.kernels == (1, 2, 2, 3, 4, 4, 5, 6, 6)
    assert repeated.num_compiles == first.num_compiles


# --- from the curve to ranges ---


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0, 1, 1, 2, 2, 2], [(0, 2), (2, 5)]),
        ([0, 0, 0, 1, 2], [(2, 3), (3, 4)]),  # views at the start launch nothing
        ([0, 5, 6, 5, 7], [(0, 3), (3, 4)]),  # cut between two halves of one kernel
        ([0, 1, 3, 2, 2, 3], [(0, 1), (1, 4), (4, 5)]),
        ([0], []),
    ],
)
def test_plateaus(curve: list[int], expected: list[tuple[int, int]]) -> None:
    assert plateaus(curve) == expected


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_curve_that_never_falls_is_bisected_exactly_and_for_less(steps: list[int]) -> None:
    curve = list(itertools.accumulate(steps, initial=0))
    asked: set[int] = set()

    def measure(position: int) -> int:
        asked.add(position)
        return curve[position]

    assert bisected(measure, 0, len(steps)) == curve
    num_rises = len(set(curve)) - 1
    assert len(asked) <= 3 + 2 * num_rises * max(1, len(steps)).bit_length()


@given(st.lists(st.integers(0, 9), max_size=40))
def test_plateaus_cover_all_that_launches_in_order_and_end_no_higher_than_they_begin(kernels_after: list[int]) -> None:
    curve = [0, *kernels_after]
    found = plateaus(curve)
    covered = [index for start, stop in found for index in range(start, stop)]
    assert covered == sorted(set(covered))
    # what is left out is at the front, and nothing of it is launched in the end
    assert covered == list(range(len(kernels_after) - len(covered), len(kernels_after)))
    assert all(curve[stop] <= curve[start + 1] for start, stop in found)


def test_a_range_holds_alone() -> None:
    # the last statement merges with the kernel of the mask, so K is no higher after it than after the matmul;
    # but no kernel holds both
    body = """
        mask = torch.where(keep > 0, 0.0, -1e4)
        scores = torch.matmul(q, k)
        scaled = scores * 0.5
        masked = scaled + mask
        return (masked,)
    """
    graph = make_graph(body, keep=SQUARE, q=SQUARE, k=SQUARE)
    full = analyse(graph, every_prefix=True)
    assert full.kernels == (1, 2, 3, 2)
    assert full.ranges == analyse(graph).ranges == ((2, 4),)


def test_a_range_ends_before_a_view_of_something_else() -> None:
    body = """
        a = x + 1
        b = a * 2
        c = y.t()
        d = torch.matmul(b, c)
        return (d,)
    """
    assert analyse(make_graph(body, x=SQUARE, y=SQUARE)).ranges == ((0, 2),)


def test_sizes_of_ranges() -> None:
    lines = [f"v{index + 1} = v{index} + {index}" for index in range(12)]
    graph = make_graph("\n".join([*lines, "return (v12,)"]), v0=SQUARE)
    assert analyse(graph).ranges == ((0, 12),)
    assert analyse(graph, max_ops=5).ranges == ((0, 5), (5, 10), (10, 12))
    assert analyse(graph, min_ops=3, max_ops=5).ranges == ((0, 5), (5, 10))


def test_a_long_program_is_looked_at_through_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = []
    for index in range(4):
        lines += [f"a{index} = {f'e{index - 1}' if index else 'x'} + {index}.5", f"b{index} = a{index}.relu()"]
        lines += [f"c{index} = b{index}.cumsum({index % 2})", f"d{index} = c{index}.t()", f"e{index} = c{index}.neg()"]
    graph = make_graph("\n".join([*lines, "return (e3,)"]), x=SQUARE)
    at_once = analyse(graph)
    monkeypatch.setattr(fusible, "WINDOW", 12)
    monkeypatch.setattr(fusible, "LOOKBACK", 6)
    monkeypatch.setattr(fusible, "STEP", 3)
    windows = analyse(graph)
    assert windows.ranges == at_once.ranges
    assert windows.kernels == at_once.kernels
    assert windows.ranges


# --- real models ---


@pytest.mark.parametrize(
    ("task", "ranges"),
    [
        ("llama_swiglu", [(0, 2)]),
        ("vit_residual_layer_norm", [(0, 2)]),
        ("bert_masked_softmax", [(0, 3)]),
        ("llama_rotary_embedding", [(0, 7)]),
        ("t5_gelu_new", [(0, 8)]),
        ("resnet_conv_bn_relu", [(1, 3)]),
        ("diffusion_group_norm_silu", [(0, 2)]),
    ],
)
def test_graphs_that_people_call_fusible_are_found_to_be(task: str, ranges: list[tuple[int, int]]) -> None:
    assert list(analyse(load_task(f"mini/{task}").graphs[0]).ranges) == ranges


@pytest.mark.parametrize("model", ["residual_block", "concat_gate"])
def test_the_ranges_are_those_of_the_full_curve(model: str) -> None:
    graph = captured_model(model)
    fast, full = analyse(graph), analyse(graph, every_prefix=True)
    assert fast.ranges == full.ranges
    assert fast.kernels == full.kernels
    assert fast.ranges


@pytest.mark.slow
@pytest.mark.parametrize("model", ["inverted_residual", "diffusion_residual", "vit"])
def test_the_ranges_are_those_of_the_full_curve_in_larger_models(model: str) -> None:
    graph = captured_model(model)
    fast, full = analyse(graph), analyse(graph, every_prefix=True)
    assert fast.ranges == full.ranges
    if model == "vit":
        assert fast.num_compiles < full.num_compiles < len(fast.kernels)
        assert operators(graph, fast) == [
            "cat add dropout layer_norm", "mul softmax to dropout", "add layer_norm", "add layer_norm getitem",
        ]  # fmt: skip


# --- refusals ---


def test_refusals_name_the_statement_and_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MalformedGraphError, match=r"graph/model\.py: 'a = x @ y' does not run .* leave the graph out"):
        analyse(make_graph("a = x @ y\nreturn (a,)", x=((2, 3), F32), y=((2, 3), F32)))
    with pytest.raises(MalformedGraphError, match="import"):
        analyse(Graph("g", {"model.py": "import os\n" + make_graph("return (x,)", x=SQUARE).model_source,
                            "weight_meta.py": make_graph("return (x,)", x=SQUARE).files["weight_meta.py"],
                            "graph_net.json": "{}"}))  # fmt: skip
    graph = make_graph("a = x + 1\nreturn (a,)", x=SQUARE)
    if not torch.cuda.is_available():
        with pytest.raises(KernelCountError, match='use backend "cpu"'):
            analyse(graph, backend="cuda")
    monkeypatch.setattr(torch, "__version__", "9.1.0")
    with pytest.raises(KernelCountError, match=r"this is 9\.1\.0; run tests/test_fusible\.py"):
        analyse(graph)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_launched_kernels_are_counted_on_a_gpu() -> None:
    body = """
        a = torch.matmul(x, w)
        b = a + 1
        c = b.relu()
        d = c.t()
        return (d,)
    """
    graph = make_graph(body, x=((64, 64), F32), w=((64, 64), F32))
    report = analyse(graph, backend="cuda")
    assert report.backend == "cuda"
    assert report.kernels == (1, 2, 2, 2)
    assert report.ranges == ((1, 4),)


# --- the picture ---


def test_the_picture_says_what_the_report_says() -> None:
    report = FusibleReport((1, 2, 2), ((1, 3),), 3, "cpu")
    picture = ElementTree.fromstring(prefix_curve_svg(report, ["conv2d", "a<b", "relu"], title="t & u"))
    space = "{http://www.w3.org/2000/svg}"
    ranges = [part for part in picture.iter(f"{space}rect") if part.get("class") == "range"]
    assert [part.findtext(f"{space}title") for part in ranges] == ["1..2: a<b relu"]
    assert float(ranges[0].get("width", 0)) == 2 * (float(ranges[0].get("x", 0)) - 46.0)
    with pytest.raises(ValueError, match="2 operators for a curve of 3"):
        prefix_curve_svg(report, ["conv2d", "relu"], title="t")


def test_the_picture_in_the_docs_is_well_formed() -> None:
    picture = ElementTree.fromstring(PICTURE.read_text(encoding="utf-8"))
    titles = [part.text or "" for part in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "ResNet-18: 69 operators, 39 kernels"
    fused = [title.split(": ")[1] for title in titles[1:]]
    assert fused.count("batch_norm relu") == 9
    assert fused.count("batch_norm add relu") == 7  # and the last one goes on to the pooling
