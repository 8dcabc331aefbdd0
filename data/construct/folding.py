"""Recursive folding of a corpus's operator sequences: which runs repeat most (PassNet, classical subgraphs).

TLDR: hash every window of 2 to 64 symbols by a convolution; fold the window with the best (length - 1) * (count - 1)
into a new symbol wherever it stands; repeat up to 16 times. A rule may hold symbols of earlier rules:
[conv2d, batch_norm] -> a, [a, relu] -> b. Numpy only; cutting the occurrences out of graphs is not done here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Symbols = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]

_MODULI = ((1_000_003, 2_147_483_647), (1_500_450_271, 2_147_483_629))
"""(base, prime) of two hashes; primes below 2**31, so that products fit in 64 bits."""
_SEPARATOR = -1


@dataclass(frozen=True)
class Occurrence:
    """Where a rule was folded, in positions of the sequences as they were given."""

    sequence: int
    start: int
    stop: int


@dataclass(frozen=True)
class Rule:
    """A sequence of symbols that was folded into a new symbol."""

    symbol: str
    """"r0", "r1", ... in the order of folding."""
    sequence: tuple[str, ...]
    """Operators and symbols of earlier rules."""
    operators: tuple[str, ...]
    """The sequence with every rule written out."""
    count: int
    """Occurrences that do not overlap, counted from the left, when it was folded."""
    occurrences: tuple[Occurrence, ...]

    @property
    def score(self) -> int:
        """Symbols saved, less those of writing the rule down once: (length - 1) * (count - 1)."""
        return (len(self.sequence) - 1) * (self.count - 1)


@dataclass(frozen=True)
class FoldResult:
    """What folding found."""

    rules: tuple[Rule, ...]
    """Every fold, in order."""
    results: tuple[Rule, ...]
    """The rules with min_ops to max_ops operators: the classical subgraphs."""
    folded: tuple[tuple[str, ...], ...]
    """The sequences as they are after the last fold."""


def fold(
    sequences: Sequence[Sequence[str]],
    *,
    max_folds: int = 16,
    max_window: int = 64,
    min_ops: int = 4,
    max_ops: int = 64,
) -> FoldResult:
    """Fold the best repeated run up to max_folds times; runs never reach from one sequence into the next.

    Ties go to the longer run, then to the one that occurs first. A rule is folded whatever its size, because its parts
    may be worth reporting; results holds those of min_ops to max_ops operators. Raises ValueError.
    """
    if max_window < 2 or not 0 < min_ops <= max_ops:
        raise ValueError(f"max_window {max_window}, min_ops {min_ops}, max_ops {max_ops}: want >= 2 and 0 < min <= max")
    corpus = _Corpus(sequences)
    rules: list[Rule] = []
    while len(rules) < max_folds:
        best = _best_run(corpus.symbols, max_window)
        if best is None:
            break
        rules.append(corpus.replace(*best))
    kept = tuple(rule for rule in rules if min_ops <= len(rule.operators) <= max_ops)
    return FoldResult(tuple(rules), kept, corpus.sequences())


class _Corpus:
    """All sequences in one array, a separator after each, with the place of every symbol in the originals."""

    def __init__(self, sequences: Sequence[Sequence[str]]) -> None:
        self.num_sequences = len(sequences)
        self.num_rules = 0
        self.names = list(dict.fromkeys(operator for sequence in sequences for operator in sequence))
        numbers = {name: number for number, name in enumerate(self.names)}
        self.operators = [(name,) for name in self.names]
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        parts = [[*(numbers[operator] for operator in sequence), _SEPARATOR] for sequence in sequences]
        self.symbols: Symbols = np.array([number for part in parts for number in part], dtype=np.int64)
        self.owner = np.repeat(np.arange(len(sequences)), lengths + 1)
        self.start = np.concatenate([np.arange(length + 1) for length in lengths] or [np.zeros(0, np.int64)])
        self.stop = self.start + 1

    def replace(self, starts: Positions, length: int) -> Rule:
        """Put a new symbol where the run stands and return the rule."""
        run = self.symbols[starts[0] : starts[0] + length].tolist()
        symbol = f"r{self.num_rules}"
        self.num_rules += 1
        while symbol in self.names:  # an operator of that name
            symbol += "_"
        occurrences = tuple(
            Occurrence(int(self.owner[start]), int(self.start[start]), int(self.stop[start + length - 1]))
            for start in starts
        )
        operators = tuple(operator for number in run for operator in self.operators[number])
        rule = Rule(symbol, tuple(self.names[number] for number in run), operators, len(starts), occurrences)
        self.stop[starts] = self.stop[starts + length - 1]
        self.symbols[starts] = len(self.names)
        self.names.append(symbol)
        self.operators.append(operators)
        keep = np.ones(len(self.symbols), dtype=bool)
        keep[(starts[:, None] + np.arange(1, length)).ravel()] = False
        self.symbols, self.owner = self.symbols[keep], self.owner[keep]
        self.start, self.stop = self.start[keep], self.stop[keep]
        return rule

    def sequences(self) -> tuple[tuple[str, ...], ...]:
        found: list[list[str]] = [[] for _ in range(self.num_sequences)]
        for number, owner in zip(self.symbols.tolist(), self.owner.tolist(), strict=True):
            if number != _SEPARATOR:
                found[owner].append(self.names[number])
        return tuple(tuple(sequence) for sequence in found)


def _best_run(symbols: Symbols, max_window: int) -> tuple[Positions, int] | None:
    """(positions, length) of the run with the best score that occurs at least twice without overlap, or None."""
    windows = list(_windows(symbols, max_window))
    bounds = np.concatenate([_score_bounds(*window) for window in windows] or [np.zeros(0, np.int64)])
    first_group = np.cumsum([0, *(len(sizes) for _, _, sizes in windows)])
    first_place = [np.cumsum(sizes) - sizes for _, _, sizes in windows]
    best: tuple[int, int, int] = (0, 0, 0)  # score, length, -first position: the order of preference
    found: tuple[Positions, int] | None = None
    for group in np.argsort(-bounds, kind="stable").tolist():
        if bounds[group] < best[0]:
            break
        at = int(np.searchsorted(first_group, group, side="right")) - 1
        length, positions, sizes = windows[at]
        start = first_place[at][group - first_group[at]]
        for same in _exact(symbols, positions[start : start + sizes[group - first_group[at]]], length):
            apart = _without_overlap(same, length)
            score = ((length - 1) * (len(apart) - 1), length, -int(apart[0]))
            if len(apart) > 1 and score > best:
                best, found = score, (apart, length)
    return found


def _windows(symbols: Symbols, max_window: int) -> Iterator[tuple[int, Positions, npt.NDArray[np.int64]]]:
    """(length, positions, group sizes): where windows of each length begin, those of one hash in a row and in order.

    The hash is the convolution of the symbols with the powers of a base, grown by one symbol a length. A run repeats
    only if its beginning does, so positions whose hash is alone are dropped on the way.
    """
    values = (symbols + 2).astype(np.uint64)
    positions = np.flatnonzero(symbols != _SEPARATOR)
    hashes = [values[positions] * np.uint64(base) % np.uint64(prime) for base, prime in _MODULI]
    position_bits = np.uint64(len(symbols).bit_length())
    for length in range(2, max_window + 1):
        inside = positions + length - 1 < len(symbols)
        inside[inside] = symbols[positions[inside] + length - 1] != _SEPARATOR
        positions, hashes = positions[inside], [part[inside] for part in hashes]
        added = values[positions + length - 1]
        hashes = [
            (part + added) * np.uint64(base) % np.uint64(prime)
            for part, (base, prime) in zip(hashes, _MODULI, strict=True)
        ]
        # hash and place in one number: a plain sort of those is several times as fast as an argsort
        whole = (hashes[0] << np.uint64(32)) ^ (hashes[1] << np.uint64(1))
        keys = np.sort((whole >> position_bits << position_bits) | np.arange(len(positions), dtype=np.uint64))
        order = (keys & ((np.uint64(1) << position_bits) - np.uint64(1))).astype(np.int64)
        borders = np.flatnonzero(np.diff(keys >> position_bits)) + 1
        sizes = np.diff(borders, prepend=0, append=len(order))
        order, sizes = order[np.repeat(sizes > 1, sizes)], sizes[sizes > 1]
        if not len(sizes):
            return
        yield length, positions[order], sizes
        kept = np.zeros(len(positions), dtype=bool)
        kept[order] = True
        positions, hashes = positions[kept], [part[kept] for part in hashes]


def _score_bounds(length: int, positions: Positions, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What each group could score at most, so that few groups need a look at what really stands there.

    Runs apart need length symbols each, and all of them lie in what the group's windows cover together.
    """
    starts = np.cumsum(sizes) - sizes
    covered = np.minimum(np.diff(positions, prepend=0), length)
    covered[starts] = length  # the first of a group follows none of its own
    return (length - 1) * (np.add.reduceat(covered, starts) // length - 1)


def _exact(symbols: Symbols, positions: Positions, length: int) -> Iterator[Positions]:
    """The positions parted by what really stands there: two runs may have one hash."""
    while len(positions):
        runs = symbols[positions[:, None] + np.arange(length)]
        same = (runs == runs[0]).all(axis=1)
        yield positions[same]
        positions = positions[~same]


def _without_overlap(positions: Positions, length: int) -> Positions:
    """From the left, each position that begins after the last one taken has ended."""
    if len(positions) < 2 or np.diff(positions).min() >= length:
        return positions
    taken: list[int] = []
    for position in positions.tolist():
        if not taken or position >= taken[-1] + length:
            taken.append(position)
    return np.array(taken, dtype=np.int64)
