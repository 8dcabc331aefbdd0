"""MixturePolicy: several teachers by weight, one an attempt.

Which one is decided by the attempt's seed, task and index alone, so that a resume, or another machine, picks the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from data.task import Task
from eval_harness.errors import UserError
from trajectories.policy import Policy
from trajectories.record import Message

KIND = "mixture"
DEFAULT_WEIGHT = 1.0


class MixturePolicyConfig(BaseModel):
    """The teachers and their shares."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    teachers: list[dict[str, Any]] = Field(min_length=1)
    """Each a policy's settings (`kind` and that kind's keys) and its `weight` (1 by default): its share of attempts."""

    @field_validator("teachers")
    @classmethod
    def _weights(cls, teachers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for index, teacher in enumerate(teachers):
            weight = teacher.get("weight", DEFAULT_WEIGHT)
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
                raise ValueError(f"teacher {index}: weight {weight!r} is no positive number")
            if teacher.get("kind") == KIND:
                raise ValueError(f"teacher {index}: is a mixture itself; list its teachers here")
        return teachers


class MixturePolicy:
    """Is the attempt's teacher from start on, or from choose."""

    def __init__(self, config: MixturePolicyConfig, make: Callable[[Mapping[str, Any]], Policy]) -> None:
        """make: settings -> policy. Makes every teacher, so that a wrong setting or a missing key fails here.

        Raises UserError naming the teacher.
        """
        self._weights = [float(teacher.get("weight", DEFAULT_WEIGHT)) for teacher in config.teachers]
        self._teachers: list[Policy] = []
        for index, teacher in enumerate(config.teachers):
            try:
                self._teachers.append(make({key: value for key, value in teacher.items() if key != "weight"}))
            except UserError as error:
                raise UserError(f"policy.teachers[{index}]: {error}") from None
        self._chosen: int | None = None

    @property
    def is_stateless(self) -> bool:
        """Whether an interrupted attempt can be continued: of the chosen teacher, or of all before the choice."""
        teachers = self._teachers if self._chosen is None else [self._teachers[self._chosen]]
        return all(getattr(teacher, "is_stateless", False) for teacher in teachers)

    def choose(self, task: Task, *, attempt_index: int, seed: int) -> None:
        """Decide which teacher it is, without starting it."""
        self._chosen = choose(self._weights, seed=seed, task_id=task.task_id, attempt_index=attempt_index)

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self.choose(task, attempt_index=attempt_index, seed=seed)
        assert self._chosen is not None
        self._teachers[self._chosen].start(task, attempt_index=attempt_index, seed=seed, device=device)

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The chosen teacher's answer. Raises what that raises."""
        assert self._chosen is not None, "start comes first"
        return self._teachers[self._chosen].answer(messages, tools)

    def describe(self) -> dict[str, Any]:
        """The chosen teacher's description and its index; before the choice, all teachers'."""
        if self._chosen is None:
            return {"kind": KIND, "teacher": KIND, "teachers": [teacher.describe() for teacher in self._teachers]}
        return {**self._teachers[self._chosen].describe(), KIND: self._chosen}


def choose(weights: Sequence[float], *, seed: int, task_id: str, attempt_index: int) -> int:
    """Index of the teacher of an attempt; over many attempts each comes up by its weight."""
    digest = hashlib.sha256(f"teacher {seed} {task_id} {attempt_index}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64 * sum(weights)
    for index, weight in enumerate(weights):
        place -= weight
        if place < 0:
            return index
    return len(weights) - 1
