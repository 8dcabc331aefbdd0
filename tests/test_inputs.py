"""Inputs: upstream's way to the letter, ours with a floor and a spread, and windows that are cheap and differ."""

from __future__ import annotations

import random

import pytest
import torch

from data.graph import Graph, MalformedGraphError
from data.inputs import MIN_STD, InputPool, draw_inputs, variance_arguments


def meta(name: str, shape: list[int], dtype: str = "float32", **fields: object) -> str:
    values = {"name": name, "shape": shape, "dtype": f"torch.{dtype}", "device": "cuda:0", "mean": 0.0, "std": 1.0}
    values |= fields
    return f"class Program_weight_tensor_meta_L_{name}_:\n" + "".join(f"\t{k} = {v!r}\n" for k, v in values.items())


def graph_of(*metas: str, body: str = "return (in_0,)") -> Graph:
    names = [text.split("\n")[1].split("=")[1].strip(" '\"") for text in metas]
    head = f"    def forward(self, {', '.join(names)}):"
    source = f"import torch\nclass GraphModule(torch.nn.Module):\n{head}\n        {body}\n"
    return Graph("g", {"model.py": source, "weight_meta.py": "\n".join(metas), "graph_net.json": "{}"})


def test_passnet_draws_follow_upstreams_formula_in_the_order_of_class_names() -> None:
    graph = graph_of(meta("in_10", [3], mean=2.0, std=5.0), meta("in_2", [4], "bfloat16", mean=None, std=None))
    drawn = draw_inputs(graph, seed=123, mode="passnet")
    assert list(drawn) == ["in_10", "in_2"]
    torch.manual_seed(123)  # L_in_10_ sorts before L_in_2_
    assert torch.equal(drawn["in_10"], torch.randn(3) * 5.0 * 0.2 + 2.0)
    assert torch.equal(drawn["in_2"], torch.randn(4).to(torch.bfloat16) * 0.1 * 0.2 + 0.0)


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({"mean": 0.5, "std": 0.0}, 0.5, 0.5),
        ({"mean": 500.0, "std": 1.0}, 100.0, 100.0),
        ({"mean": -500.0, "std": 1.0}, -100.0, -100.0),
        ({"mean": 0.0, "std": 100.0, "min_val": -1.0, "max_val": 2.0}, -1.0, 2.0),
        ({"mean": 3.0, "std": 1.0, "data": [1.0, 2.0] * 50}, 1.0, 2.0),
    ],
)
def test_passnet_constants_clamps_and_data(fields: dict[str, object], low: float, high: float) -> None:
    values = draw_inputs(graph_of(meta("in_0", [100], **fields)), seed=1, mode="passnet")["in_0"]
    assert (float(values.min()), float(values.max())) == (low, high)


def test_passnet_replaces_what_is_not_finite() -> None:
    text = meta("in_0", [1000]).replace("std = 1.0", "std = float('nan')")
    values = draw_inputs(graph_of(text), seed=1, mode="passnet")["in_0"]
    torch.manual_seed(1)
    assert torch.equal(values, torch.randn(1000) * 0.01)


def test_robust_draws_have_the_stated_statistics_and_a_floor() -> None:
    graph = graph_of(
        meta("in_0", [20_000], mean=3.0, std=2.0), meta("in_1", [20_000], std=0.0), meta("in_2", [20_000], std=0.03)
    )
    drawn = draw_inputs(graph, seed=1)
    assert float(drawn["in_0"].mean()) == pytest.approx(3.0, abs=0.05)
    assert float(drawn["in_0"].std()) == pytest.approx(2.0, rel=0.03)
    assert float(drawn["in_1"].std()) == pytest.approx(MIN_STD, rel=0.03)
    assert float(drawn["in_2"].std()) == pytest.approx(0.03, rel=0.03)
    weights = draw_inputs(graph_of(meta("in_0", [20_000], mean=1.0, std=0.0)), seed=1)["in_0"]
    assert float(weights.std()) == pytest.approx(0.1, rel=0.03)
    spread = draw_inputs(graph, seed=1, spread=True)["in_0"]
    assert float(spread.std()) > 1.5 * float(drawn["in_0"].std())
    far = draw_inputs(graph_of(meta("in_0", [1000], mean=500.0, std=1.0)), seed=1)["in_0"]
    assert float(far.std()) > 1  # upstream's clamp would make it constant


def test_draws_depend_on_the_seed_alone() -> None:
    graph = graph_of(meta("in_0", [50]), meta("in_1", [50], "float16"))
    torch.manual_seed(0)
    one = draw_inputs(graph, seed=5)
    state = torch.get_rng_state()
    two = draw_inputs(graph, seed=5)
    assert torch.equal(state, torch.get_rng_state())  # the process-wide generator is not touched
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["in_0"], draw_inputs(graph, seed=6)["in_0"])


