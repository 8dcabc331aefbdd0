"""Template drift: quiet for rollouts as they are made, whatever the student writes; found where the text differs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.family_conversations import CONVERSATIONS, FAMILIES
from tests.family_tokenizers import build_tokenizer
from training.chat_templates import find_training_template, load_template
from training.rollout_tokens import RolloutTokenizer, RolloutTokens
from training.template_drift import find_template_drift
from trajectories.record import Message
from trajectories.tools import TOOLS

FIRST = [Message(role="system", content="SYSTEM."), Message(role="user", content="USER asks.")]
FRAGMENTS = [
    "I look. ",
    "\n\n",
    "<think>\nhm\n</think>\n\n",
    "</think>",
    "<tool_call>\n",
    '<tool_call>\n{"name": "pass_evaluator", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "file_editor", "arguments": {"command": "view", "path"',
    "\n</tool_call>",
    '{"a": [1, "\u00e9"]}',
    "<|im_end|>",
    "  ",
]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    text = json.dumps(CONVERSATIONS, ensure_ascii=False) * 3
    return {family: build_tokenizer(family, text) for family in FAMILIES}


def rollout(tokenizer: Any, answers: list[str], *, cut: bool = False) -> tuple[RolloutTokens, list[Message]]:
    """As the turn loop makes it: an answer's ids, then what the environment writes."""
    pieces = RolloutTokenizer(tokenizer, TOOLS)
    tokens, messages = RolloutTokens(pieces.prompt_ids(FIRST)), list(FIRST)
    for turn, text in enumerate(answers, start=1):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"] + ([] if cut else pieces.end_of_turn_ids)
        tokens.add_answer(ids, [0.0] * len(ids))
        answer = pieces.read_answer(ids, finish_reason="length" if cut else "stop", turn=turn)
        replies = [
            Message(role="tool", content=f"result {turn}", tool_call_id=call.id, name=call.name)
            for call in answer.tool_calls
        ] or [Message(role="user", content="Your answer was cut off.")]
        messages += [answer, *replies]
        tokens.add_environment(pieces.suffix_ids(ids, replies))
    tokens.end()
    return tokens, messages


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    family=st.sampled_from(["qwen2_5", "qwen3", "llama3_1", "smollm2"]),
    answers=st.lists(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join), min_size=1, max_size=3),
    cut=st.booleans(),
)
def test_whatever_a_student_writes_is_no_drift(
    tokenizers: dict[str, Any], family: str, answers: list[str], cut: bool
) -> None:
    tokens, messages = rollout(tokenizers[family], answers, cut=cut)
    assert find_template_drift(tokens, messages, TOOLS, tokenizers[family]) is None


ANSWERS = ['<tool_call>\n{"name": "pass_evaluator", "arguments": {}}\n</tool_call>', "Done."]


def test_another_template_is_found(tokenizers: dict[str, Any]) -> None:
    tokens, messages = rollout(tokenizers["qwen2_5"], ANSWERS)
    other = load_template("llama3_1")
    drift = find_template_drift(tokens, messages, TOOLS, tokenizers["qwen2_5"], chat_template=other)
    assert drift is not None and drift.startswith("before answer 1: the rollout has")
    # one word between two answers
    template = find_training_template(tokenizers["qwen2_5"]).replace("<tool_response>", "<tool_result>")
    drift = find_template_drift(tokens, messages, TOOLS, tokenizers["qwen2_5"], chat_template=template)
    assert drift is not None and "before answer 2" in drift and "ponse>" in drift and "ult>" in drift


def test_changed_tokens_and_other_conversations_are_found(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["qwen2_5"]
    tokens, messages = rollout(tokenizer, ANSWERS)
    changed = [m.model_copy(update={"content": "result 9"}) if m.role == "tool" else m for m in messages]
    assert find_template_drift(tokens, changed, TOOLS, tokenizer) is not None
    assert find_template_drift(tokens, messages[:-2], TOOLS, tokenizer) is not None
    tokens.prompt_ids[3] += 1
    drift = find_template_drift(tokens, messages, TOOLS, tokenizer)
    assert drift is not None and "before answer 1" in drift


def test_a_template_that_drops_earlier_reasoning_is_found(tokenizers: dict[str, Any]) -> None:
    answers = ["<think>\nI wonder.\n</think>\n\n" + ANSWERS[0], "Done."]
    tokens, messages = rollout(tokenizers["qwen3"], answers)
    assert find_template_drift(tokens, messages, TOOLS, tokenizers["qwen3"]) is None
    template = load_template("qwen3").replace("message.reasoning_content", "message.nothing")
    assert template != load_template("qwen3")
    drift = find_template_drift(tokens, messages, TOOLS, tokenizers["qwen3"], chat_template=template)
    assert drift is not None and "reasoning" in drift
