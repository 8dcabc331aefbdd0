"""Scripted students for the tests of rollouts: answers as messages, given to the engine as the template's own ids."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data.task import Task
from eval_harness.executor import Evaluator
from tests.canned_evaluator import make_task, pass_files
from training.chat_tokens import tokenize_conversation
from training.generation import GenerationRequest
from training.rollout_tokens import RolloutTokenizer
from training.rollouts import RolloutRequest
from training.student import TinyStudentConfig, train_tokenizer
from trajectories.environment import PassEnvironment
from trajectories.limits import AgentLimits
from trajectories.policies.replay import pass_folder_answers
from trajectories.policies.scripted import call_message
from trajectories.prompts import render_messages
from trajectories.record import Message
from trajectories.tools import TOOLS

EVALUATE = ("pass_evaluator", {})


def build_rollout_tokenizer(chat_template: str = "qwen3_style") -> RolloutTokenizer:
    """A small tokenizer of the prompts' own text."""
    messages = [message.content for message in render_messages(make_task(), "cpu", 50)]
    texts = [*messages, json.dumps(TOOLS), *(m.model_dump_json() for m in pass_folder_answers(pass_files("as=1.5")))]
    config = TinyStudentConfig(vocab_size=420, chat_template=chat_template)
    return RolloutTokenizer(train_tokenizer(texts, config), TOOLS)


def create(text: str, path: str = "pass_dir/Fuse.py") -> tuple[str, dict[str, Any]]:
    return ("file_editor", {"command": "create", "path": path, "file_text": text})


def attempt(*marks: str) -> list[Message]:
    """One turn a mark, which writes the pass and has it evaluated; the first also writes the list of rules."""
    rules = create('["Fuse"]', "pass_dir/sorted_output_pass_rule_names.json")
    return [
        call_message(*([rules] if turn == 0 else []), create(f"# {mark}\n"), EVALUATE, turn=turn)
        for turn, mark in enumerate(marks)
    ]


def answer_ids(tokenizer: RolloutTokenizer, message: Message | str) -> list[int]:
    """What a student generates to write this message, end of turn included."""
    if isinstance(message, str):
        message = Message(role="assistant", content=message)
    whole = tokenize_conversation(tokenizer.tokenizer, [{"role": "user", "content": "x"}, message.to_openai()], TOOLS)
    start, end = whole.turns[0]
    return whole.input_ids[start:end]


def scripted(
    tokenizer: RolloutTokenizer, scripts: Mapping[str, Sequence[Message | str | list[int]]]
) -> Callable[[GenerationRequest], list[int]]:
    """The answer function of a ScriptedEngine: the turns of each key; after the last, "Done."."""
    turns: dict[str, int] = defaultdict(int)

    def answer(request: GenerationRequest) -> list[int]:
        script, turn = scripts[request.key], turns[request.key]
        turns[request.key] += 1
        wanted = script[turn] if turn < len(script) else "Done."
        return wanted if isinstance(wanted, list) else answer_ids(tokenizer, wanted)

    return answer


def environments(evaluator: Evaluator, **limits: Any) -> Callable[[RolloutRequest], PassEnvironment]:
    """make_environment with these AgentLimits."""
    return lambda request: PassEnvironment(request.task, evaluator, limits=AgentLimits(**limits))


def requests(keys: Sequence[str], task: Task | None = None) -> list[RolloutRequest]:
    task = task or make_task()
    return [RolloutRequest(task, key, "group", index, seed=index) for index, key in enumerate(keys)]
