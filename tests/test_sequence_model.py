"""The hidden Markov model of operator sequences: what it calls rare, and which transitions a choice covers."""

from __future__ import annotations

import builtins
import itertools
from collections import Counter
from typing import Any

import pytest

from data.construct.selection import select_evaluation_sequences
from data.construct.sequence_model import SequenceModelError, coverage, rarities
from data.passbench import load_tasks
from data.splits import operator_sequence

USUAL = [
    (norm, *middle, last)
    for norm, middle, last in itertools.product(
        ("layer_norm", "rms_norm"), (("add",), ("mul", "add"), ("add", "mul", "add")), ("relu", "gelu", "silu")
    )
]


@pytest.mark.parametrize("model", ["hmm", "chain"])
def test_what_no_other_sequence_is_like_is_rare(model: Any) -> None:
    pytest.importorskip("hmmlearn")
    odd = ("fft", "roll", "cumsum")
    found = rarities({**dict.fromkeys(USUAL, 40), odd: 1}, model)
    assert found[odd] == 1.0 and min(found.values()) == 0.0
    assert all(value < 0.7 for sequence, value in found.items() if sequence != odd)
    assert found == rarities({odd: 1, **dict.fromkeys(reversed(USUAL), 40)}, model)
    assert rarities({("add",): 5}, model) == {("add",): 0.0} and rarities({}, model) == {}


def test_hidden_states_share_what_is_known_of_operators_in_like_places() -> None:
    """rms_norm -> silu was never seen beside its many likes; the chain calls it as odd as a pair of strangers."""
    pytest.importorskip("hmmlearn")
    pool = {sequence: 60 for sequence in USUAL if sequence[:2] != ("rms_norm", "add")}
    like, strange = ("rms_norm", "add", "relu"), ("relu", "rms_norm", "relu")
    found = rarities({**pool, like: 1, strange: 1}, "hmm")
    assert found[like] < found[strange]


def test_a_choice_from_the_set_that_ships_covers_rare_transitions() -> None:
    pytest.importorskip("hmmlearn")
    occurrences = Counter(operator_sequence(graph) for task in load_tasks("mini") for graph in task.graphs)
    chosen = select_evaluation_sequences(occurrences, 12, rarities(occurrences, "hmm"))
    usual = [sequence for sequence, _ in occurrences.most_common(12)]
    assert coverage(chosen, occurrences)["rare_transitions"] > coverage(usual, occurrences)["rare_transitions"]
    assert coverage(occurrences, occurrences) == {"transitions": 1.0, "rare_transitions": 1.0}
    assert coverage([], occurrences) == {"transitions": 0.0, "rare_transitions": 0.0}


def test_a_missing_library_is_an_error_that_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("hmmlearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SequenceModelError, match=r"passwright\[tasks\].*chain"):
        rarities(dict.fromkeys(USUAL, 1), "hmm")
    assert rarities(dict.fromkeys(USUAL, 1), "chain")
