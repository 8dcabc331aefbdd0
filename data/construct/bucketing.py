"""Graphs that ask for the same pass are put into groups, and a group becomes a task (PassNet, Appendix B). No torch.

TLDR: graph -> bucket key -> buckets of one operator sequence -> four rules -> groups of uids. A graph's uid is its
content hash, so equal graphs are one graph wherever they came from. Which groups become tasks is selection.py's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from data.graph import Graph
from data.splits import operator_sequence

STRIDE = 16
"""A group of one is every 16th graph of a bucket."""
NUM_DTYPES = 3
"""float32, float16 and bfloat16; also the size of the groups from windows."""
WINDOW = 5 * NUM_DTYPES
"""Of the graphs that no other rule took, the first 3 of every 15 are used."""
LOG2_STEP = 4
"""Sizes 1-15 are one bucket, 16-255 the next, then 256-4095, ..."""
_MAIN_DTYPES = ("float32", "float16", "bfloat16")

Operators = tuple[str, ...]
Windows = Literal["apart", "joined"]


class Rule(StrEnum):
    """Why the graphs of a group are together."""

    STRIDE = "stride"
    """One graph: every 16th of a bucket."""
    SHAPES = "shapes"
    """One graph a shape bucket: the same operators at every kind of size."""
    DTYPES = "dtypes"
    """Up to three dtypes a shape bucket."""
    WINDOWS = "windows"
    """Three neighbours of the rest (or, joined, all such threes of one operator sequence)."""


@dataclass(frozen=True)
class BucketKey:
    """What graphs of one bucket have in common."""

    operators: Operators
    """Exactly, in order of execution."""
    shapes: tuple[tuple[int, ...], ...]
    """dimension_bucket of every axis of every argument, in the order of forward."""
    dtypes: tuple[str, ...]
    """Of every argument, without "torch."."""


@dataclass(frozen=True)
class Bucketed:
    """A graph as the rules see it."""

    uid: str
    """The graph's content hash: sha256 over model.py and both metas."""
    key: BucketKey


@dataclass(frozen=True)
class Group:
    """Graphs that one pass folder is to serve."""

    rule: Rule
    operators: Operators
    uids: tuple[str, ...]
    """Sorted, none twice."""


def dimension_bucket(size: int) -> int:
    """floor(log2(size) / 4), and -1 for sizes below 1, as in the public code."""
    return (size.bit_length() - 1) // LOG2_STEP if size > 0 else -1


def bucket_key(graph: Graph) -> BucketKey:
    """The bucket of one graph. Raises MalformedGraphError on an operator that no graph may hold."""
    specs = [graph.specs[name] for name in graph.arguments]
    return BucketKey(
        operator_sequence(graph),
        tuple(tuple(dimension_bucket(size) for size in spec.shape) for spec in specs),
        tuple(spec.dtype.removeprefix("torch.") for spec in specs),
    )


def bucketed(graph: Graph) -> Bucketed:
    return Bucketed(graph.content_hash, bucket_key(graph))


def make_groups(members: Iterable[Bucketed], *, windows: Windows = "apart") -> list[Group]:
    """Every group of these graphs, sequence by sequence; the same graphs in any order give the same groups.

    The members are of one kind (fusible, classical, single_op): graphs of different kinds are never mixed. No graph is
    in two groups. windows: a group for each three ("apart"), or one for all of a sequence ("joined", as in the public
    code, which is where its groups of hundreds come from).
    """
    unique = {member.uid: member.key for member in members}  # a graph that was found twice is one graph
    by_operators: dict[Operators, dict[str, BucketKey]] = defaultdict(dict)
    for uid in sorted(unique):
        by_operators[unique[uid].operators][uid] = unique[uid]
    return [
        group
        for operators in sorted(by_operators)
        for group in _groups_of_sequence(operators, by_operators[operators], windows)
    ]


def _groups_of_sequence(operators: Operators, keys: Mapping[str, BucketKey], windows: Windows) -> Iterator[Group]:
    """keys: uid -> key, sorted by uid, all with these operators."""
    buckets: dict[tuple[tuple[int, ...], ...], list[str]] = defaultdict(list)
    for uid, key in keys.items():
        buckets[key.shapes].append(uid)
    taken: set[str] = set()
    for uids in buckets.values():
        for uid in uids[STRIDE::STRIDE]:  # the first stands for its bucket below
            taken.add(uid)
            yield Group(Rule.STRIDE, operators, (uid,))
    heads = [uids[0] for uids in buckets.values()]
    taken.update(heads)
    yield Group(Rule.SHAPES, operators, tuple(sorted(heads)))

    covering: list[str] = []
    for uids in buckets.values():
        covering += _distinct_dtypes([uid for uid in uids if uid not in taken], keys)
    taken.update(covering)
    if covering:
        yield Group(Rule.DTYPES, operators, tuple(sorted(covering)))

    rest = [uid for uid in keys if uid not in taken]
    threes = [tuple(rest[start : start + NUM_DTYPES]) for start in range(0, len(rest), WINDOW)]
    if windows == "joined" and threes:
        threes = [tuple(uid for three in threes for uid in three)]
    for three in threes:
        yield Group(Rule.WINDOWS, operators, three)


def _distinct_dtypes(uids: Sequence[str], keys: Mapping[str, BucketKey]) -> list[str]:
    """The first graph of each dtype tuple, at most three, and of those that differ in their main dtype first."""
    first_with: dict[tuple[str, ...], str] = {}
    for uid in uids:
        first_with.setdefault(keys[uid].dtypes, uid)
    by_main: dict[str, list[str]] = defaultdict(list)
    for dtypes, uid in first_with.items():
        by_main[main_dtype(dtypes)].append(uid)
    # otherwise three mixtures of float16 and float32 might crowd out bfloat16
    leading = [found[0] for found in by_main.values()]
    others = [uid for found in by_main.values() for uid in found[1:]]
    return (leading + others)[:NUM_DTYPES]


def main_dtype(dtypes: Sequence[str]) -> str:
    """The dtype that a graph is said to have: the narrowest float among its arguments, else its first argument's."""
    narrowest = [dtype for dtype in reversed(_MAIN_DTYPES) if dtype in dtypes]
    return narrowest[0] if narrowest else (dtypes[0] if dtypes else "none")
