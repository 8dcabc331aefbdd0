"""How rare a sequence of operators is, under a model of all sequences (PassNet, Appendix B: "a (hidden) Markov model").

chain   a Markov chain: operator -> next operator
hmm     hidden states emit operators (hmmlearn's CategoricalHMM), so that operators which stand in like places share
        what is known of them: a new pair of two usual neighbours is less of a surprise than a new pair of strangers

Both give the mean of -log P over a sequence, scaled to 0..1. hmmlearn is an extra (`tasks`) and is imported on use.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from data.construct.bucketing import Operators

logger = logging.getLogger(__name__)

SequenceModel = Literal["hmm", "chain"]

START = "<start>"
"""Stands before the first operator: a sequence of one operator has a transition too."""
SMOOTHING = 1e-3
"""Added to the count of every transition, so that a rare one is not infinitely surprising."""
NUM_STATES = (4, 8, 16)
"""Hidden states that are tried; the least Bayesian information criterion decides."""
MAX_ITERATIONS = 60
PRIOR = 1.01
"""Of Dirichlet distributions: a state that nothing leaves, in sequences of one operator, has a row that sums to 1."""
DIGITS = 3
"""Of a rarity: the last digits of a likelihood differ between processors, and a choice must not."""


class SequenceModelError(RuntimeError):
    """The library of the configured model is not installed."""


def transitions(sequence: Operators) -> list[tuple[str, str]]:
    """Each operator with the one before it."""
    return list(pairwise((START, *sequence)))


def rarities(occurrences: Mapping[Operators, int], model: SequenceModel = "hmm") -> dict[Operators, float]:
    """Sequence -> 0 (the most usual) to 1. occurrences: how often each was found. All 0 if they do not differ.

    Raises SequenceModelError where hmmlearn is missing.
    """
    surprises = _chain_surprises(occurrences) if model == "chain" else _hmm_surprises(occurrences)
    low, high = min(surprises.values(), default=0.0), max(surprises.values(), default=0.0)
    span = high - low
    return {
        sequence: round((surprises.get(sequence, low) - low) / span, DIGITS) if span > 0 else 0.0
        for sequence in occurrences
    }


def check_available(model: SequenceModel) -> None:
    """Raises SequenceModelError where the model's library is missing."""
    if model == "hmm":
        _hmm_class()


def coverage(chosen: Collection[Operators], occurrences: Mapping[Operators, int]) -> dict[str, float]:
    """Shares of all transitions, and of the rare ones (that one or two distinct sequences have), in the chosen."""
    in_sequences = Counter(edge for sequence in occurrences for edge in set(transitions(sequence)))
    rare = {edge for edge, times in in_sequences.items() if times <= 2}
    found = {edge for sequence in chosen for edge in transitions(sequence)}
    return {
        "transitions": len(found & in_sequences.keys()) / max(len(in_sequences), 1),
        "rare_transitions": len(found & rare) / max(len(rare), 1),
    }


def _chain_surprises(occurrences: Mapping[Operators, int]) -> dict[Operators, float]:
    counts: Counter[tuple[str, str]] = Counter()
    for sequence, times in occurrences.items():
        for edge in transitions(sequence):
            counts[edge] += times
    leaving: Counter[str] = Counter()
    for (source, _), times in counts.items():
        leaving[source] += times
    num_operators = len({operator for edge in counts for operator in edge})

    def surprise(edge: tuple[str, str]) -> float:
        return -math.log((counts[edge] + SMOOTHING) / (leaving[edge[0]] + SMOOTHING * num_operators))

    return {
        sequence: sum(map(surprise, edges)) / len(edges) for sequence in occurrences if (edges := transitions(sequence))
    }


def _hmm_surprises(occurrences: Mapping[Operators, int]) -> dict[Operators, float]:
    sequences = sorted(sequence for sequence in occurrences if sequence)
    operators = sorted({operator for sequence in sequences for operator in sequence})
    if len(operators) < 2:
        return dict.fromkeys(sequences, 0.0)
    codes = {operator: code for code, operator in enumerate(operators)}
    model = _fitted(sequences, occurrences, codes)
    return {sequence: -model.score(_column([sequence], codes)) / len(sequence) for sequence in sequences}


def _fitted(sequences: list[Operators], occurrences: Mapping[Operators, int], codes: Mapping[str, int]) -> Any:
    """The model with the best criterion.

    A sequence counts 1 + log2 of its occurrences: a layer that a network repeats fifty times is no fifty pieces of
    evidence.
    """
    weighted = [sequence for sequence in sequences for _ in range(1 + int(math.log2(occurrences[sequence])))]
    column, lengths = _column(weighted, codes), [len(sequence) for sequence in weighted]
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)  # it warns of every step that gains less than a rounding
    best, best_criterion = None, math.inf
    for num_states in NUM_STATES:
        if best is not None and num_states > len(codes):
            break
        model = _hmm_class()(
            n_components=num_states,
            n_features=len(codes),
            n_iter=MAX_ITERATIONS,
            random_state=0,
            startprob_prior=PRIOR,
            transmat_prior=PRIOR,
            emissionprob_prior=PRIOR,
        )
        criterion = float(model.fit(column, lengths).bic(column, lengths))
        logger.info("hidden Markov model of %d sequences, %d states: BIC %.0f", len(sequences), num_states, criterion)
        if criterion < best_criterion:
            best, best_criterion = model, criterion
    return best


def _hmm_class() -> Any:
    try:
        from hmmlearn.hmm import CategoricalHMM
    except ImportError:
        raise SequenceModelError(
            "splits.sequence_model=hmm needs hmmlearn: pip install 'passwright[tasks]', or set it to chain"
        ) from None
    return CategoricalHMM


def _column(sequences: list[Operators], codes: Mapping[str, int]) -> np.ndarray:
    """(total length, 1): hmmlearn's form of many sequences."""
    return np.array([[codes[operator]] for sequence in sequences for operator in sequence], dtype=np.int64)
