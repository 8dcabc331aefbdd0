"""Recursive folding: the paper's example, a slow exact fold beside it, positions, pictures, and speed."""

from __future__ import annotations

import random
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.construct import folding
from data.construct.folding import FoldResult, Occurrence, fold
from data.construct.pictures import EXAMPLE, example_folds, folding_svg, main

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "folding.svg"

Reference = tuple[str, tuple[str, ...], int, tuple[tuple[int, int, int], ...]]


def slow_fold(sequences: Sequence[Sequence[str]], max_folds: int, max_window: int) -> list[Reference]:
    """Every window of every length compared with every other, no hashes: (symbol, sequence, count, occurrences)."""
    corpus = [[(name, index, index + 1) for index, name in enumerate(sequence)] for sequence in sequences]
    rules: list[Reference] = []
    while len(rules) < max_folds:
        best: tuple[int, int, tuple[int, int]] | None = None
        best_run: tuple[str, ...] = ()
        for sequence in corpus:
            for start in range(len(sequence)):
                for length in range(2, min(max_window, len(sequence) - start) + 1):
                    run = tuple(name for name, _, _ in sequence[start : start + length])
                    places = slow_places(corpus, run)
                    candidate = ((length - 1) * (len(places) - 1), length, (-places[0][0], -places[0][1]))
                    if len(places) > 1 and (best is None or candidate > best):
                        best, best_run = candidate, run
        if best is None:
            break
        symbol, length = f"r{len(rules)}", len(best_run)
        places = slow_places(corpus, best_run)
        spans = tuple((owner, corpus[owner][at][1], corpus[owner][at + length - 1][2]) for owner, at in places)
        rules.append((symbol, best_run, len(places), spans))
        for owner, at in reversed(places):
            part = corpus[owner][at : at + length]
            corpus[owner][at : at + length] = [(symbol, part[0][1], part[-1][2])]
    return rules


def slow_places(corpus: list[list[tuple[str, int, int]]], run: tuple[str, ...]) -> list[tuple[int, int]]:
    found = []
    for owner, sequence in enumerate(corpus):
        at = 0
        while at + len(run) <= len(sequence):
            if tuple(name for name, _, _ in sequence[at : at + len(run)]) == run:
                found.append((owner, at))
                at += len(run)
            else:
                at += 1
    return found


def as_reference(result: FoldResult) -> list[Reference]:
    return [
        (rule.symbol, rule.sequence, rule.count, tuple((o.sequence, o.start, o.stop) for o in rule.occurrences))
        for rule in result.rules
    ]


corpora = st.lists(st.lists(st.sampled_from("abc"), max_size=14).map(tuple), max_size=4)


@settings(deadline=None, max_examples=150)
@given(corpora, st.integers(0, 5), st.integers(2, 8))
def test_folds_are_those_of_a_slow_exact_fold(sequences: list[tuple[str, ...]], max_folds: int, window: int) -> None:
    result = fold(sequences, max_folds=max_folds, max_window=window, min_ops=1)
    assert as_reference(result) == slow_fold(sequences, max_folds, window)
    written_out = {rule.symbol: rule.operators for rule in result.rules}
    for rule in result.rules:
        for place in rule.occurrences:
            assert tuple(sequences[place.sequence][place.start : place.stop]) == rule.operators
        assert rule.score == (len(rule.sequence) - 1) * (rule.count - 1) > 0
    for sequence, folded in zip(sequences, result.folded, strict=True):
        assert sequence == tuple(name for symbol in folded for name in written_out.get(symbol, (symbol,)))


@settings(deadline=None, max_examples=60)
@given(corpora)
def test_equal_hashes_of_different_runs_do_no_harm(sequences: list[tuple[str, ...]]) -> None:
    moduli, folding._MODULI = folding._MODULI, ((1, 3), (1, 2))
    try:
        assert as_reference(fold(sequences, max_folds=4, max_window=6)) == slow_fold(sequences, 4, 6)
    finally:
        folding._MODULI = moduli


