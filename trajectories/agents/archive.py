"""Archive: every candidate that a search has written, with where it came from and what became of it. Plain data.

Files stand with the evaluation that judged them; an entry holds its own only where there was none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from eval_harness.verdict import Outcome, Verdict
from trajectories.record import Trajectory

ContextKind = Literal["slowest_to_fastest", "best", "random", "recent_elite"]


class ArchiveEntry(BaseModel):
    """One candidate."""

    model_config = ConfigDict(extra="forbid")

    id: int
    """From 0, in the order in which they were written."""
    generation: int = 0
    """0: before the first generation (the translation); a plan's number in a plan search."""
    turn: int
    """Of the answer that wrote it."""
    member: int = 0
    """Which policy of the ensemble."""
    parents: list[int] = []
    """Candidates that its request showed."""
    recommendation: str = ""
    """The advice or the plan that it was to follow."""
    votes: dict[str, float] = {}
    """Aspect -> share of the soft verifier's votes for it."""
    evaluation: int | None = None
    """Index into the trajectory's evaluations."""
    rejected: str = ""
    """Why it was not judged; empty where it was."""
    stage: Literal["", "malformed", "duplicate", "source", "batch_invariance", "ranked", "budget"] = ""
    """Where it was rejected."""
    files: dict[str, str] = {}
    """Only of one that was not judged."""


class Archive:
    """The entries of one attempt, kept in its agent_state under "archive"."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self.entries: list[ArchiveEntry] = []

    def add(self, **fields: Any) -> ArchiveEntry:
        entry = ArchiveEntry(id=len(self.entries), **fields)
        self.entries.append(entry)
        return entry

    def save(self) -> None:
        """Into the record's agent_state; the caller keeps the record."""
        self._trajectory.agent_state["archive"] = [
            entry.model_dump(mode="json", exclude_defaults=True) for entry in self.entries
        ]

    def verdict(self, entry: ArchiveEntry) -> Verdict | None:
        return None if entry.evaluation is None else self._trajectory.evaluations[entry.evaluation].verdict

    def files(self, entry: ArchiveEntry) -> Mapping[str, str]:
        return entry.files if entry.evaluation is None else self._trajectory.evaluations[entry.evaluation].files

    def correct(self) -> list[ArchiveEntry]:
        """Each judged candidate that is right on every graph, once, slowest first; of equals the later one first."""
        seen: dict[int, ArchiveEntry] = {}
        for entry in self.entries:
            verdict = self.verdict(entry)
            if verdict is not None and is_correct(verdict) and entry.evaluation is not None:
                seen.setdefault(entry.evaluation, entry)
        return sorted(seen.values(), key=lambda entry: (self.score(entry), -entry.id))

    def score(self, entry: ArchiveEntry) -> tuple[float, float]:
        """Covered AS, then AS; zeros where there is no verdict."""
        verdict = self.verdict(entry)
        return (0.0, 0.0) if verdict is None else (verdict.as_covered or 0.0, verdict.as_score or 0.0)

    def best(self) -> ArchiveEntry | None:
        found = self.correct()
        return found[-1] if found else None

    def failures(self, count: int) -> list[ArchiveEntry]:
        """The newest that were judged and failed, or were rejected for a fault of their own; oldest first."""
        found = [
            entry
            for entry in self.entries
            if entry.stage in ("malformed", "source", "batch_invariance")
            or ((verdict := self.verdict(entry)) is not None and not is_correct(verdict))
        ]
        return found[-count:] if count else []


def is_correct(verdict: Verdict) -> bool:
    """Right on every graph, and scored."""
    return verdict.complete and all(graph.outcome is Outcome.CORRECT for graph in verdict.graphs)


def choose_context(
    archive: Archive, kind: ContextKind, size: int, rng: random.Random, *, num_recent: int = 2
) -> list[ArchiveEntry]:
    """The correct candidates that a request shows, slowest first (robust-kbench, Algorithm 1).

    slowest_to_fastest: the `size` best. best: the best alone. random: `size` of all. recent_elite (BIEvolve): the
    num_recent newest, and the best of the others up to `size`.
    """
    correct = archive.correct()
    if kind == "best":
        return correct[-1:]
    if kind == "random":
        chosen = rng.sample(correct, min(size, len(correct)))
        return sorted(chosen, key=lambda entry: (archive.score(entry), -entry.id))
    if kind == "recent_elite":
        recent = sorted(correct, key=lambda entry: entry.id)[-num_recent:] if num_recent else []
        elite = [entry for entry in reversed(correct) if entry not in recent][: max(0, size - len(recent))]
        return [entry for entry in correct if entry in recent or entry in elite]
    return correct[-size:]


def archive_of(trajectory: Trajectory) -> list[ArchiveEntry]:
    """The entries of a stored record; empty for an agent that keeps none."""
    stored: Sequence[Mapping[str, Any]] = trajectory.agent_state.get("archive", [])
    return [ArchiveEntry.model_validate(entry) for entry in stored]
