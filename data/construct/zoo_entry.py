"""What the zoos list: a model's name card, the sizes of its inputs by symbol, and the ten sizes it is captured at.

Needs neither torch nor the zoos' libraries.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

MAX_COST_RATIO = 8
"""A variant costs at most this many times the base, and at least one such part of it."""

Choices = Mapping[str, Sequence[int]]
"""By symbol: the sizes it may have. The first is the base."""

DEFAULT_CHOICES: dict[str, tuple[int, ...]] = {
    "batch": (2, 1, 3, 4, 6, 8, 12, 16),
    "sequence": (64, 16, 24, 32, 48, 77, 96, 128, 160, 192, 256, 320),
    "target": (32, 8, 12, 16, 24, 48, 64, 96),
    "image": (64, 32, 48, 80, 96, 112, 128, 144, 160),
    "frames": (128, 64, 96, 160, 192, 224, 256, 320),
    "samples": (8000, 4000, 5600, 6400, 9600, 12000, 16000, 20000, 24000),
    "clip": (4, 2, 6, 8),
    "context": (64, 32, 48, 96, 128, 160),
}
"""Tokens, target tokens, pixels a side, spectrogram frames, audio samples, images a clip, time steps."""


@dataclass(frozen=True)
class ModelEntry:
    """One model that a zoo can build."""

    model_id: str
    """"transformers.bert", "transformers.llama.causal_lm", "timm.resnet18": unique, lower case, no slash."""
    source: str
    """The library it comes from: "transformers" or "timm"."""
    architecture: str
    """The library's own name of it: "bert", "audio-spectrogram-transformer"."""
    domain: str
    """"text", "vision", "audio", "multimodal" or "other"."""
    licence: str
    """SPDX name of the licence of the library's code."""
    origin: str
    """Dotted path of the class."""
    symbols: tuple[str, ...] = ()
    """What its inputs are sized by; empty if only the class itself can tell."""


def transformers_entry(name: str, class_path: str, domain: str, symbols: tuple[str, ...] = ()) -> ModelEntry:
    """The card of a model of transformers: its architecture, "/head" behind it if it has one, and its class."""
    architecture, _, head = name.partition("/")
    plain = architecture.lower().replace("-", "_").replace(".", "_")
    return ModelEntry(
        model_id=f"transformers.{plain}.{head}" if head else f"transformers.{plain}",
        source="transformers",
        architecture=architecture,
        domain=domain,
        licence="Apache-2.0",
        origin=f"transformers.models.{class_path}",
        symbols=symbols,
    )


def stable_hash(text: str) -> int:
    """A number of 32 bits that is the same in every process and on every machine."""
    return zlib.crc32(text.encode())


def cost_of(sizes: Mapping[str, int]) -> int:
    """How the work of one call grows with its sizes, up to a constant: an image counts by its area."""
    return prod(size**2 if symbol == "image" else size for symbol, size in sizes.items())


def spread_sizes(name: str, choices: Choices, num: int) -> list[dict[str, int]]:
    """The base and up to num - 1 other sizes, small to medium, in which every symbol varies; fixed by the name.

    The combinations are sorted by cost and cut into equal parts; of each part the one is taken whose sizes were used
    least so far. Fewer come back only if there are fewer combinations.
    """
    base = {symbol: values[0] for symbol, values in choices.items()}
    every = [dict(zip(choices, sizes, strict=True)) for sizes in itertools.product(*choices.values())]
    limits = cost_of(base) / MAX_COST_RATIO, cost_of(base) * MAX_COST_RATIO
    others = [sizes for sizes in every if sizes != base and limits[0] <= cost_of(sizes) <= limits[1]]
    random.Random(stable_hash(name)).shuffle(others)
    others.sort(key=cost_of)
    wanted = min(num - 1, len(others))
    used = Counter(base.items())
    chosen = [base]
    for part in range(wanted):
        candidates = others[part * len(others) // wanted : (part + 1) * len(others) // wanted]
        best = min(candidates, key=lambda sizes: sum(used[item] for item in sizes.items()))
        used.update(best.items())
        chosen.append(best)
    return chosen
