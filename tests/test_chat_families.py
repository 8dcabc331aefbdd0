"""Each family's tokens and mask against texts written out here, and training's rendering against the server's."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.family_conversations import CONVERSATIONS, FAMILIES, call, written_turns
from tests.family_tokenizers import build_tokenizer, own_template
from training.chat_templates import (
    find_family,
    find_training_template,
    has_generation_marks,
    load_template,
    opens_reasoning,
    render,
    template_names,
    without_marks,
)
from training.chat_tokens import parse_assistant_text, tokenize_conversation
from trajectories.tools import TOOLS


@pytest.fixture(scope="module")
def tokenizers():
    text = json.dumps(CONVERSATIONS, ensure_ascii=False) * 3
    return {family: build_tokenizer(family, text) for family in FAMILIES}


def _prompts(template, tokenizer, messages):
    """(position of the assistant message, text of its prompt) for each turn, as a server renders it."""
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            special = tokenizer.special_tokens_map
            yield render(template, messages[:index], TOOLS, special_tokens=special, add_generation_prompt=True)[0]


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_token_trains_if_and_only_if_the_model_generates_it(family, name, tokenizers):
    tokenizer, messages = tokenizers[family], CONVERSATIONS[name]
    tokens = tokenize_conversation(tokenizer, messages, TOOLS)
    template = without_marks(find_training_template(tokenizer))
    text = render(template, messages, TOOLS, special_tokens=tokenizer.special_tokens_map)[0]
    assert tokenizer.decode(tokens.input_ids) == text
    # which bytes the turns are, found in the text one after another
    trains = bytearray(len(text.encode()))
    position = 0
    for turn in written_turns(family, messages):
        position = text.index(turn, position)
        start = len(text[:position].encode())
        trains[start : start + len(turn.encode())] = b"\1" * len(turn.encode())
        position += len(turn)
    # a character of a byte-level token is a byte; an added token is its own text
    added = tokenizer.get_added_vocab()
    pieces = tokenizer.convert_ids_to_tokens(tokens.input_ids)
    lengths = [len(piece.encode()) if piece in added else len(piece) for piece in pieces]
    bounds = [0, *accumulate(lengths)]
    assert bounds[-1] == len(trains)
    for token, (start, end) in enumerate(pairwise(bounds)):
        assert set(trains[start:end]) == {tokens.loss_mask[token]}, (pieces[token], text[:200])
    ends = {tokens.input_ids[end - 1] for _, end in tokens.turns}
    assert ends == {tokenizer.eos_token_id}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_turns_prompt_at_the_server_is_what_training_saw_before_it(family, name, tokenizers):
    tokenizer, messages = tokenizers[family], CONVERSATIONS[name]
    tokens = tokenize_conversation(tokenizer, messages, TOOLS)
    served = without_marks(find_training_template(tokenizer))
    assert not has_generation_marks(served)
    prompts = list(_prompts(served, tokenizer, messages))
    assert len(prompts) == len(tokens.turns) == 4
    for prompt, (start, _), turn in zip(prompts, tokens.turns, written_turns(family, messages), strict=True):
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        assert tokens.input_ids[:start] == ids
        assert tokenizer.decode(tokens.input_ids).startswith(prompt + turn)


def _within_own_scope(family: str) -> list[dict]:
    """The conversation as far as the family's own template can write it."""
    if family in ("qwen3", "qwen3_thinking_2507"):
        return CONVERSATIONS["reasoning in every turn"]
    plain = CONVERSATIONS["no reasoning"]
    if family == "qwen2_5":
        return plain
    if family == "llama3_1":  # one call a turn, and no text beside it
        single = [
            m | ({"content": "", "tool_calls": m["tool_calls"][:1]} if m.get("tool_calls") else {}) for m in plain
        ]
        return [message for message in single if message["content"] != "third result"]
    return [*plain[:2], plain[-1], {"role": "user", "content": "And?"}, plain[-1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_ours_writes_what_the_familys_own_template_writes(family, tokenizers):
    tokenizer, messages = tokenizers[family], _within_own_scope(family)
    tools = None if family == "smollm2" else TOOLS
    special = tokenizer.special_tokens_map
    own, ours = own_template(family), load_template(family)
    assert (
        render(own, messages, tools, special_tokens=special)[0]
        == render(ours, messages, tools, special_tokens=special)[0]
    )
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            prompts = [
                render(template, messages[:index], tools, special_tokens=special, add_generation_prompt=True)[0]
                for template in (own, ours, without_marks(ours))
            ]
            assert len(set(prompts)) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_known_by_its_own_template_and_by_the_one_that_we_save(family, tokenizers):
    tokenizer = tokenizers[family]
    assert find_training_template(tokenizer) == load_template(family)
    assert find_family("{{ messages }}", {}) is None
    own = tokenizer.chat_template
    try:
        tokenizer.chat_template = without_marks(load_template(family))
        assert find_training_template(tokenizer) == load_template(family)
        assert opens_reasoning(tokenizer) == (family == "qwen3_thinking_2507")
    finally:
        tokenizer.chat_template = own


def test_llama_3_2_writes_a_fixed_date():
    """Its own template writes the day it is rendered on, so training and serving would differ."""
    ours = load_template("llama3_1")
    text, _ = render(ours, [{"role": "user", "content": "x"}], None, special_tokens={"bos_token": "<|begin_of_text|>"})
    assert "Today Date: 26 Jul 2024" in text
    assert find_family(own_template("llama3_2"), {"bos_token": "<|begin_of_text|>"}).name == "llama3_1"


def test_a_template_that_leaves_something_out_is_refused(tokenizers):
    tokenizer = tokenizers["qwen2_5"]
    marked = (
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    plain = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert tokenize_conversation(tokenizer, plain, None, chat_template=marked).num_trained > 0
    for name, message in {"reasoning": "the reasoning", "no reasoning": "the tool call"}.items():
        messages = CONVERSATIONS["reasoning in every turn" if name == "reasoning" else name]
        with pytest.raises(UserError, match=f"leaves out {message} of message 2"):
            tokenize_conversation(tokenizer, messages, TOOLS, chat_template=marked)


@pytest.mark.parametrize("turns", [(0,), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("family", FAMILIES)
def test_untrained_turns_are_context(family, turns, tokenizers):
    tokenizer = tokenizers[family]
    whole = tokenize_conversation(tokenizer, CONVERSATIONS["no reasoning"], TOOLS)
    part = tokenize_conversation(tokenizer, CONVERSATIONS["no reasoning"], TOOLS, untrained_turns=turns)
    assert (part.input_ids, part.turns) == (whole.input_ids, whole.turns)
    for turn, (start, end) in enumerate(whole.turns):
        assert set(part.loss_mask[start:end]) == {0 if turn in turns else 1}


def test_an_opened_block_is_parsed_back():
    for reasoning in ("a\nb", None):
        text = f"{reasoning}\n</think>\n\n" if reasoning else "</think>\n\n"
        parsed = parse_assistant_text(text + "Text.<|im_end|>", reasoning_is_open=True)
        assert (parsed.reasoning, parsed.content) == (reasoning, "Text.")


_TEXT = st.text(st.sampled_from("ab \n\t\u00e9<>/{}\"'\\|"), max_size=12)
_CALLS = st.lists(st.tuples(st.sampled_from(["look", "write"]), st.dictionaries(_TEXT, _TEXT, max_size=2)), max_size=2)
_TURNS = st.lists(st.tuples(_TEXT, _TEXT, _CALLS), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_TURNS, st.sampled_from(template_names()))
def test_any_turns_prompt_is_a_prefix_of_the_trained_text(turns, name):
    messages: list[dict] = [{"role": "user", "content": "q"}]
    for content, reasoning, calls in turns:
        message: dict = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        message["tool_calls"] = [call(tool, arguments, 1) for tool, arguments in calls]
        messages += [message, *({"role": "tool", "content": content, "tool_call_id": "1"} for _ in calls)]
    template = load_template(name)
    whole, spans = render(template, messages, TOOLS, special_tokens={})
    assert render(without_marks(template), messages, TOOLS, special_tokens={})[0] == whole
    starts = iter(spans)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt, _ = render(template, messages[:index], TOOLS, special_tokens={}, add_generation_prompt=True)
            start, end = next(starts)
            assert whole[:start] == prompt
            assert whole[:end].endswith(("<|im_end|>", "<|eot_id|>"))
