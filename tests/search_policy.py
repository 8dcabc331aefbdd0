"""A policy for tests of searches: answers each kind of request by a function, and remembers what it was shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data.task import Task
from tests.canned_evaluator import pass_files
from trajectories.agents.requests import kind_of
from trajectories.policies.scripted import call_message
from trajectories.record import Message, Usage

Answer = str | Message


def writes(mark: str) -> Message:
    """An answer that creates the files of a canned pass."""
    files = {f"pass_dir/{path}": text for path, text in pass_files(mark).items()}
    return call_message(
        *(("file_editor", {"command": "create", "path": path, "file_text": text}) for path, text in files.items())
    )


def plans(*texts: str) -> str:
    return json.dumps([{"plan": text, "score": 0.9 - 0.1 * place} for place, text in enumerate(texts)])


class RequestPolicy:
    """kinds: kind of request -> (how many of that kind before, the request) -> answer."""

    is_stateless = True

    def __init__(self, kinds: Mapping[str, Callable[[int, str], Answer]], name: str = "model") -> None:
        self.kinds, self.name = kinds, name
        self.shown: list[tuple[str, list[Message]]] = []

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        pass

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        kind = kind_of(messages[-1].content)
        before = sum(each == kind for each, _ in self.shown)
        self.shown.append((kind, list(messages)))
        answer = self.kinds[kind](before, messages[-1].content)
        message = answer if isinstance(answer, Message) else Message(role="assistant", content=answer)
        return message.model_copy(update={"usage": Usage(input_tokens=100, output_tokens=10, cost_usd=0.01)})

    def describe(self) -> dict[str, Any]:
        return {"kind": "test", "model": self.name}

    def requests(self, kind: str) -> list[str]:
        return [messages[-1].content for each, messages in self.shown if each == kind]
