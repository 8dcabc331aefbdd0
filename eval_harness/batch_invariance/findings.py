"""What the static analysis reports: a protected parameter that follows the batch, and the path from batch to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Mechanism(StrEnum):
    """How a kernel's bits come to depend on the batch (BIEvolve, section on mechanisms)."""

    WORK_PARTITIONING = "work partitioning"
    REDUCTION_ORDER = "reduction order"
    ALGORITHM_SELECTION = "algorithm selection"
    EXPERT_ROUTING = "expert routing"


@dataclass(frozen=True)
class PathStep:
    """One step of a dependency path: where, and what the code says there."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """A dependency that the contract forbids. file and line are the sink's; path runs from the batch symbol to it."""

    mechanism: Mechanism
    parameter: str
    """The protected parameter's canonical name, or what the sink is ("BLOCK_K of _kernel", "autotune key")."""
    file: str
    line: int
    path: tuple[PathStep, ...]
    message: str
    """One sentence: what follows the batch, through what."""
    repair: str
    """One sentence: how to make it independent of the batch."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Unresolved:
    """What only running it can decide: an opaque call, an autotune key that is not known to be of the batch."""

    file: str
    line: int
    reason: str
