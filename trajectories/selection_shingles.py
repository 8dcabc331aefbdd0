"""How alike two texts are: n-grams of their tokens, hashed, and the Jaccard index of bottom-k sketches of them.

Deterministic on every machine and in every process (no salted hash). Knows no trajectory; what counts as a near
duplicate is decided in selection_choice.py.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
"""Sorted, distinct."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_ASCII_TOKEN = re.compile(_TOKEN.pattern, re.ASCII)
"""The same for ASCII text, in two thirds of the time."""
_PYTHON_COMMENT = re.compile(r"#[^\n]*")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Sketch:
    """The smallest hashes of a set of n-grams: the whole set, if it has no more than were kept."""

    hashes: Hashes
    is_whole: bool

    @cached_property
    def smallest(self) -> list[int]:
        """A few hashes by which like sketches find one another."""
        return [int(value) for value in self.hashes[:NUM_KEYS]]


NUM_KEYS = 32
"""Of n-grams alike in 0.8 or more, at least half of so many are common but for one pair in ten thousand."""


def tokens_of(text: str) -> list[str]:
    """Identifiers, numbers and single other characters; blanks and line breaks are none."""
    return (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text)


def code_tokens(files: Mapping[str, str]) -> list[str]:
    """Of all files of a pass folder, by path, without comments, so that layout and remarks make no difference."""
    tokens: list[str] = []
    for path in sorted(files):
        comment = _PYTHON_COMMENT if path.endswith((".py", ".json")) else _C_COMMENT
        tokens += tokens_of(comment.sub(" ", files[path]))
    return tokens


def ngram_hashes(tokens: Iterable[str], n: int) -> Hashes:
    """Hashes of the distinct n-grams; none for fewer than n tokens."""
    if len(_TOKEN_HASHES) > _MAX_KNOWN_TOKENS:
        _TOKEN_HASHES.clear()
    values = np.fromiter(map(_TOKEN_HASHES.__getitem__, tokens), dtype=np.uint64)
    if len(values) < n:
        return np.empty(0, dtype=np.uint64)
    length = len(values) - n + 1
    mixed = np.zeros(length, dtype=np.uint64)
    for offset in range(n):  # wraps around at 2**64, which is meant
        mixed = mixed * _MULTIPLIER + values[offset : offset + length]
    return np.unique(_scramble(mixed))


def make_sketch(hashes: Hashes, size: int) -> Sketch:
    """The size smallest hashes."""
    # a copy: a view would keep the whole array in memory
    return Sketch(hashes[:size].copy(), len(hashes) <= size)


def jaccard(one: Sketch, other: Sketch) -> float:
    """Common n-grams of all n-grams of the two, 0..1: exact where both sketches are whole, else estimated.

    The standard error of the estimate is at most 0.5 / sqrt(size), 0.016 for 1,024 hashes.
    """
    union = np.union1d(one.hashes, other.hashes)
    sizes = [len(sketch.hashes) for sketch in (one, other) if not sketch.is_whole]
    if sizes:  # of the union only so many are known
        union = union[: min(sizes)]
    if not len(union):
        return 0.0
    common = np.intersect1d(one.hashes, other.hashes, assume_unique=True)
    return int(np.searchsorted(common, union[-1], side="right")) / len(union)


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class _TokenHashes(dict[str, int]):
    """Token -> its hash, kept since few tokens make up a text."""

    def __missing__(self, token: str) -> int:
        made = self[token] = zlib.crc32(token.encode("utf-8", "surrogatepass"))
        return made


_TOKEN_HASHES = _TokenHashes()
_MAX_KNOWN_TOKENS = 1 << 18


def _scramble(values: Hashes) -> Hashes:
    """A bijection that spreads the values evenly, so that the smallest are a random choice (splitmix64's end)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
