"""Passes in whole models: what is replaced, what is left alone and why, several folders, gradients, autocast, sizes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from eval_harness.apply import AUTOCAST, GRADIENTS, backend
from eval_harness.apply.measurement import VariantFigures, ratio, tensors_in
from eval_harness.errors import UserError
from tests.apply_passes import ADD_RELU, add_relu, folder, row_sums, wrong


class Model(nn.Module):
    """Two sites of add + relu that the pass serves, one that it does not (a broadcast), one of scaled sums."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.first(x) + x)
        y = torch.relu(self.second(y) + y)
        y = torch.relu(y + x[0])
        scaled = y * 2
        return scaled, scaled.sum(-1)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(passes: Any, module: nn.Module | None = None, **options: Any) -> Any:
    return torch.compile((module or Model()).eval(), backend=passes, **options)


@pytest.mark.parametrize("then", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_sites_are_replaced_and_the_model_computes_the_same(then: Any) -> None:
    passes = backend([add_relu(), row_sums()], then=then)
    model, x = Model().eval(), torch.randn(4, 8)
    with torch.no_grad():
        expected, found = model(x), compiled(passes)(x)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    report = passes.report
    assert report.num_applied == 3 and report.num_replaced_nodes == 6
    assert [site.rule for site in report.sites if not site.reason] == ["FuseAddRelu", "FuseAddRelu", "ScaledAndSums"]
    assert [site.reason for site in report.sites if site.reason] == [
        "its replacement raises ValueError: serves float32 tensors of one shape"
    ]
    assert "3 sites replaced in 1 graphs" in report.render() and "1 left as they were" in report.render()


def test_a_wrong_pass_is_found_out_on_the_model_s_own_values(caplog: pytest.LogCaptureFixture) -> None:
    passes = backend([wrong()], then="eager")
    model, x = Model().eval(), torch.randn(4, 8)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        found = compiled(passes)(x)
        torch.testing.assert_close(found, model(x))
    assert passes.report.num_applied == 0
    assert "gives other values" in caplog.text


def test_a_pass_that_writes_into_its_input_or_returns_less_is_left_alone() -> None:
    writes = ADD_RELU.replace("    out = torch.empty(a.shape, dtype=a.dtype)\n", "    out = a\n")
    fewer = folder(Sums=row_sums()["ScaledAndSums.py"].replace("return scaled, sums", "return (scaled,)"))
    passes = backend(
        [folder(Writes=writes), fewer | {"shared.py": row_sums()["shared.py"]}], then="eager", trusted=True
    )
    with torch.no_grad():
        compiled(passes)(torch.randn(4, 8))
    reasons = {site.rule: site.reason for site in passes.report.sites if "raises ValueError" not in site.reason}
    assert "writes into its input" in reasons["Writes"] and "returns 2 values, the replacement 1" in reasons["Sums"]


def test_earlier_folders_go_first_and_what_overlaps_is_told() -> None:
    whole = folder(
        Whole=ADD_RELU.replace("return torch.relu(a + b)", "return torch.relu(a + b) * 2").replace(
            "out[i] = x if x > 0 or x != x else 0", "out[i] = 2 * (x if x > 0 or x != x else 0)"
        )
    )

    class One(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(a + b) * 2

    a, b = torch.randn(3, 5), torch.randn(3, 5)
    with torch.no_grad():
        first = backend([whole, add_relu()], then="eager")
        torch.testing.assert_close(compiled(first, One())(a, b), One()(a, b))
        torch._dynamo.reset()
        second = backend([add_relu(), whole], then="eager")
        torch.testing.assert_close(compiled(second, One())(a, b), One()(a, b))
    assert [site.rule for site in first.report.sites] == ["Whole"]
    assert [site.rule for site in second.report.sites] == ["FuseAddRelu"]
    assert "1 taken by an earlier rule" in first.report.render()
    assert "1 taken by an earlier rule" in second.report.render()


def test_a_rule_that_matches_nowhere_is_told_with_the_nearest_miss() -> None:
    passes = backend([add_relu()], then="eager")
    with torch.no_grad():
        compiled(passes, nn.Sequential(nn.Linear(4, 4), nn.ReLU()))(torch.randn(2, 4))
    assert "matches nowhere; nearest:" in passes.report.render()


def test_gradients_and_autocast_leave_the_graph_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    passes = backend([add_relu()], then="eager")
    model, x = Model().eval(), torch.randn(4, 8)
    with caplog.at_level(logging.WARNING):
        found = compiled(passes, model)(x)
        found[0].sum().backward()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            compiled(passes, model)(x)
    assert model.first.weight.grad is not None and passes.report.num_applied == 0
    assert passes.report.left == [GRADIENTS, AUTOCAST] and caplog.text.count("no backward") == 1
    torch._dynamo.reset()
    with torch.inference_mode():
        compiled(passes, model)(x)
    assert passes.report.num_applied == 2


def test_symbolic_sizes_are_checked_at_every_new_combination() -> None:
    narrow = ADD_RELU.replace(
        "    out = torch.empty(a.shape, dtype=a.dtype)\n",
        "    if a.shape[0] == 6:\n        raise ValueError('not for six rows')\n"
        "    out = torch.empty(a.shape, dtype=a.dtype)\n",
    )
    passes = backend([folder(Narrow=narrow)], then="eager")
    model = Model().eval()
    run = compiled(passes, model, dynamic=True)
    with torch.no_grad():
        for rows in (4, 9, 6, 4, 6):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(run(x), model(x))
    assert passes.report.num_graphs == 1 and passes.report.num_applied == 2
    assert any("not for six rows" in reason for reason in passes.report.left)


def test_what_writes_in_place_is_not_run_twice_by_the_check() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3, 5))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return torch.relu(a + self.count)

    passes = backend([add_relu()], then="eager")
    model, a = Counting().eval(), torch.randn(3, 5)
    with torch.no_grad():
        found = compiled(passes, model)(a)
    assert float(model.count[0, 0]) == 1.0  # type: ignore[index]
    torch.testing.assert_close(found, torch.relu(a + 1))
    assert passes.report.num_applied == 1


