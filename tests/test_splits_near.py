"""Near duplicates of evaluation sequences are held out of training too, however they are spelled."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.graph import Graph
from data.passbench import load_tasks
from data.sequence_overlap import histogram, nearest, ngrams, normalised_sequence, overlaps
from data.splits import hold_out, leak_report, near_duplicates, operator_sequence, overlap_report
from data.task import Task


def ops(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("add relu", "iadd relu_"),
        ("add mul", "__iadd__ __mul__"),
        ("div", "true_divide"),
        ("sub mul", "subtract multiply"),
        ("view transpose matmul", "reshape swapaxes bmm"),
        ("to pow mean add rsqrt mul to mul", "pow mean add rsqrt mul mul"),
        ("dropout add layer_norm", "add contiguous layer_norm"),
        ("add+mul gelu", "add mul gelu"),
    ],
)
def test_spellings_of_one_sequence(one: str, other: str) -> None:
    assert normalised_sequence(ops(one)) == normalised_sequence(ops(other))
    (found,) = near_duplicates([ops(one)], [ops(other)], threshold=1.0)
    assert (found.train, found.held_out, found.overlap) == (ops(one), ops(other), 1.0)


@pytest.mark.parametrize(("one", "other"), [("add", "sub"), ("add relu", "relu add"), ("softmax", "log_softmax")])
def test_different_sequences_stay_different(one: str, other: str) -> None:
    assert normalised_sequence(ops(one)) != normalised_sequence(ops(other))
    assert near_duplicates([ops(one)], [ops(other)], threshold=1.0) == []


def test_overlap_by_hand() -> None:
    # marked: ^ a b c $ -> ^ab abc bc$;  ^ a b c d $ -> ^ab abc bcd cd$
    assert ngrams(ops("a b c")) == {("<start>", "a", "b"), ("a", "b", "c"), ("b", "c", "<end>")}
    assert ngrams(ops("a")) == {("<start>", "a", "<end>")}
    train, held_out = [ops("a b c d"), ops("x y")], [ops("a b c"), ops("a b c d e f")]
    assert list(overlaps(train, held_out)) == [(0, 0, 2 / 5), (0, 1, 3 / 7)]
    assert list(overlaps(train, held_out, measure="containment")) == [(0, 0, 2 / 3), (0, 1, 3 / 4)]
    assert [(entry.held_out, entry.overlap) for entry in nearest(train, held_out)] == [
        (ops("a b c d e f"), 3 / 7),
        ((), 0.0),
    ]
    assert histogram([0.0, 0.09, 0.1, 0.3, 0.95, 1.0]) == (2, 1, 0, 1, 0, 0, 0, 0, 0, 2)


def test_hold_out_drops_what_is_evaluated_and_what_is_nearly_so() -> None:
    evaluation = [ops("mul add softmax"), ops("conv2d batch_norm relu add")]
    pool = [
        *evaluation[:1],
        ops("mul_ iadd softmax to"),  # the same, spelled otherwise
        ops("conv2d batch_norm relu add mul"),  # 3 of 6 3-grams
        ops("conv2d batch_norm gelu"),  # 1 of 6
        ops("embedding layer_norm"),
    ]
    found = hold_out(pool, evaluation, threshold=0.5)
    assert found.train == (ops("conv2d batch_norm gelu"), ops("embedding layer_norm"))
    assert [(entry.train, entry.held_out, entry.overlap) for entry in found.dropped] == [
        (pool[1], evaluation[0], 1.0),
        (pool[2], evaluation[1], 0.5),
    ]
    report = found.report
    assert (report.num_train, report.num_held_out, report.num_same, report.num_dropped) == (2, 2, 1, 2)
    assert (report.max_overlap, report.mean_overlap) == (1 / 6, 1 / 12)
    assert report.histogram == (1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    assert report.dropped == (0, 0, 0, 0, 0, 1, 0, 0, 0, 1)
    text = "\n".join(report.lines())
    assert "2 near duplicates (jaccard of 3-grams >= 0.5; by tenths 0 0 0 0 0 1 0 0 0 1)" in text
    assert "max 0.167, mean 0.083" in text
    assert hold_out(pool, evaluation, threshold=0.51).dropped[0].overlap == 1.0
    assert len(hold_out(pool, evaluation, threshold=0.51).train) == 3
    assert hold_out(pool, []).train == tuple(sorted(pool))
    for threshold in (0.0, 1.5):
        with pytest.raises(ValueError, match="threshold"):
            hold_out(pool, evaluation, threshold=threshold)
    with pytest.raises(ValueError, match="n is 0"):
        hold_out(pool, evaluation, n=0)


SEQUENCES = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=7).map(tuple), max_size=12)


@settings(max_examples=60, deadline=None)
@given(SEQUENCES, SEQUENCES, st.integers(1, 4), st.sampled_from(["jaccard", "containment"]), st.floats(0.05, 1.0))
def test_what_is_left_is_far_from_what_is_held_out(pool, evaluation, n, measure, threshold) -> None:  # type: ignore[no-untyped-def]
    found = hold_out(pool, evaluation, n=n, measure=measure, threshold=threshold)

    def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> float:
        ours, theirs = ngrams(one, n), ngrams(other, n)
        whole = len(ours | theirs) if measure == "jaccard" else min(len(ours), len(theirs))
        return len(ours & theirs) / whole

    dropped = {entry.train for entry in found.dropped}
    assert set(found.train) | dropped | (set(pool) & set(evaluation)) == set(pool)
    for sequence in set(pool) - set(evaluation):
        most = max((overlap(sequence, other) for other in evaluation), default=0.0)
        assert (sequence in dropped) == (most >= threshold)
    assert found.report.max_overlap < threshold
    assert sum(found.report.histogram) == found.report.num_train == len(found.train)
    assert near_duplicates(found.train, evaluation, n=n, measure=measure, threshold=threshold) == []


def test_a_thousand_by_a_thousand_takes_seconds() -> None:
    generator = random.Random(0)
    names = ops("add mul sub relu gelu softmax layer_norm view transpose getitem cat matmul linear mean conv2d sigmoid")
    sequences = list({tuple(generator.choices(names, k=generator.randint(2, 35))) for _ in range(2100)})[:2000]
    start = time.process_time()
    report = hold_out(sequences[:1000], sequences[1000:]).report
    assert time.process_time() - start < 5.0  # about half a second of one core
    assert report.num_train + report.num_dropped == 1000


def graph_of(body: str) -> Graph:
    source = f"import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, x):\n        return ({body},)"
    meta = 'class Program_weight_tensor_meta_x:\n\tname = "x"\n\tshape = [4]\n\tdtype = "torch.float32"\n'
    return Graph("g", {"model.py": source, "weight_meta.py": meta, "graph_net.json": "{}"})


def test_the_overlap_of_tasks_counts_every_train_and_eval_split() -> None:
    tasks = [
        Task("a", (graph_of("x.sin().cos().exp()"),), split="train"),
        Task("b", (graph_of("x.tan()"),), split="train_classical"),
        Task("c", (graph_of("x.sin().cos().exp().tan()"),), split="eval_classical"),
        Task("d", (graph_of("x.relu()"),), split="eval"),
        Task("e", (graph_of("x.tan()"),), split="single_op"),
    ]
    report = overlap_report(tasks)
    assert (report.num_train, report.num_held_out, report.num_same, report.threshold) == (2, 2, 0, None)
    assert report.overlaps == (0.0, 2 / 5)
    assert "in both: 0" in report.lines()
    leaky = [*tasks, replace(tasks[1], task_id="f", split="eval")]
    assert [pair[:2] for pair in leak_report(leaky).shared_sequences] == [("b", "f")]
    assert overlap_report(leaky).num_same == 1


def test_what_the_bundled_mini_tasks_have_in_common() -> None:
    """mini is split by exact sequence only: BERT's residual LayerNorm differs from ViT's by a dropout that is off."""
    tasks = load_tasks("mini")
    train, held_out = (
        {operator_sequence(task.graphs[0]) for task in tasks if task.split == split} for split in ("train", "eval")
    )
    assert [entry.train for entry in near_duplicates(train, held_out)] == [ops("add layer_norm")]
