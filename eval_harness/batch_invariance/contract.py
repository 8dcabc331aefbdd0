"""What a batch-invariance contract says: batch symbols, and parameters that must not follow the batch.

Source: BIEvolve, Appendix B. Text becomes a Contract in contract_parser.py; a graph's family chooses one in
registry.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Semantic(StrEnum):
    """What a protected parameter decides."""

    SPLIT_STRUCTURE = "split_structure"
    RECURRENCE_STRUCTURE = "recurrence_structure"
    RNG_STREAM = "rng_stream"


class Policy(StrEnum):
    """How a parameter may follow the batch."""

    FIXED_ACROSS_BATCH = "fixed_across_batch"
    MAY_DEPEND_ON_BATCH = "may_depend_on batch"
    FREE = "free"


@dataclass(frozen=True)
class Parameter:
    """A canonical parameter (NUM_SPLITS, RECURRENCE_SEGMENTS, RNG_SEED, or one of the contract's own)."""

    name: str
    semantic: Semantic
    policy: Policy
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name first, then its aliases."""
        return (self.name, *self.aliases)

    @property
    def is_protected(self) -> bool:
        return self.policy is Policy.FIXED_ACROSS_BATCH


@dataclass(frozen=True)
class InvariantAxis:
    """An axis along which bits must not change, and the names that stand for its size in code."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Contract:
    """A contract; `extends` is empty once it is resolved."""

    name: str
    axes: tuple[InvariantAxis, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    extends: tuple[str, ...] = ()

    @property
    def symbols(self) -> frozenset[str]:
        """Every batch symbol, over all axes."""
        return frozenset(symbol for axis in self.axes for symbol in axis.symbols)

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of this name or alias (exact spelling), protected or not."""
        return next((parameter for parameter in self.parameters if name in parameter.names), None)
