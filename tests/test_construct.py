"""Extraction: a model is captured, cut and written, and the written graph computes what the model computed."""

from __future__ import annotations

import pytest
import torch

from data.construct.build_mini import check_graph
from data.construct.example import Example
from data.construct.extract import capture, measure
from data.construct.recipes import RECIPES
from data.construct.subgraph import find_slices, operator_name
from data.construct.vision_blocks import BUILDERS
from data.construct.writer import meta_class, write_slice
from data.construct.zoo import build_model
from data.graph import MalformedGraphError
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from data.passbench import load_task


class Block(torch.nn.Module):
    """Pre-norm block: the sum is used again after the norm; a device and an index appear too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        rows = self.table(ids) + x
        normed = self.norm(rows)
        gate = torch.nn.functional.silu(self.linear(normed)) * self.linear(normed)
        shift = torch.arange(8, device=x.device)
        return rows + gate[:, 1:, :].contiguous().sum() - shift


@pytest.fixture(scope="module")
def captured() -> list:
    torch.manual_seed(0)
    return capture(Block(), (torch.randint(0, 5, (2, 3)), torch.randn(2, 3, 8)))


def first_slice(captured: list, operators: str):  # type: ignore[no-untyped-def]
    return next(find_slices(captured[0], operators.split()))


def test_a_slice_is_written_in_passnets_style(captured: list) -> None:
    graph = write_slice(first_slice(captured, "embedding add layer_norm"), "graphs/x", model_name="x", family="softmax")
    assert graph.model_source == (
        "import torch\n\nclass GraphModule(torch.nn.Module):\n\n"
        "    def forward(self, in_0, in_1, in_2, in_3, in_4):\n"
        "        tmp_0 = torch.nn.functional.embedding(in_3, in_2, None, None, 2.0, False, False)\n"
        "        tmp_1 = tmp_0 + in_4\n"
        "        tmp_0 = None\n"
        "        tmp_2 = torch.nn.functional.layer_norm(tmp_1, (8,), in_1, in_0, 1e-05)\n"
        "        return (tmp_1, tmp_2)"
    )
    assert graph.family == "softmax"
    assert graph.files["graph_hash.txt"] == graph.graph_hash
    # bias, weight, table, then activations; the index may be any row of the table
    assert [graph.specs[f"in_{i}"].shape for i in range(5)] == [(8,), (8,), (11, 8), (2, 3), (2, 3, 8)]
    assert (graph.specs["in_3"].min_val, graph.specs["in_3"].max_val) == (0, 10)
    assert {spec.device for spec in graph.specs.values()} == {"cuda:0"}


def test_statistics_are_those_of_the_activations() -> None:
    values = torch.tensor([1.0, 2.0, 4.5])
    text = meta_class("in_0", "L_x_", measure(values))
    assert "\tmean = 2.500\n\tstd = 1.803\n" in text
    assert text.startswith('class Program_weight_tensor_meta_L_in_0_:\n\tname = "in_0"\n')
    assert "\tmean = None\n\tstd = None\n\tmin_val = 3\n\tmax_val = 5\n" in meta_class(
        "i", "i", measure(torch.tensor([3, 5]))
    )
    assert 'std = float("inf")' in meta_class("m", "m", measure(torch.tensor([torch.inf, 1.0]))).replace("nan", "inf")


def test_a_gate_is_cut_across_the_other_branch_and_a_device_is_written_as_captured(captured: list) -> None:
    gate = first_slice(captured, "silu mul")
    assert gate.operators == ("silu", "mul")
    assert len(gate.inputs) == 2
    graph = write_slice(first_slice(captured, "arange sub"), "g", model_name="g")
    assert "from torch import device" in graph.model_source
    assert "device = device(type='cuda', index=0)" in graph.model_source
    check_graph(graph)


def test_slices_are_convex(captured: list) -> None:
    # rows -> sum -> add would leave out what lies between, and that takes a value of the slice and gives one back
    assert not list(find_slices(captured[0], ["add", "add"]))


def test_a_whole_block_written_as_one_graph_equals_the_model() -> None:
    example = build_model("residual_block", "small", torch.float32, seed=1)
    entry = capture(example.module, example.args)[0]
    operators = [operator_name(node) for node in entry.graph.nodes if node.op.startswith("call")]
    part = next(find_slices(entry, operators))
    graph = write_slice(part, "g", model_name="g")
    parameters = {**dict(example.module.named_parameters()), **dict(example.module.named_buffers())}
    by_name = {f"l_self_modules_{name.replace('.', '_')}": value for name, value in parameters.items()}
    values = []
    for node in part.inputs:
        plain = node.name.replace("_parameters_", "_").replace("_buffers_", "_").rstrip("_")
        values.append(by_name.get(plain, example.args[0]))
    with torch.no_grad():
        (output,) = load_graph_module(graph)(*values)
        assert torch.equal(output, example.module(*example.args))


def test_check_graph_refuses_what_cannot_tell_passes_apart(captured: list) -> None:
    graph = write_slice(first_slice(captured, "silu mul"), "g", model_name="g")
    constant = graph.model_source.replace("return (tmp_1,)", "return (tmp_1 * 0,)")
    with pytest.raises(MalformedGraphError, match="does not vary"):
        check_graph(type(graph)("g", {**graph.files, "model.py": constant}))


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_vision_blocks_run(name: str) -> None:
    example = build_model(name, "small", torch.float32)
    assert isinstance(example, Example)
    with torch.no_grad():
        assert torch.isfinite(example.module(*example.args)).all()


def test_recipes_and_the_bundle_agree() -> None:
    for recipe in RECIPES:
        task = load_task(f"mini/{recipe.task_id}")
        assert {graph.specs["in_0"].dtype for graph in task.graphs}
        assert len(task.graphs) >= len(recipe.variants)
        assert {graph.family for graph in task.graphs} == {recipe.family}


def test_the_papers_showcase_graphs_are_bundled() -> None:
    windows = load_task("mini/maskformer_window_layer_norm")
    shapes = {(graph.specs["in_3"].shape, graph.specs["in_2"].shape) for graph in windows.graphs}
    for side, channels, kept in ((133, 96, 128), (70, 192, 64), (35, 384, 32)):
        assert ((1, side // 7, 7, side // 7, 7, channels), (1, kept * kept, channels)) in shapes
    assert all(graph.model_source.endswith("return (tmp_6, tmp_7)") for graph in windows.graphs)
    pooling = load_task("mini/sentence_masked_mean_pooling").graphs[0]
    inputs = draw_inputs(pooling, seed=0)
    mask = inputs["in_0"].to(torch.float32)
    expected = torch.cat([torch.sum(inputs["in_1"] * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)], 1)
    assert torch.equal(load_graph_module(pooling)(**inputs)[0], expected)


@pytest.mark.slow
def test_a_transformers_model_is_extracted_again_to_the_same_task() -> None:
    pytest.importorskip("transformers")
    from data.construct.build_mini import build_task

    recipe = next(recipe for recipe in RECIPES if recipe.task_id == "clip_quick_gelu")
    built, bundled = build_task(recipe), load_task("mini/clip_quick_gelu")
    assert [graph.graph_hash for graph in built.graphs] == [graph.graph_hash for graph in bundled.graphs]