@pytest.mark.parametrize("mode", ["robust", "passnet"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_float_dtypes(mode: str, dtype: str) -> None:
    values = draw_inputs(graph_of(meta("in_0", [4, 5], dtype)), seed=1, mode=mode)["in_0"]  # type: ignore[arg-type]
    assert (values.dtype, tuple(values.shape)) == (getattr(torch, dtype), (4, 5))
    assert values.is_contiguous()
    assert torch.view_as_real(values.to(torch.complex128)).unique().numel() > 10


@pytest.mark.parametrize("mode", ["robust", "passnet"])
def test_integers_stay_in_bounds_and_masks_stay_zero_or_one(mode: str) -> None:
    none = {"mean": None, "std": None}
    graph = graph_of(
        meta("in_0", [500], "int64", min_val=3, max_val=9, **none),
        meta("in_1", [500], "int32", **none),
        meta("in_2", [500], "bool", **none),
        meta("in_3", [], "int64", data=[7], **none),
    )
    drawn = draw_inputs(graph, seed=1, mode=mode)  # type: ignore[arg-type]
    assert set(drawn["in_0"].tolist()) == set(range(3, 10))
    assert set(drawn["in_1"].tolist()) == {0, 1}
    assert drawn["in_2"].dtype is torch.bool
    assert 150 < int(drawn["in_2"].sum()) < 350
    assert drawn["in_3"].shape == ()
    assert int(drawn["in_3"]) == 7


def test_running_variance_is_positive_and_additive_masks_are_two_valued() -> None:
    body = "return (torch.nn.functional.batch_norm(in_0, in_1, in_2, None, None, False, 0.1, 1e-05),)"
    graph = graph_of(meta("in_0", [2, 500]), meta("in_1", [500]), meta("in_2", [500], mean=0.1), body=body)
    assert variance_arguments(graph) == {"in_2"}
    assert float(draw_inputs(graph, seed=1, spread=True)["in_2"].min()) > 0
    mask = draw_inputs(graph_of(meta("in_0", [1000], "float16", mean=-16376.0, std=28000.0)), seed=1)["in_0"]
    assert set(mask.unique().tolist()) == {-10000.0, 0.0}


def test_faults_in_a_meta_are_named() -> None:
    with pytest.raises(MalformedGraphError, match=r"L_in_0_: data holds 2 values"):
        draw_inputs(graph_of(meta("in_0", [3], data=[1, 2])), seed=1)
    # an unknown dtype is refused when the graph is made, before anything is evaluated with it
    with pytest.raises(MalformedGraphError, match=r"weight_meta\.py:1: class \w+L_in_0_: .*torch\.float33 is no dtype"):
        graph_of(meta("in_0", [3], "float33"))


@pytest.mark.parametrize("mode", ["robust", "passnet"])
def test_pool_windows_differ_and_have_the_statistics(mode: str) -> None:
    none = {"mean": None, "std": None}
    graph = graph_of(
        meta("in_1", [64, 32], mean=1.0, std=2.0),
        meta("in_0", [7], "int64", min_val=2, max_val=4, **none),
        meta("in_2", [2], data=[1.0, 2.0]),
        meta("in_3", [16], "bool", **none),
    )
    pool = InputPool(graph, seed=3, mode=mode)  # type: ignore[arg-type]
    chooser = random.Random(0)
    offsets = [pool.draw_offsets(chooser) for _ in range(20)]
    assert list(pool.pools) == list(graph.arguments) and all(len(row) == 4 for row in offsets)
    windows = [
        {
            name: values[offset : offset + graph.specs[name].num_elements]
            for (name, values), offset in zip(pool.pools.items(), row, strict=True)
        }
        for row in offsets
    ]
    assert len({tuple(window["in_1"].tolist()) for window in windows}) == 20
    for window in windows:
        assert [window[name].numel() for name in graph.arguments] == [spec.num_elements for spec in graph_specs(graph)]
        assert window["in_2"].tolist() == [1.0, 2.0]
        assert set(window["in_0"].tolist()) <= {2, 3, 4}
        assert window["in_1"].mean() == pytest.approx(1.0, abs=0.3)
    # offsets of different tensors are independent: equal floats do not mean equal integers
    assert len({row[list(graph.arguments).index("in_0")] for row in offsets}) > 1
    assert pool.num_bytes == 64 * 32 * 4 + 7 * 8 + 2 * 4 + 16


def graph_specs(graph):
    return [graph.specs[name] for name in graph.arguments]
