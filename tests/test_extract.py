"""extract(): what a model computes is what its written graphs compute; what cannot be a graph is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.constraints_file import graph_constraints
from data.construct.constraints import Constraint, check_constraints
from data.construct.extract import CapturedGraph, capture, extract
from data.construct.full_graph import FullGraph, first_difference, full_graph
from data.construct.metas import read_values
from data.graph import Graph
from data.model_check import load_graph_module
from data.passbench import load_graph
from tests.tiny_zoo import Mlp


class Mixed(torch.nn.Module):
    """What full graphs hold: buffers, constants, in-place operators, recurrence, contexts without effect."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.lstm = torch.nn.LSTM(8, 8, batch_first=True)
        self.register_buffer("order", torch.tensor([3, 1, 0, 2]))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.linear(x).view(x.shape[0], -1, 2, 4) + torch.tensor([1.0, 2.0, 3.0, 4.0])
        with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(False):
            z = y.transpose(1, 2)[..., self.order]
        z += 1
        hidden, _ = self.lstm(x)
        half = x.shape[1] // 2
        return {"a": z.masked_fill(mask[:, None, :, None], -1e9), "b": hidden[:, :half], "c": (-2.0) ** hidden.round()}


def inputs(batch: int = 2, length: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(batch + length)
    return torch.randn(batch, length, 8), torch.rand(batch, length) > 0.5


def rerun(graph: Graph, model: torch.nn.Module, **given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The written graph on the model's own parameters and on what a call is given, found by their original names."""
    known = {f"l_{name}_": value for name, value in given.items()}
    known |= {f"l_self_buffers_{name}_": value for name, value in model.named_buffers()}
    for name, value in model.named_parameters():
        module, _, parameter = name.partition(".")
        known[f"l_self_modules_{module}_parameters_{parameter}_"] = value
    with torch.no_grad():
        return load_graph_module(graph)(*(known[graph.specs[name].original_name or ""] for name in graph.arguments))


@pytest.fixture(scope="module")
def static_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mixed, Path]:
    torch.manual_seed(0)
    model = Mixed().eval()
    folder = tmp_path_factory.mktemp("static")
    wrapped = extract(model, name="mixed", out=folder)
    expected, found = model(*inputs()), wrapped(*inputs())
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert wrapped.graph_dirs == (folder / "mixed" / "graph_0",)
    return model, folder / "mixed" / "graph_0"


def test_a_written_graph_computes_what_the_model_computes(static_folder: tuple[Mixed, Path]) -> None:
    model, folder = static_folder
    graph = load_graph(folder)
    outputs = rerun(graph, model, x=inputs()[0], mask=inputs()[1])
    with torch.no_grad():  # with gradients, recurrence runs another kernel
        expected = model(*inputs())
    assert all(torch.equal(value, found) for value, found in zip(expected.values(), outputs, strict=True))
    assert check_constraints(folder) == []


def test_a_written_graph_has_passnets_layout(static_folder: tuple[Mixed, Path]) -> None:
    _, folder = static_folder
    graph = load_graph(folder)
    assert graph.files["graph_hash.txt"] == graph.graph_hash
    assert json.loads(graph.files["graph_net.json"])["dynamic"] is False
    assert graph.arguments == tuple(f"in_{index}" for index in range(len(graph.arguments)))
    originals = [graph.specs[name].original_name or "" for name in graph.arguments]
    assert ["l_self" in name for name in originals] == [True] * (len(originals) - 2) + [False] * 2
    # the buffer of four indices keeps its content: a draw of other indices would be another model
    order = next(spec for spec in graph.specs.values() if "order" in (spec.original_name or ""))
    assert order.data == [3, 1, 0, 2]
    source = graph.model_source
    assert "autocast" not in source and "grad_enabled" not in source
    assert "tmp_5 += 1\n" in source and "(-2.0) ** " in source and "torch.lstm(" in source
    assert source.endswith(")") and not source.endswith("\n")


def test_values_are_recorded_as_they_were_made(static_folder: tuple[Mixed, Path]) -> None:
    _, folder = static_folder
    graph = load_graph(folder)
    values = read_values((folder / "values.json").read_text(), "values.json")
    assert {name: (spec.shape, spec.dtype) for name, spec in graph.specs.items()} == {
        name: (values[name].shape, values[name].dtype) for name in graph.arguments
    }
    # tmp_5 is added to in place afterwards; its record is from before
    before, after = values["tmp_5"].mean, values["tmp_6"].mean
    assert before is not None and after is not None and after == pytest.approx(before + 1)
    lstm = next(line.split()[0] for line in graph.model_source.splitlines() if "torch.lstm(" in line)
    assert lstm not in values  # a tuple is no tensor


def test_graph_breaks_and_new_shapes_give_graphs_of_their_own(tmp_path: Path) -> None:
    wrapped = extract(name="deep/net", out=tmp_path)(Mlp(graph_break=True))
    x = torch.randn(2, 3, 8)
    loss = wrapped(x).sum()
    loss.backward()
    assert wrapped.linear.weight.grad is not None  # the call's own result, gradients and all
    assert [path.name for path in wrapped.graph_dirs] == ["graph_0", "graph_1"]
    wrapped(x + 1)
    assert len(wrapped.graph_dirs) == 2
    wrapped(torch.randn(4, 3, 8))
    assert [path.name for path in wrapped.graph_dirs] == ["graph_0", "graph_1", "graph_2", "graph_3"]
    assert not list(tmp_path.glob("**/.*"))


def test_a_function_and_a_class_are_wrapped(tmp_path: Path) -> None:
    @extract(name="function", out=tmp_path)
    def swish(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    x = torch.randn(3, 4)
    assert torch.equal(swish(x), x * torch.sigmoid(x))
    assert "tmp_1 = in_0 * tmp_0" in (swish.graph_dirs[0] / "model.py").read_text()
    wrapped = extract(name="class", out=tmp_path)(Mlp)
    assert wrapped.__name__ == "Mlp"
    instance = wrapped()
    assert torch.equal(instance(x.expand(1, 3, 4).repeat(1, 1, 2)), instance.model(x.expand(1, 3, 4).repeat(1, 1, 2)))
    assert len(instance.graph_dirs) == 1


def test_mistakes_of_the_caller(tmp_path: Path) -> None:
    for name in ("", "../x", "/x", "a b"):
        with pytest.raises(ValueError, match="name is"):
            extract(Mlp(), name=name, out=tmp_path)
    with pytest.raises(TypeError, match="neither a module"):
        extract(int, name="x", out=tmp_path)
    extract(torch.sin, name="sine", out=tmp_path)(torch.randn(3))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        extract(torch.cos, name="sine", out=tmp_path)
    extract(torch.cos, name="sine", out=tmp_path, overwrite=True)(torch.randn(3))
    assert "cos" in (tmp_path / "sine" / "graph_0" / "model.py").read_text()


def test_symbolic_sizes_are_recorded_and_the_graph_runs_at_its_own(tmp_path: Path) -> None:
    class Halves(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            half = x.shape[1] // 2
            joined = torch.cat([x[:, :half] + 0.5, x[:, half:]], 1)
            return joined.view(x.shape[0] * x.shape[1], -1) @ y.view(8, -1)

    model = Halves()
    wrapped = extract(model, name="halves", out=tmp_path, dynamic=True)
    x, y = torch.randn(2, 6, 8), torch.randn(8, 5)
    assert torch.equal(wrapped(x, y), model(x, y))
    larger = torch.randn(3, 10, 8)
    assert torch.equal(wrapped(larger, y), model(larger, y))
    (folder,) = wrapped.graph_dirs  # one graph for both
    graph = load_graph(folder)
    assert check_constraints(folder) == []
    assert graph.net["dynamic"] is True
    assert torch.equal(load_graph_module(graph)(x, y)[0], model(x, y))
    assert "view(12, -1)" in graph.model_source
    constraints = graph_constraints(graph)
    assert constraints is not None
    assert list(constraints.symbols.values()) == [2, 6, 5]
    assert constraints.shapes["in_0"] == ("S0", "S1", 8)
    assert {name: constraints.shape_of(name) for name in graph.arguments} == {
        name: spec.shape for name, spec in graph.specs.items()
    }
    assert constraints.holds() and not constraints.holds({"S0": 1})
    # upstream executes the file
    namespace: dict[str, Any] = {}
    exec(graph.files["input_tensor_constraints.py"], namespace)
    example = namespace["dynamic_dim_constraint_symbol2example_value"]
    assert all(relation.subs(example) == True for relation in namespace["dynamic_dim_constraint_relations"])  # noqa: E712
    assert [symbol.name for symbol in namespace["dynamic_dim_constraint_symbols"]] == ["S0", "S1", "S2"]


def test_guards_on_sizes_become_relations(tmp_path: Path) -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4, x.shape[1]).sum(1) if x.shape[0] % 4 == 0 else x * 2

    wrapped = extract(windows, name="windows", out=tmp_path, dynamic=True)
    wrapped(torch.randn(8, 5))
    constraints = graph_constraints(load_graph(wrapped.graph_dirs[0]))
    assert constraints is not None
    assert constraints.holds({"S0": 12}) and not constraints.holds({"S0": 10})


def captured_at(module: torch.nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> FullGraph:
    torch.manual_seed(0)
    (entry,) = capture(module.to(dtype), (torch.randn(*shape, dtype=dtype),))
    return full_graph(entry, "g", model_name="g")


def test_wiring_tells_which_captures_are_cut_alike() -> None:
    base = captured_at(Mlp(wide_differs=True), 2, 6, 8)
    assert captured_at(Mlp(wide_differs=True), 3, 4, 8).wiring == base.wiring
    assert captured_at(Mlp(wide_differs=True), 2, 6, 8, dtype=torch.bfloat16).wiring == base.wiring
    other = captured_at(Mlp(wide_differs=True), 2, 9, 8)
    assert first_difference(base.wiring, other.wiring) == (
        "statement 3 is mul(tmp_2), in the base layer_norm(tmp_2, in_2, in_3)"
    )


@pytest.fixture(scope="module")
def sound() -> Graph:
    return captured_at(Mlp(), 2, 6, 8).graph


def changed(graph: Graph, old: str, new: str, file: str = "model.py", *, rehash: bool = True) -> Graph:
    assert old in graph.files[file]
    files = {**graph.files, file: graph.files[file].replace(old, new)}
    if rehash:
        files["graph_hash.txt"] = Graph("g", files).graph_hash
    return Graph("g", files)


@pytest.mark.parametrize(
    ("old", "new", "constraint", "reason"),
    [
        ("torch._C._nn.gelu", "torch.rand_like", Constraint.STATICALLY_ANALYZABLE, "draws random numbers"),
        ("tmp_2 = tmp_1 + in_4", "tmp_2 = tmp_1 + tmp_1.item()", Constraint.STATICALLY_ANALYZABLE, "content"),
        ("tmp_1 + in_4", "tmp_1 + in_4.exp()", Constraint.DECOMPOSABLE, "several operators"),
        ("torch._C._nn.gelu(tmp_0", "self.sub(tmp_0", Constraint.DECOMPOSABLE, "self.sub is nested"),
        ("torch._C._nn.gelu", "torch.ops.higher_order.cond", Constraint.DECOMPOSABLE, "takes functions"),
        ("(8,), ", "(7,), ", Constraint.RUNNABLE, "RuntimeError"),
        ("return (tmp_4,)", "return (tmp_4, None)", Constraint.RUNNABLE, "tuple of tensors"),
        ("torch._C._nn.gelu", "torch.ops.nobody.gelu", Constraint.CUSTOM_OPERATORS, "nobody::gelu is not reg"),
    ],
)
def test_a_graph_that_breaks_a_constraint_is_told_which(
    sound: Graph, old: str, new: str, constraint: Constraint, reason: str
) -> None:
    assert check_constraints(sound) == []
    findings = check_constraints(changed(sound, old, new))
    assert constraint in {finding.constraint for finding in findings}
    found = next(finding for finding in findings if finding.constraint is constraint)
    assert reason in found.reason and "\n" not in found.reason
    assert str(found).startswith(f"not {constraint}: ")


def test_what_cannot_be_read_again_is_not_serializable(sound: Graph, tmp_path: Path) -> None:
    (stale,) = check_constraints(changed(sound, "+ in_4", "- in_4", rehash=False))
    assert stale.constraint is Constraint.SERIALIZABLE and "sha256" in stale.reason
    for file, text in sound.files.items():
        (tmp_path / file).write_text(text)
    assert check_constraints(tmp_path) == []
    (tmp_path / "weight_meta.py").write_text("import os\n")
    (broken,) = check_constraints(tmp_path)
    assert broken.constraint is Constraint.SERIALIZABLE and "weight_meta.py" in broken.reason


def test_rejected_graphs_are_named_and_not_written(tmp_path: Path) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

    cond = extract(branch, name="cond", out=tmp_path)
    noise = extract(lambda x: x + torch.rand_like(x), name="noise", out=tmp_path)
    x = torch.randn(3)
    assert torch.equal(cond(x), branch(x))
    noise(x)
    for wrapped, constraint in ((cond, "decomposable"), (noise, "statically_analyzable")):
        assert wrapped.graph_dirs == ()
        (entry,) = json.loads((wrapped.folders.folder / "rejected.json").read_text())
        assert (entry["graph"], entry["constraint"]) == (0, constraint)
    kept = extract(lambda x: x + torch.rand_like(x), name="kept", out=tmp_path, check=False)
    kept(x)
    assert len(kept.graph_dirs) == 1


def test_the_source_of_a_custom_operator_is_kept_beside_its_graph(tmp_path: Path) -> None:
    from tests import scale_ops

    def custom(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.passwright_test_lib.shift(scale_ops.scale(x.relu(), 2.0), 1.0).cos()

    wrapped = extract(custom, name="custom", out=tmp_path)
    x = torch.randn(3, 4)
    assert torch.equal(wrapped(x), custom(x))
    (folder,) = wrapped.graph_dirs
    kept = folder / "custom_ops" / "scale_ops.py"
    assert kept.read_bytes() == Path(scale_ops.__file__).read_bytes()
    assert kept.read_text().startswith("# SPDX-License-Identifier: BSD-3-Clause\n# Copyright")
    assert check_constraints(folder) == []
    kept.unlink()
    findings = check_constraints(folder)
    assert {finding.constraint for finding in findings} == {Constraint.CUSTOM_OPERATORS}
    assert any("passwright_test::scale" in finding.reason for finding in findings)


_STEPS = st.sampled_from(
    [
        lambda x, y: x + y, lambda x, y: x * 0.5 - y, lambda x, y: torch.tanh(x), lambda x, y: x.softmax(-1),
        lambda x, y: torch.cat([x, y], 0)[: x.shape[0]], lambda x, y: x.transpose(0, 1).contiguous().view(x.shape),
        lambda x, y: torch.where(x > y, x, -y), lambda x, y: x.clone().add_(y),
        lambda x, y: x.chunk(2, 1)[0].repeat(1, 2),
        lambda x, y: torch.nn.functional.pad(x, (1, 0))[:, :-1], lambda x, y: x - x.mean(1, keepdim=True),
        lambda x, y: (x @ y.t()).relu() @ y, lambda x, y: x.to(torch.float64).exp().to(torch.float32).clamp(max=3.0),
    ]
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_STEPS, min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_any_program_of_tensors_is_written_as_it_computes(steps: list[Any], seed: int) -> None:
    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values = [x]
            for step in steps:
                values.append(step(values[-1], y))
            return tuple(values[1:])

    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    program = Program()
    entries: list[CapturedGraph] = capture(program, (x, y))
    (entry,) = entries
    written = full_graph(entry, "g", model_name="g")
    assert check_constraints(written.graph) == []
    by_original = {"l_x_": x, "l_y_": y}
    given_values = [by_original[written.graph.specs[name].original_name or ""] for name in written.graph.arguments]
    with torch.no_grad():
        outputs = load_graph_module(written.graph)(*given_values)
    for expected, found in zip(program(x, y), outputs, strict=True):
        assert torch.equal(expected, found)
