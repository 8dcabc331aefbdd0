"""What tokens of a collection's teachers cost on average, read from the settings of its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trajectories.policies.endpoint_config import Prices
from trajectories.record import Usage

_FREE = frozenset({"expert", "scripted", "replay"})
"""Kinds that ask no endpoint."""


@dataclass(frozen=True)
class Price:
    """Price tables with their weights; a mixture has several."""

    tables: tuple[tuple[float, Prices], ...] = ()
    is_known: bool = True
    """False: a served teacher has no prices."""

    @property
    def knows_cache(self) -> bool:
        """Every teacher's endpoint has a price of its own for tokens read from its cache."""
        return bool(self.tables) and all(table.cached_input is not None for _, table in self.tables)

    def usd(
        self, input_tokens: float, cached_tokens: float, output_tokens: float, *, cache_write_tokens: float = 0.0
    ) -> float:
        """Weighted mean over the teachers. input_tokens counts the cached and the written ones too."""
        usage = Usage(
            input_tokens=round(input_tokens),
            cached_tokens=round(cached_tokens),
            cache_write_tokens=round(cache_write_tokens),
            output_tokens=round(output_tokens),
        )
        total = sum(weight for weight, _ in self.tables)
        return sum(weight * table.cost_usd(usage) for weight, table in self.tables) / total if total else 0.0


def price_of(policy: Mapping[str, Any]) -> Price:
    """From `prices` of the policy, or of each teacher of a mixture. The settings must be valid."""
    teachers = policy.get("teachers") or [policy]
    tables = [(float(each.get("weight", 1.0)), Prices.model_validate(each.get("prices") or {})) for each in teachers]
    is_known = all(
        table.are_set or each.get("kind") in _FREE for each, (_, table) in zip(teachers, tables, strict=True)
    )
    return Price(tuple(tables), is_known)


def why_budget_counts_nothing(policy: Mapping[str, Any], budget_usd: float | None) -> str | None:
    """What to say where a budget in money is set and nobody has said what a token costs; None: all is well."""
    teachers = policy.get("teachers") or [policy]
    free = _FREE | {"vllm"} if len(teachers) > 1 else _FREE  # a server of one's own beside others is left out knowingly
    names = [
        str(each.get("name") or each.get("model") or each.get("kind"))
        for each in teachers
        if each.get("kind") not in free and not Prices.model_validate(each.get("prices") or {}).are_set
    ]
    if budget_usd is None or not names:
        return None
    return (
        f"budget_usd: {', '.join(names)}: no `prices`, so of the {budget_usd:g} USD only what the endpoint itself says "
        "it charged is counted; put its list prices there, or set budget_tokens"
    )
