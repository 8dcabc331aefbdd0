"""Policy: anything that answers messages: a teacher, a student, a script.

Implementations live in policies/. A policy sees what a model would see, messages and tools, and nothing else, save that
`start` tells it which task the attempt is about: built-in policies (expert, replay) need that, served models ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from data.task import Task
from trajectories.record import Message, Usage


class PolicyError(RuntimeError):
    """The endpoint failed for good, after its retries: an infrastructure failure, never a score."""

    def __init__(self, message: str, *, lost: Usage | None = None) -> None:
        """lost: of answers that broke off on the way: paid for, and part of no message."""
        super().__init__(message)
        self.lost = lost or Usage()


class ContextLimitError(PolicyError):
    """The endpoint refused the conversation's length: the attempt ends cleanly."""


@runtime_checkable
class Policy(Protocol):
    """One conversation's partner. Not shared between attempts; make one for each."""

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        """Called once before the first message."""
        ...

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The assistant message that follows. Raises PolicyError."""
        ...

    def describe(self) -> dict[str, Any]:
        """For the record: kind, model, sampling, terms, licence. Never a key."""
        ...
