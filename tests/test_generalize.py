"""One template at every size and dtype: cut from real captures, and the derived forms equal what a capture gives."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from data.construct.cutting import cut, cut_source
from data.construct.extract import capture
from data.construct.full_graph import full_graph, write_full_graph
from data.construct.generalize import Capture, Instance, instances, load_captures, signature
from data.construct.import_variants import measure_values, shape_variants, write_variants
from data.construct.resizing import ResizeError, resize
from data.construct.run_check import check_instance
from data.construct.size_symbols import size_symbols
from data.graph import Graph, MalformedGraphError
from data.passbench import load_graph

HEADS, WIDTH, ROWS = 3, 24, 50
SIZES = {"s0": (2, 10), "s1": (4, 10), "s2": (2, 14)}
"""Variant -> batch, sequence."""
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Encoder(torch.nn.Module):
    """A layer in the manner of transformers: mask from finfo, statistics in float32, heads by view, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(ROWS, WIDTH)
        self.positions = torch.nn.Embedding(32, WIDTH)
        self.query = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))
        self.batch_norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, sequence = ids.shape
        hidden = self.table(ids) + self.positions(torch.arange(sequence, device=ids.device))
        query = self.query(hidden).view(batch, sequence, HEADS, WIDTH // HEADS).transpose(1, 2)
        blocked = mask[:, None, None, :].expand(batch, 1, sequence, sequence) == 0
        scores = (query @ query.transpose(2, 3)).masked_fill(blocked, torch.finfo(query.dtype).min)
        probabilities = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        context = (probabilities @ query).transpose(1, 2).reshape(batch, sequence, WIDTH)
        hidden = self.norm(hidden + context)
        wide = hidden.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        hidden = self.scale * wide.to(hidden.dtype)
        hidden = hidden * torch.sigmoid(hidden.mean(0))  # its shape does not tell the batch, its statistics do
        return torch.relu(self.batch_norm(hidden.transpose(1, 2)))


def captured_graph(size: str, dtype: str) -> object:
    torch.manual_seed(0)
    batch, sequence = SIZES[size]
    model = Encoder().to(DTYPES[dtype])
    ids = torch.randint(0, ROWS, (batch, sequence))
    mask = torch.ones(batch, sequence, dtype=torch.int64)
    mask[:, -2:] = 0
    (entry,) = capture(model, (ids, mask))
    net = {"domain": "text", "provenance": {"model": "tests.Encoder", "architecture": "encoder", "licence": "MIT"}}
    return full_graph(entry, f"encoder/graph_0/{size}_{dtype}", model_name="tests.encoder", net=net)


@pytest.fixture(scope="module")
def graph_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sizes in float32, the base in both half dtypes, and one size in float16 that instances must not read."""
    path = tmp_path_factory.mktemp("models") / "tests.encoder" / "graph_0"
    for variant in ("s0_f32", "s1_f32", "s2_f32", "s0_f16", "s0_bf16"):
        write_full_graph(captured_graph(*variant.split("_")), path / variant)  # type: ignore[arg-type]
    write_full_graph(captured_graph("s2", "f16"), path.parent / "truth" / "s2_f16")  # type: ignore[arg-type]
    return path


def places(graph_dir: Path, operators: str) -> list[int]:
    """Indices of the first run of statements with these operators."""
    wanted = operators.split()
    found = load_captures(graph_dir).base.program.operators
    start = next(i for i in range(len(found)) if list(found[i : i + len(wanted)]) == wanted)
    return list(range(start, start + len(wanted)))


def of_dtype(found: list[Instance], variant: str) -> Graph:
    return next(instance.graph for instance in found if instance.variant == variant)


def test_a_template_has_a_form_for_every_size_and_dtype(graph_dir: Path) -> None:
    found = list(instances(graph_dir, places(graph_dir, "masked_fill softmax to")))
    assert [i.variant for i in found] == [f"{size}_{dtype}" for size in SIZES for dtype in DTYPES]
    assert Counter(i.dtype for i in found) == {"float32": 3, "float16": 3, "bfloat16": 3}
    for instance in found:
        batch, sequence = SIZES[instance.variant.split("_")[0]]
        assert instance.graph.specs["in_0"].shape == (batch, HEADS, sequence, sequence)
        assert [spec.dtype for spec in instance.graph.specs.values()] == [f"torch.{instance.dtype}", "torch.bool"]
        assert "dtype = torch.float32" in instance.graph.model_source  # the softmax's own, in every model
        assert check_instance(instance.graph) is None, instance.variant
    sources = {i.dtype: i.graph.model_source for i in found}
    assert "-65504.0" in sources["float16"] and "-3.3895313892515355e+38" in sources["bfloat16"]
    assert ".to(torch.bfloat16)" in sources["bfloat16"]


def test_what_ships_says_where_it_is_from(graph_dir: Path) -> None:
    found = list(instances(graph_dir, indices := places(graph_dir, "masked_fill softmax to"), kind="classical"))
    net = of_dtype(found, "s2_bf16").net
    assert (net["family"], net["domain"], net["kind"], net["num_operators"]) == ("softmax", "text", "classical", 3)
    assert net["provenance"] == {
        "model": "tests.Encoder", "architecture": "encoder", "graph": 0, "range": [indices[0], indices[-1] + 1],
        "variant": "s2_bf16", "licence": "MIT",
    }  # fmt: skip


def test_sizes_in_the_text_are_those_of_the_variant(graph_dir: Path) -> None:
    found = list(instances(graph_dir, places(graph_dir, "view transpose")))
    assert ".view(2, 14, 3, 8)" in of_dtype(found, "s2_f32").model_source
    assert ".view(4, 10, 3, 8)" in of_dtype(found, "s1_bf16").model_source
    assert all(check_instance(instance.graph) is None for instance in found)


def test_statistics_and_indices_keep_their_dtype(graph_dir: Path) -> None:
    norm = of_dtype(list(instances(graph_dir, places(graph_dir, "pow mean add rsqrt mul"))), "s1_f32")
    assert {spec.dtype for spec in norm.specs.values()} == {"torch.float32"}
    # inside the float32 island nothing changes, so there is no half form of it
    assert {i.dtype for i in instances(graph_dir, places(graph_dir, "pow mean add rsqrt mul"))} == {"float32"}
    whole = list(instances(graph_dir, places(graph_dir, "to pow mean add rsqrt mul to mul")))
    assert Counter(i.dtype for i in whole) == {"float32": 3, "float16": 3, "bfloat16": 3}
    table = of_dtype(list(instances(graph_dir, places(graph_dir, "embedding"))), "s0_f16")
    assert [spec.dtype for spec in table.specs.values()] == ["torch.float16", "torch.int64"]


def test_derived_forms_equal_a_capture_in_that_dtype(graph_dir: Path) -> None:
    truth = Capture.load(graph_dir.parent / "truth" / "s2_f16")
    base = load_captures(graph_dir).base.program
    parameters = [name for name, spec in truth.graph.specs.items() if "_parameters_" in (spec.original_name or "")]
    parameters += [name for name, spec in truth.graph.specs.items() if "_buffers_" in (spec.original_name or "")]
    compared = 0
    for start in range(len(base.statements)):
        for stop in range(start + 1, min(start + 6, len(base.statements) + 1)):
            found = [i.graph for i in instances(graph_dir, range(start, stop)) if i.variant == "s2_f16"]
            if found:
                there = cut(truth.program, range(start, stop), tensors=truth.values.keys(), parameters=parameters)
                assert there is not None
                assert found[0].model_source == cut_source(truth.program, there)
                specs = [found[0].specs[name] for name in found[0].arguments]
                assert [spec.dtype for spec in specs] == [truth.values[name].dtype for name in there.inputs]
                assert [spec.shape for spec in specs] == [truth.values[name].shape for name in there.inputs]
                compared += 1
    assert compared > 60


def test_forms_that_no_pass_can_tell_apart_are_one(graph_dir: Path) -> None:
    arange = places(graph_dir, "arange embedding")
    found = list(instances(graph_dir, arange))  # depends on the sequence, not on the batch
    assert [i.variant for i in found] == ["s0_f32", "s0_f16", "s0_bf16", "s2_f32", "s2_f16", "s2_bf16"]
    found = list(instances(graph_dir, places(graph_dir, "sigmoid")))
    assert [i.variant for i in found] == ["s0_f32", "s0_f16", "s0_bf16", "s2_f32", "s2_f16", "s2_bf16"]
    graph = found[0].graph
    meta = graph.files["weight_meta.py"]
    other = Graph("other", {**graph.files, "weight_meta.py": re.sub("mean = .*", "mean = 9.0", meta, count=1)})
    assert signature(other) == signature(graph) and other.content_hash != graph.content_hash


def test_a_choice_that_cannot_stand_alone_gives_nothing(graph_dir: Path) -> None:
    start = places(graph_dir, "masked_fill softmax to")[0]
    assert list(instances(graph_dir, [start, start + 2])) == []  # the softmax lies between


def test_without_a_half_capture_only_what_is_certain_has_a_half_form(graph_dir: Path, tmp_path: Path) -> None:
    for variant in ("s0_f32", "s1_f32"):
        (tmp_path / variant).symlink_to(graph_dir / variant)
    softmax = list(instances(tmp_path, places(graph_dir, "masked_fill softmax to")))
    assert {i.dtype for i in softmax} == {"float32"}  # it names float32, and what becomes of that is not known
    norm = list(instances(tmp_path, places(graph_dir, "batch_norm relu"), dtypes=("float16",)))
    assert len(norm) == 2
    dtypes = [norm[0].graph.specs[name].dtype for name in norm[0].graph.arguments]
    assert dtypes == ["torch.float32"] * 4 + ["torch.float16"]  # statistics, weight and bias stay
    assert check_instance(norm[0].graph) is None


def test_missing_files_are_named(graph_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(MalformedGraphError, match="s0_f32: missing"):
        list(instances(tmp_path / "nothing", [0]))
    (tmp_path / "broken" / "s0_f32").mkdir(parents=True)
    for file in ("model.py", "weight_meta.py", "graph_net.json"):
        (tmp_path / "broken" / "s0_f32" / file).write_bytes((graph_dir / "s0_f32" / file).read_bytes())
    with pytest.raises(MalformedGraphError, match=r"values\.json: missing"):
        list(instances(tmp_path / "broken", [0]))


# sizes changed by text, for graphs without captures


def test_a_resized_graph_is_the_graph_captured_at_that_size(graph_dir: Path) -> None:
    base = load_graph(graph_dir / "s0_f32", name="g")
    for symbol, size, variant in (("leading_2", 4, "s1_f32"), ("size_10", 14, "s2_f32")):
        truth = load_graph(graph_dir / variant, name="g")
        resized = resize(base, {symbol: size})
        assert resized.model_source == truth.model_source
        assert {n: s.shape for n, s in resized.specs.items()} == {n: s.shape for n, s in truth.specs.items()}
        assert resized.files["graph_hash.txt"] == truth.graph_hash
    with pytest.raises(ResizeError, match="no size 'size_11'; it has leading_2, size_2, size_10"):
        resize(base, {"size_11": 3})
    with pytest.raises(ResizeError, match="index out of range"):
        resize(base, {"size_10": 33})  # there are 32 positions


def test_sizes_are_read_from_the_constraints_of_a_dynamic_graph(graph_dir: Path) -> None:
    base = load_graph(graph_dir / "s0_f32", name="g")
    ids, mask = [name for name, spec in base.specs.items() if spec.shape == (2, 10)]
    constraints = (
        "from sympy import Symbol\n\nS0 = Symbol('S0')\nS1 = Symbol('S1')\n\n"
        "dynamic_dim_constraint_symbols = [S0, S1]\n\ndynamic_dim_constraint_symbol2example_value = {S0: 2, S1: 9}\n\n"
        "dynamic_dim_constraint_relations = []\n\ndynamic_dim_constraint_input_shapes = [\n"
        f'    ([S0, S1 + 1], "{ids}"),\n    ([S0, S1 + 1], "{mask}"),\n    ([24], "in_0"),\n]\n'
    )
    dynamic = Graph("g", {**base.files, "input_tensor_constraints.py": constraints})
    assert {name: symbol.size for name, symbol in size_symbols(dynamic).items()} == {"S0": 2, "S1": 9}
    resized = resize(dynamic, {"S0": 4, "S1": 13})
    assert resized.specs[ids].shape == resized.specs[mask].shape == (4, 14)
    assert ".view(4, 14, 3, 8)" in resized.model_source
    bound = constraints.replace("relations = []", "relations = [S0 < 4]")
    with pytest.raises(ResizeError, match="relations between its sizes do not hold at"):
        resize(Graph("g", {**base.files, "input_tensor_constraints.py": bound}), {"S0": 4})
    with pytest.raises(MalformedGraphError, match="not Python"):
        resize(Graph("g", {**base.files, "input_tensor_constraints.py": "S0 = ("}), {"S0": 4})
    with pytest.raises(ResizeError, match="without elements"):
        resize(base, {"leading_2": 0})


def test_an_imported_graph_gets_variants_of_its_own(graph_dir: Path, tmp_path: Path) -> None:
    base = load_graph(graph_dir / "s0_f32", name="imported")
    changes = write_variants(base, tmp_path / "graph_0", count=4)
    assert list(changes) == ["s0_f32", "s1_f32", "s2_f32", "s3_f32"]
    assert changes["s0_f32"] == {} and len({json.dumps(change) for change in changes.values()}) == 4
    found = list(instances(tmp_path / "graph_0", places(graph_dir, "batch_norm relu")))
    assert Counter(i.dtype for i in found) == {"float32": 4, "float16": 4, "bfloat16": 4}
    assert len({i.graph.specs["in_4"].shape for i in found}) == 4  # the activation, after its four parameters
    assert all(check_instance(i.graph) is None for i in found)


def test_values_are_measured_as_the_capture_measured_them(graph_dir: Path) -> None:
    base = load_captures(graph_dir).base
    measured = measure_values(base.graph)
    assert measured.keys() == base.values.keys()
    for name, record in base.values.items():
        assert (measured[name].shape, measured[name].dtype) == (record.shape, record.dtype), name


def test_shape_variants_end_when_nothing_else_runs() -> None:
    source = (
        "import torch\n\nclass GraphModule(torch.nn.Module):\n\n"
        "    def forward(self, in_0, in_1):\n        return (in_0 + in_1,)"
    )
    meta = "".join(
        f'class Program_weight_tensor_meta_{n}:\n\tname = "{n}"\n\toriginal_name = "{o}"\n\tshape = [{s}]\n'
        '\tdtype = "torch.float32"\n'
        for n, o, s in (("in_0", "L_x_", 6), ("in_1", "L_self_modules_norm_parameters_weight_", 6))
    )
    graph = Graph("fixed", {"model.py": source, "weight_meta.py": meta, "graph_net.json": "{}"})
    assert [change for change, _ in shape_variants(graph)] == [{}]  # the weight's 6 does not follow
