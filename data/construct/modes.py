"""Statements that change how others run, and statements that change nothing: autocast, vmap, usage logs, checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a program owns its analysis
    from data.construct.statements import Statement

_NO_EFFECT = frozenset(
    (
        "log_api_usage_once",
        "set_grad_enabled",
        "check",
        "check_is_size",
        "check_value",
        "check_index",
        "assert",
        "assert_async",
        "assert_scalar",
    )
)
_LEAVES = {"enter_autocast": "exit_autocast", "vmap_increment_nesting": "vmap_decrement_nesting"}
_AUTOCAST_OFF = re.compile(r"_enter_autocast\([^,()]+, [^,()]+, False\b")


@dataclass(frozen=True)
class Modes:
    """What a cut must keep together, and what it may leave out."""

    without_effect: frozenset[int]
    """Statements that no value depends on; an autocast that is off, under none that is on, is one too."""
    regions: tuple[tuple[int, int], ...]
    """First and last statement of each autocast and vmap; the last is len(statements) if it is never left."""


def find_modes(statements: Sequence[Statement]) -> Modes:
    """Modes of a program's statements."""
    without_effect: set[int] = set()
    regions: list[tuple[int, int]] = []
    open_modes: list[tuple[Statement, bool]] = []
    for statement in statements:
        if statement.operator in _NO_EFFECT:
            without_effect.add(statement.index)
        elif statement.operator in _LEAVES:
            off = _AUTOCAST_OFF.search(statement.lines[0]) is not None
            under_autocast = any(
                not other_off for other, other_off in open_modes if other.operator == statement.operator
            )
            open_modes.append((statement, off and not under_autocast))
        elif statement.operator in _LEAVES.values() and open_modes:
            opened, off = open_modes.pop()
            if off:
                without_effect.update((opened.index, statement.index))
            else:
                regions.append((opened.index, statement.index))
    for opened, off in open_modes:
        if off:
            without_effect.add(opened.index)
        else:
            regions.append((opened.index, len(statements)))
    return Modes(frozenset(without_effect), tuple(sorted(regions)))