def test_the_papers_example() -> None:
    result = example_folds()
    assert [rule.sequence for rule in result.rules] == [("conv2d", "batch_norm"), ("r0", "relu")]
    assert [rule.operators for rule in result.results] == [("conv2d", "batch_norm"), ("conv2d", "batch_norm", "relu")]
    assert fold([text.split() for text in EXAMPLE.values()], max_folds=2).results == ()  # fewer than four operators


def test_the_place_of_a_rule_is_told_in_original_positions() -> None:
    result = fold([["x", "conv", "bn", "relu", "conv", "bn", "add", "conv", "bn"], ["conv", "bn", "relu"]], max_folds=2)
    first, second = result.rules
    assert first.occurrences == (Occurrence(0, 1, 3), Occurrence(0, 4, 6), Occurrence(0, 7, 9), Occurrence(1, 0, 2))
    assert second.occurrences == (Occurrence(0, 1, 4), Occurrence(1, 0, 3))
    assert result.folded == (("x", "r1", "r0", "add", "r0"), ("r1",))


def test_sizes_ties_and_edges() -> None:
    block = [f"op{index}" for index in range(100)]
    result = fold([block, ["other", *block]], max_window=64)
    assert [len(rule.operators) for rule in result.rules[:2]] == [64, 100]  # the window, then what is left with it
    assert [len(rule.operators) for rule in result.results] == [64]
    assert fold([["a", "b"], ["a", "b"], ["c", "d"], ["c", "d"]]).rules[0].sequence == ("a", "b")  # the first of two
    assert fold([["a", "a", "a"]]).rules == ()  # two runs that overlap are one
    assert fold([]).rules == fold([[], []]).rules == fold([["a"]]).rules == ()
    assert fold([["a", "b", "a"], ["b", "a"]]).rules[0].sequence == ("b", "a")
    assert fold([["r0", "b"], ["r0", "b"]]).rules[0].symbol == "r0_"  # an operator has the name already
    with pytest.raises(ValueError, match="max_window 1"):
        fold([], max_window=1)


def test_a_corpus_of_many_long_graphs_folds_in_seconds() -> None:
    draw = random.Random(0)
    names = [f"op{index}" for index in range(60)]
    layers = [[draw.choice(names) for _ in range(draw.randint(8, 40))] for _ in range(25)]
    corpus: list[list[str]] = []
    for _ in range(100):
        layer = draw.choice(layers)
        graph: list[str] = []
        while len(graph) < 500:
            graph += draw.choice([layer, layer, layer, [draw.choice(names)]])
        corpus.append(graph[:500])
    began = time.process_time()
    result = fold(corpus, max_folds=4)
    assert time.process_time() - began < 20  # about 1: a tenth of what 300 graphs and 16 folds take
    assert len(result.rules) == 4
    assert all(rule.operators in {tuple(layer) for layer in layers} for rule in result.rules)


def test_the_picture_is_drawn_from_the_result(tmp_path: Path) -> None:
    out = tmp_path / "folding.svg"
    main(["folding", "--out", str(out)])
    text, result = out.read_text(encoding="utf-8"), example_folds()
    assert text == folding_svg(result, list(EXAMPLE)) == PICTURE.read_text(encoding="utf-8")
    shown = [node.text for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    num_convolutions = " ".join(EXAMPLE.values()).split().count("conv2d")
    folded = result.rules[0].count
    # all of them in the first panel; those without batch_norm in the two others
    assert shown.count("conv2d") == num_convolutions + 2 * (num_convolutions - folded)
    assert shown.count("a") == folded + folded - result.rules[1].count
    assert shown.count("b") == result.rules[1].count
    assert "Fold 1: [conv2d, batch_norm] -> a, 9 times, score (2 - 1) x (9 - 1) = 8" in shown
    counted = replace(result, rules=(replace(result.rules[0], count=99), result.rules[1]))
    assert "a, 99 times, score (2 - 1) x (99 - 1) = 98" in folding_svg(counted).replace("&gt;", ">")
