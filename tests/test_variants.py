"""Variants of graphs: the same operators at other sizes and dtypes, which eager really runs."""

from __future__ import annotations

import random

import pytest
import torch

from data.inputs import draw_inputs
from data.passbench import load_tasks
from eval_harness.ir_execution import build_module
from eval_harness.tracing import trace_graph
from eval_harness.variant_changes import needs_growth
from eval_harness.variants import VariantSource, runs_on_cpu
from tests.graph_helpers import make_graph

TASKS = list(load_tasks("mini"))


def source(body, **specs):
    return VariantSource(trace_graph(make_graph(body, **specs)))


def shapes(variant):
    return {name: spec.shape for name, spec in variant.graph.specs.items()}


@pytest.mark.parametrize("task", TASKS, ids=[task.task_id for task in TASKS])
def test_every_bundled_graph_has_variants_that_eager_runs(task):
    graph = task.graphs[0]
    found = VariantSource(trace_graph(graph))
    generator = random.Random(1)
    by_shape = [variant for variant, _ in zip(found.draw_shapes(generator), range(2), strict=False)]
    by_dtype = list(found.draw_dtypes(generator))
    assert len(by_shape) == 2
    for variant in [*by_shape, *by_dtype[:1]]:
        assert runs_on_cpu(variant)
        outputs = build_module(variant.traced.ir, {}, device=torch.device("cpu"))(
            *draw_inputs(variant.graph, seed=0).values()
        )
        assert all(output.numel() for output in outputs)
        assert variant.graph.content_hash != graph.content_hash


def test_a_size_changes_wherever_it_stands_and_is_drawn_anew():
    found = source("return (in_0 + in_1,)", in_0=((6, 40), "float32"), in_1=((40,), "float32"))
    seen = set()
    for seed in range(6):
        for variant in found.draw_shapes(random.Random(seed)):
            rows, columns = shapes(variant)["in_0"]
            assert shapes(variant)["in_1"] == (columns,)
            assert (rows == 6) != (columns == 40) and min(rows, columns) > 1
            seen.add((rows, columns))
    assert len(seen) > 6


def test_sizes_in_model_py_follow():
    body = "a = in_0.view(2, 40, 8)\nreturn (a * 40,)"
    variants = list(source(body, in_0=((80, 8), "float32")).draw_shapes(random.Random(0)))
    assert variants
    for variant in variants:
        width = shapes(variant)["in_0"][1]
        assert shapes(variant)["in_0"][0] == 80 and f"view(2, 40, {width})" in variant.graph.model_source


def test_what_may_be_an_index_only_grows():
    body = "return (torch.nn.functional.embedding(in_0, in_1),)"
    graph = make_graph(body, in_0=((4, 9), "int64"), in_1=((50, 9), "float32"))
    assert needs_growth(graph)
    for variant in VariantSource(trace_graph(graph)).draw_shapes(random.Random(0)):
        for name, shape in shapes(variant).items():
            assert all(new >= old for new, old in zip(shape, graph.specs[name].shape, strict=True))


def test_stored_values_are_repeated_for_a_larger_tensor():
    graph = make_graph("return (in_0 + in_1,)", in_0=((4, 9), "float32"), in_1=((9,), "int64"))
    head, _, tail = graph.files["weight_meta.py"].rpartition("\tmean = 0.0")
    meta = f"{head}\tdata = {list(range(9))}\n\tmean = 0.0{tail}"
    graph = type(graph)("data", dict(graph.files) | {"weight_meta.py": meta})
    assert graph.specs["in_1"].data
    for variant in VariantSource(trace_graph(graph)).draw_shapes(random.Random(0)):
        values = draw_inputs(variant.graph, seed=0)["in_1"]
        assert values.tolist() == [i % 9 for i in range(len(values))]


def test_only_a_graph_of_one_float_dtype_that_names_none_has_dtype_variants():
    mixed = source("return (in_0 + in_1,)", in_0=((4, 9), "float32"), in_1=((9,), "bfloat16"))
    assert not list(mixed.draw_dtypes(random.Random(0)))
    for cast in ("in_0.to(torch.float32)", "in_0.float()", "torch.softmax(in_0, -1, dtype=torch.float32)"):
        assert not list(source(f"return ({cast} * 2,)", in_0=((4, 9), "bfloat16")).draw_dtypes(random.Random(0)))
    half = source("return (in_0 * 2,)", in_0=((4, 9), "bfloat16"))
    assert {variant.text for variant in half.draw_dtypes(random.Random(0))} == {
        "bfloat16 -> float32",
        "bfloat16 -> float16",
    }


def test_the_first_variant_is_larger():
    """A kernel whose loops are bounded by the task's own sizes is right at every smaller one."""
    found = source("return (in_0 + in_1,)", in_0=((60, 40), "float32"), in_1=((40,), "float32"))
    draws = [list(found.draw_shapes(random.Random(seed))) for seed in range(9)]
    sizes = [[variant.graph.specs["in_0"].num_elements for variant in variants] for variants in draws]
    assert all(first > 2400 for first, *_ in sizes) and any(size < 2400 for rest in sizes for size in rest)


def test_large_graphs_grow_little():
    found = source("return (in_0 * 2,)", in_0=((40, 1_000_000), "float32"))
    variants = [next(found.draw_shapes(random.Random(seed))) for seed in range(4)]
    assert all(variant.graph.specs["in_0"].num_elements <= 50_000_000 for variant in variants)


def test_a_variant_that_eager_refuses_is_not_drawn_again():
    found = source("return (in_0 * 2,)", in_0=((5,), "float32"))
    for seed in range(200):
        for variant in found.draw_shapes(random.Random(seed)):
            found.refuse(variant)
    assert not list(found.draw_shapes(random.Random(999)))