def test_operators_of_others_stand_alone_and_keep_their_place() -> None:
    @torch.library.custom_op("test_apply::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Mixed(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(twice(torch.relu(a + b)) + b)

    passes = backend([add_relu()], then="eager")
    a, b = torch.randn(3, 5), torch.randn(3, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(passes, Mixed())(a, b), Mixed()(a, b))
    assert passes.report.num_applied == 2


def test_folders_that_may_not_run_are_refused(tmp_path: Path) -> None:
    sneaky = folder(Sneaky=f"import os\nos.environ['APPLIED'] = '1'\n{ADD_RELU}")
    with pytest.raises(UserError, match=r"breaks the source rules.*--trusted"):
        backend([sneaky])
    with pytest.raises(UserError, match="no such pass folder"):
        backend(tmp_path / "nowhere")
    with pytest.raises(UserError, match="name at least one"):
        backend([])
    broken = folder(Broken=ADD_RELU.replace("def pattern(a, b):", "def other(a, b):"))
    with pytest.raises(UserError, match="defines no function pattern"):
        backend([broken], trusted=True)


def test_another_backend_gets_the_rewritten_graph() -> None:
    seen: list[torch.fx.GraphModule] = []

    def own(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(module)
        return module.forward

    with torch.no_grad():
        compiled(backend([add_relu()], then=own))(torch.randn(4, 8))
    assert sum("passwright_apply" in str(node.target) for node in seen[0].graph.nodes) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder_name", "model", "sites", "nodes"),
    [("mask_pooling_h2_numba", "bge_like", 1, 7), ("window_layernorm_h1_numba", "maskformer_swin", 3, 24)],
)
def test_the_paper_s_showcase_passes_in_whole_models(folder_name: str, model: str, sites: int, nodes: int) -> None:
    from examples import showcase_models

    module, args, kwargs = getattr(showcase_models, model)()
    passes = backend(Path("examples") / folder_name / "pass_dir", then="eager")
    with torch.inference_mode():
        expected = tensors_in(module(*args, **kwargs))
        found = tensors_in(compiled(passes, module, dynamic=False)(*args, **kwargs))
    assert (passes.report.num_applied, passes.report.num_replaced_nodes) == (sites, nodes)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_ratios_have_intervals_that_hold_what_is_the_same() -> None:
    one = VariantFigures(compile_s=0.0, samples_us=[100.0, 120.0, 90.0, 110.0])
    twice = VariantFigures(compile_s=0.0, samples_us=[50.0, 60.0, 45.0, 55.0])
    assert ratio(one, twice).speedup == pytest.approx(2.0) and ratio(one, twice).low == pytest.approx(2.0)
    assert ratio(one, one).speedup == 1.0
    noisy = ratio(one, VariantFigures(compile_s=0.0, samples_us=[110.0, 100.0, 100.0, 100.0]))
    assert noisy.low < 1.0 < noisy.high
    assert tensors_in({"a": [torch.ones(1), None], "b": torch.ones(2)})[1].numel() == 2
