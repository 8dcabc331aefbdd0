"""ReplayPolicy: says again what a stored trajectory's assistant said, or writes a pass folder and evaluates it.

Used to check a record against today's harness, to put a hand-written pass through the same tools as a model's, and in
tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from trajectories.policies.scripted import call_message
from trajectories.record import Message, Trajectory
from trajectories.rollout import trajectory_id
from trajectories.store import TrajectoryStore, load_trajectory
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR
from trajectories.workspace import PASS_DIR


class ReplayPolicyConfig(BaseModel):
    """Exactly one source."""

    model_config = ConfigDict(extra="forbid")

    trajectory: Path | None = None
    """A trajectory's file: its answers for whatever task is asked."""
    collection: Path | None = None
    """A collection's folder: the attempt with the same task and index."""
    pass_dir: Path | None = None
    """A pass folder, the same for every task."""

    @model_validator(mode="after")
    def _one_source(self) -> ReplayPolicyConfig:
        if sum(source is not None for source in (self.trajectory, self.collection, self.pass_dir)) != 1:
            raise ValueError("give exactly one of trajectory, collection, pass_dir")
        return self


class ReplayPolicy:
    """Answers from a record. Raises UserError at the start if there is none for the task."""

    is_stateless = False

    def __init__(self, config: ReplayPolicyConfig) -> None:
        self._config = config
        self._answers: list[Message] = []
        self._source: dict[str, Any] = {}

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        config = self._config
        if config.pass_dir is not None:
            self._answers = pass_folder_answers(Candidate.from_dir(config.pass_dir).files)
            self._source = {"pass_dir": str(config.pass_dir)}
            return
        if config.trajectory is not None:
            trajectory = load_trajectory(config.trajectory)
        else:
            assert config.collection is not None
            trajectory = _find(config.collection, task, attempt_index)
        self._source = {"trajectory_id": trajectory.trajectory_id, "replayed_policy": trajectory.policy}
        self._answers = [
            message.model_copy(update={"usage": None}, deep=True)
            for message in trajectory.messages
            if message.role == "assistant"
        ]

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        num_answered = sum(message.role == "assistant" for message in messages)
        if num_answered >= len(self._answers):
            return Message(role="assistant", content="")
        return self._answers[num_answered]

    def describe(self) -> dict[str, Any]:
        return {"kind": "replay", "teacher": "replay", **self._source}


def pass_folder_answers(files: Mapping[str, str]) -> list[Message]:
    """One create call a file, then an evaluation, then an answer without a call."""
    answers = [
        call_message((FILE_EDITOR, {"command": "create", "path": f"{PASS_DIR}/{path}", "file_text": text}), turn=turn)
        for turn, (path, text) in enumerate(sorted(files.items()), start=1)
    ]
    answers.append(call_message((PASS_EVALUATOR, {}), turn=len(answers) + 1))
    answers.append(Message(role="assistant", content="Done."))
    return answers


def _find(collection: Path, task: Task, attempt_index: int) -> Trajectory:
    trajectory = TrajectoryStore(collection).load(trajectory_id(task.task_id, attempt_index))
    if trajectory is None:
        raise UserError(f"{collection}: holds no attempt {attempt_index} at task {task.task_id}")
    return trajectory
