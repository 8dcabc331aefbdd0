"""Rollouts to the token: the ids of a conversation, added turn by turn, are those of its rendering as a whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.family_conversations import CONVERSATIONS
from tests.family_tokenizers import build_tokenizer, own_template
from training.chat_templates import load_template, template_names
from training.chat_tokens import MALFORMED_CALL_NAME, tokenize_conversation
from training.llama_calls import parse_llama_text
from training.rollout_tokens import RolloutTokenizer, RolloutTokens
from trajectories.record import Message, ToolCall
from trajectories.tools import TOOLS

FAMILY_OF = {"qwen3_style": "qwen3", "qwen3_instruct_2507": "qwen3"}
"""Whose tokenizer a template is used with, where it is not its own name."""


@pytest.fixture(scope="module")
def tokenizers():
    text = json.dumps(CONVERSATIONS, ensure_ascii=False) * 3
    built = {}
    for name in template_names():
        tokenizer = build_tokenizer(FAMILY_OF.get(name, name), text)
        tokenizer.chat_template = load_template(name)
        built[name] = tokenizer
    return built


def _message(message: dict) -> Message:
    calls = [
        ToolCall(
            id=call["id"],
            name=call["function"]["name"],
            arguments=json.dumps(call["function"]["arguments"], ensure_ascii=False),
        )
        for call in message.get("tool_calls", [])
    ]
    return Message(
        role=message["role"],
        content=message["content"],
        reasoning=message.get("reasoning_content"),
        tool_calls=calls,
        tool_call_id=message.get("tool_call_id"),
        name=message.get("name"),
    )


def _roll_out(tokenizer, messages: list[Message], *, cut: int = 0) -> tuple[RolloutTokens, list[list[int]], list[str]]:
    """The conversation as a rollout whose answers are the template's own; cut: tokens that every answer lacks at its
    end."""
    rollout_tokenizer = RolloutTokenizer(tokenizer, TOOLS)
    openai = [message.to_openai() for message in messages]
    whole = tokenize_conversation(tokenizer, openai, TOOLS)
    first = next(index for index, message in enumerate(messages) if message.role == "assistant")
    tokens = RolloutTokens(rollout_tokenizer.prompt_ids(messages[:first]))
    prompts, answers = [], []
    position = first
    for start, end in whole.turns:
        prompts.append(tokens.next_prompt())
        ids = whole.input_ids[start : end - cut]
        tokens.add_answer(ids, [-0.25] * len(ids))
        answers.append(rollout_tokenizer.read_answer(ids, finish_reason="stop", turn=len(prompts)))
        replies = []
        position += 1
        while position < len(messages) and messages[position].role != "assistant":
            replies.append(messages[position])
            position += 1
        if replies:
            tokens.add_environment(rollout_tokenizer.suffix_ids(ids, replies))
    return tokens, prompts, answers


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("template", template_names())
def test_ids_and_mask_are_those_of_the_whole_rendering(template, name, tokenizers):
    tokenizer = tokenizers[template]
    messages = [_message(message) for message in CONVERSATIONS[name]]
    whole = tokenize_conversation(tokenizer, [message.to_openai() for message in messages], TOOLS)
    tokens, prompts, answers = _roll_out(tokenizer, messages)
    end = whole.turns[-1][1]
    first = len(tokens.prompt_ids)
    assert tokens.prompt_ids + tokens.completion_ids == whole.input_ids[:end]
    assert tokens.env_mask == whole.loss_mask[first:end]
    assert [(start + first, stop + first) for start, stop in tokens.turns] == whole.turns
    assert sum(tokens.env_mask) == tokens.num_generated == whole.num_trained
    assert [value != 0 for value in tokens.logprobs] == [bool(mask) for mask in tokens.env_mask]
    for prompt, (start, _) in zip(prompts, whole.turns, strict=True):
        assert prompt == whole.input_ids[:start]
    written = [message for message in messages if message.role == "assistant"]
    for read, message in zip(answers, written, strict=True):
        assert (read.content, read.reasoning) == (message.content, message.reasoning)
        assert [(call.name, call.arguments) for call in read.tool_calls] == [
            (call.name, call.arguments) for call in message.tool_calls
        ]


@pytest.mark.parametrize("template", template_names())
def test_the_missing_end_of_a_cut_answer_is_the_environments(template, tokenizers):
    tokenizer = tokenizers[template]
    messages = [_message(message) for message in CONVERSATIONS["no reasoning"]]
    whole = tokenize_conversation(tokenizer, [message.to_openai() for message in messages], TOOLS)
    cut, _, _ = _roll_out(tokenizer, messages, cut=1)
    end = whole.turns[-1][1] - 1
    first = len(cut.prompt_ids)
    assert cut.prompt_ids + cut.completion_ids == whole.input_ids[:end]
    mask = list(whole.loss_mask)
    for _, stop in whole.turns:
        mask[stop - 1] = 0
    assert cut.env_mask == mask[first:end]
    assert sum(cut.env_mask) == cut.num_generated == whole.num_trained - len(whole.turns)


_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\x85\x1c\x1d\x1e\u2028\u2029"), min_size=1, max_size=40
).filter(lambda text: text.strip() == text and "<" not in text)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    template=st.sampled_from(template_names()),
    turns=st.lists(st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=3)), min_size=1, max_size=3),
)
def test_any_text_of_answers_and_tools_joins_as_it_is_rendered(template, turns, tokenizers):
    messages = [Message(role="system", content="S"), Message(role="user", content="U")]
    for number, (answer, replies) in enumerate(turns):
        calls = [
            ToolCall(id=f"{number}_{i}", name="look", arguments=json.dumps({"x": reply}))
            for i, reply in enumerate(replies)
        ]
        messages.append(Message(role="assistant", content=answer, tool_calls=calls))
        messages += [
            Message(role="tool", content=reply, tool_call_id=call.id, name="look")
            for call, reply in zip(calls, replies, strict=True)
        ]
    messages.append(Message(role="assistant", content="end"))
    tokenizer = tokenizers[template]
    whole = tokenize_conversation(tokenizer, [message.to_openai() for message in messages], TOOLS)
    tokens, _, _ = _roll_out(tokenizer, messages)
    assert tokens.next_prompt() == whole.input_ids[: whole.turns[-1][1]]


def test_a_user_message_after_a_cut_answer(tokenizers):
    rollout_tokenizer = RolloutTokenizer(tokenizers["qwen3_style"], TOOLS)
    reply = Message(role="user", content="Your answer was cut off.")
    text = tokenizers["qwen3_style"].decode(rollout_tokenizer.suffix_ids([5, 6], [reply]))
    assert text == "<|im_end|>\n<|im_start|>user\nYour answer was cut off.<|im_end|>\n<|im_start|>assistant\n"


def test_templates_that_cannot_be_rolled_out_are_refused(tokenizers):
    tokenizer = tokenizers["qwen3"]
    with pytest.raises(UserError, match="generation"):
        RolloutTokenizer(tokenizer, TOOLS, chat_template=own_template("qwen3"))
    # drops the reasoning of a turn once another follows, as inference templates do
    forgets = load_template("qwen3_style").replace(
        "{%- if message.reasoning_content %}", "{%- if message.reasoning_content and loop.last %}"
    )
    with pytest.raises(UserError, match="turn 1 differently"):
        RolloutTokenizer(tokenizer, TOOLS, chat_template=forgets)


def test_logprobs_must_be_as_many_as_tokens():
    with pytest.raises(ValueError, match="2 tokens with 1 logprobs"):
        RolloutTokens([1]).add_answer([2, 3], [-1.0])


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Just text.", "Just text.", []),
        ('A brace: {"x": 1}', 'A brace: {"x": 1}', []),
        ('{"name": "look", "parameters": { "p":"; {" } }', "", [("look", '{ "p":"; {" }')]),
        ('I look.\n{"name": "a", "parameters": {}}; {"name": "b", "arguments": {"x": 1}}', "I look.",
         [("a", "{}"), ("b", '{"x": 1}')]),
        ('{"name": "a", "parameters": {}}\n{"name": "b", "parameters": {"cut', "", [("a", "{}"), ("b", '{"cut')]),
        ('{"name": "a", "parameters": {}} and more', "", [("a", "{}"), (MALFORMED_CALL_NAME, "and more")]),
        ('{"name": "a"}', "", [(MALFORMED_CALL_NAME, '{"name": "a"}')]),
        ('{"name": "\\x", "parameters": {}}', "", [(MALFORMED_CALL_NAME, '{"name": "\\x", "parameters": {}}')]),
        ('{"name": "a", "parameters": ' + "[" * 100_000, "", [("a", "[" * 100_000)]),
    ],
)  # fmt: skip
def test_bare_calls_are_read_as_they_were_written(text, content, calls):
    message = parse_llama_text(text)
    assert message.content == content
    assert [(call.name, call.arguments) for call in message.tool_calls] == calls
    assert len({call.id for call in message.tool_calls}) == len(calls)
