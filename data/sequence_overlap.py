"""How alike two operator sequences are, however they are spelled: n-gram overlap and its distribution. No torch.

Not here: which side of a split a sequence goes to (splits.py). An inverted index over the n-grams keeps thousand by
thousand comparisons within a second or two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Operators = tuple[str, ...]
Measure = Literal["jaccard", "containment"]
NGRAM = 3
THRESHOLD = 0.5
"""From half of the n-grams in common, two sequences count as near duplicates."""
NUM_BINS = 10

_START, _END = "<start>", "<end>"

_ALIASES = {
    alias: name
    for name, aliases in {
        "abs": "absolute", "add": "radd", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
        "cat": "concat concatenate",
        "clamp": "clip clamp_min clamp_max", "div": "truediv divide true_divide rdiv rtruediv",
        "floordiv": "floor_divide",
        "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "matmul": "mm bmm rmatmul",
        "mod": "remainder fmod rmod", "movedim": "moveaxis", "mul": "multiply rmul", "ne": "not_equal",
        "neg": "negative", "pow": "rpow float_power", "sub": "subtract rsub", "transpose": "swapaxes swapdims t",
        "view": "reshape view_as reshape_as flatten unflatten", "and": "logical_and bitwise_and rand",
        "or": "logical_or bitwise_or ror", "xor": "logical_xor bitwise_xor rxor", "invert": "logical_not bitwise_not",
        "select": "getitem index narrow", "setitem": "index_put",
    }.items()
    for alias in aliases.split()
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IN_PLACE = _words("iadd isub imul idiv itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift")
NO_COMPUTE = _words(
    """
    to to_copy type type_as float half bfloat16 double long int bool contiguous clone detach alias size dim numel shape
    dropout dropout1d dropout2d dropout3d requires_grad set_grad_enabled log_api_usage_once resolve_conj resolve_neg
    assert assert_async check lift_fresh_copy enter_autocast exit_autocast lazy_load_decompositions
    """
)
"""Nothing to compute in evaluation mode, or a cast, which differs between the dtypes of one model."""


def normalised_sequence(operators: Iterable[str]) -> Operators:
    """One spelling for each operator: add_, iadd, __iadd__ and add are "add"; casts, copies and dropout go.

    A sequence of nothing but those keeps them. "a+b", two operators of one statement, is a and b.
    """
    names = [_canonical(name) for joined in operators for name in joined.split("+")]
    computing = tuple(name for name in names if name not in NO_COMPUTE)
    return computing or tuple(names)


def ngrams(operators: Sequence[str], n: int = NGRAM) -> frozenset[Operators]:
    """The distinct n-grams of a sequence with a mark at either end; the whole of it if it is shorter than n."""
    marked = (_START, *operators, _END)
    return frozenset(marked[start : start + n] for start in range(max(len(marked) - n, 0) + 1))


def overlaps(
    ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]], *, n: int = NGRAM, measure: Measure = "jaccard"
) -> Iterator[tuple[int, int, float]]:
    """(index in ours, index in theirs, overlap in 0..1) of every pair with an n-gram in common, after normalisation.

    jaccard: common n-grams of all n-grams of the two; containment: of those of the one that has fewer.
    """
    if n < 1:
        raise ValueError(f"n is {n}; n-grams have at least one operator")
    known: dict[Operators, frozenset[Operators]] = {}

    def grams_of(sequence: Sequence[str]) -> frozenset[Operators]:
        normal = normalised_sequence(sequence)
        if normal not in known:
            known[normal] = ngrams(normal, n)
        return known[normal]

    their_grams = [grams_of(sequence) for sequence in theirs]
    holders: dict[Operators, list[int]] = defaultdict(list)
    for index, grams in enumerate(their_grams):
        for gram in grams:
            holders[gram].append(index)
    for our_index, sequence in enumerate(ours):
        grams = grams_of(sequence)
        common: Counter[int] = Counter()
        for gram in grams:
            common.update(holders.get(gram, ()))
        for their_index, num_common in sorted(common.items()):
            smaller, larger = sorted((len(grams), len(their_grams[their_index])))
            whole = smaller + larger - num_common if measure == "jaccard" else smaller
            yield our_index, their_index, num_common / whole


@dataclass(frozen=True)
class NearDuplicate:
    """A training sequence and the held-out sequence that it is most like."""

    train: Operators
    held_out: Operators
    """Empty if the two have no n-gram in common."""
    overlap: float
    """0..1."""


def nearest(
    train: Iterable[Sequence[str]],
    held_out: Iterable[Sequence[str]],
    *,
    n: int = NGRAM,
    measure: Measure = "jaccard",
) -> list[NearDuplicate]:
    """For each distinct sequence of train, in sorted order, the one of held_out that it is most like."""
    ours = sorted({tuple(sequence) for sequence in train})
    theirs = sorted({tuple(sequence) for sequence in held_out})
    best: list[tuple[float, Operators]] = [(0.0, ())] * len(ours)
    for our_index, their_index, overlap in overlaps(ours, theirs, n=n, measure=measure):
        if overlap > best[our_index][0]:
            best[our_index] = (overlap, theirs[their_index])
    return [NearDuplicate(sequence, like, overlap) for sequence, (overlap, like) in zip(ours, best, strict=True)]


@dataclass(frozen=True)
class OverlapReport:
    """How much training sequences have in common with the held-out sequence nearest to each."""

    n: int
    measure: Measure
    threshold: float | None
    """From which overlap a sequence was dropped; None if none was."""
    num_held_out: int
    """Evaluation sequences."""
    num_same: int
    """Sequences of the pool that are evaluation sequences themselves."""
    dropped: tuple[int, ...]
    """Near duplicates that were dropped, by overlap: ten bins from [0, 0.1) to [0.9, 1]."""
    overlaps: tuple[float, ...]
    """Of each training sequence that is left, ascending."""

    @property
    def num_train(self) -> int:
        return len(self.overlaps)

    @property
    def num_dropped(self) -> int:
        return sum(self.dropped)

    @property
    def max_overlap(self) -> float:
        return max(self.overlaps, default=0.0)

    @property
    def mean_overlap(self) -> float:
        return sum(self.overlaps) / len(self.overlaps) if self.overlaps else 0.0

    @property
    def histogram(self) -> tuple[int, ...]:
        """Of what is left, in the bins of `dropped`."""
        return histogram(self.overlaps)

    def lines(self) -> list[str]:
        """For a person to read."""
        found = [f"sequences: {self.num_train} train, {self.num_held_out} held out"]
        if self.threshold is None:
            found.append(f"in both: {self.num_same}")
        else:
            found.append(
                f"not trained on: {self.num_same} that are held out, {self.num_dropped} near duplicates "
                f"({self.measure} of {self.n}-grams >= {self.threshold:g}; by tenths {_counts(self.dropped)})"
            )
        found.append(
            f"overlap with the nearest held-out sequence ({self.measure} of {self.n}-grams): max "
            f"{self.max_overlap:.3f}, mean {self.mean_overlap:.3f}; by tenths {_counts(self.histogram)}"
        )
        return found


@dataclass(frozen=True)
class HoldOut:
    """A pool of operator sequences with what must not be trained on taken out."""

    train: tuple[Operators, ...]
    """What may be trained on, sorted."""
    dropped: tuple[NearDuplicate, ...]
    """Not to be trained on, the most alike first; they may go to the evaluation side as a whole."""
    report: OverlapReport


def histogram(values: Iterable[float]) -> tuple[int, ...]:
    """Counts in ten equal bins of 0..1; 1 belongs to the last."""
    counts = [0] * NUM_BINS
    for value in values:
        counts[min(int(value * NUM_BINS + 1e-9), NUM_BINS - 1)] += 1
    return tuple(counts)


def _counts(bins: Sequence[int]) -> str:
    return " ".join(map(str, bins))


def _canonical(name: str) -> str:
    bare = name.strip("_") or name
    if bare in _IN_PLACE:
        bare = bare[1:]
    return _ALIASES.get(bare, bare)
