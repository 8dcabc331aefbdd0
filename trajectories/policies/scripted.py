"""ScriptedPolicy: answers from a list, in order. Deterministic; plays the model in tests and demonstrations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from data.task import Task
from trajectories.record import Message, ToolCall


class ScriptedPolicyConfig(BaseModel):
    """The answers of every attempt."""

    model_config = ConfigDict(extra="forbid")

    answers: list[str | list[dict[str, Any]]]
    """A text, or a list of calls {"name": tool, "arguments": object or text}. After the last: an empty answer."""


class ScriptedPolicy:
    """Answers from the list, whatever it is shown."""

    is_stateless = False

    def __init__(self, config: ScriptedPolicyConfig | Sequence[Message]) -> None:
        self._answers = (
            [_message(answer, turn) for turn, answer in enumerate(config.answers, start=1)]
            if isinstance(config, ScriptedPolicyConfig)
            else list(config)
        )
        self._position = 0

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self._position = 0

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        if self._position >= len(self._answers):
            return Message(role="assistant", content="")
        self._position += 1
        return self._answers[self._position - 1].model_copy(deep=True)

    def describe(self) -> dict[str, Any]:
        return {"kind": "scripted", "teacher": "scripted", "num_answers": len(self._answers)}


def call_message(*calls: tuple[str, Mapping[str, Any] | str], content: str = "", turn: int = 0) -> Message:
    """An assistant message with the given calls (tool name, arguments)."""
    tool_calls = [
        ToolCall(
            id=f"call_{turn}_{index}",
            name=name,
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
        )
        for index, (name, arguments) in enumerate(calls)
    ]
    return Message(role="assistant", content=content, tool_calls=tool_calls)


def _message(answer: str | list[dict[str, Any]], turn: int) -> Message:
    if isinstance(answer, str):
        return Message(role="assistant", content=answer)
    return call_message(*((call["name"], call.get("arguments", {})) for call in answer), turn=turn)
