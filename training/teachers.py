"""What each teacher gave to a dataset and on which terms, from the records' descriptions of their policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from trajectories.ledger import teacher_of
from trajectories.record import Message

Identity = tuple[str, str, str, str]
"""Name, kind, terms, licence."""
OPEN_LICENCES = frozenset(
    ["apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "odc-by", "unlicense"]
)
"""Under which answers may be handed on, as the Hub spells them (SPDX, lower case)."""


class TeacherSummary(BaseModel):
    """What one teacher gave to a dataset, and on which terms."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Its short name in the collection's configuration."""
    kind: str
    """Of policy."""
    model: str
    """The endpoint's name of it; "" for a built-in one."""
    num_trajectories: int = 0
    """Looked at."""
    num_rows: int = 0
    """Kept."""
    num_turns: int = 0
    """Assistant messages in its rows."""
    num_without_reasoning: int = 0
    """Of these, those in which it showed no reasoning of its own."""
    num_untrained: int = 0
    """Of these, those that train no token for that (missing_reasoning: dropped)."""
    terms: str
    """As its configuration states them; "" if it does not."""
    licence: str
    """The same; "unknown" if it does not."""


def teacher_identity(policy: Mapping[str, Any]) -> Identity:
    """By which a record counts as one teacher's."""
    return teacher_of(policy), str(policy.get("kind", "unknown")), teacher_terms(policy), teacher_licence(policy)


def teacher_licence(policy: Mapping[str, Any]) -> str:
    """The licence of its answers as its configuration states it, or "unknown"."""
    return str(policy.get("license") or policy.get("licence") or "unknown")


def teacher_terms(policy: Mapping[str, Any]) -> str:
    """The terms of its answers as its configuration states them, or ""."""
    return str(policy.get("terms") or "")


def is_without_reasoning(answer: Message) -> bool:
    """Whether the teacher showed none of its own; a rationale that was asked for later is none."""
    return not (answer.reasoning or "").strip() or answer.reasoning_policy == "summarised"


class TeacherTally:
    """Adds up what each teacher gave, record by record. The same model under other terms is another entry."""

    def __init__(self) -> None:
        self._entries: dict[Identity, TeacherSummary] = {}

    def saw(self, identity: Identity, model: str) -> None:
        """A trajectory was looked at."""
        entry = self._entries.get(identity)
        if entry is None:
            name, kind, terms, licence = identity
            entry = self._entries[identity] = TeacherSummary(
                name=name, kind=kind, model=model, terms=terms, licence=licence
            )
        entry.num_trajectories += 1

    def kept(self, row: Mapping[str, Any]) -> None:
        """A row was made of one that was looked at. row: dataset_rows.make_row."""
        entry = self._entries[(row["teacher"], row["policy"], row["terms"], row["license"])]
        entry.num_rows += 1
        entry.num_turns += row["num_turns"]
        entry.num_without_reasoning += row["num_without_reasoning"]
        entry.num_untrained += len(row["untrained_turns"])

    def summaries(self) -> list[TeacherSummary]:
        """The one with most rows first."""
        return sorted(
            self._entries.values(),
            key=lambda teacher: (-teacher.num_rows, teacher.name, teacher.kind, teacher.terms, teacher.licence),
        )
