"""What a student is trained on, to the token: the mask, the template, and the way back from text to a Message."""

from __future__ import annotations

import json

import pytest

from eval_harness.errors import UserError
from training.chat_tokens import (
    MALFORMED_CALL_NAME,
    has_generation_marks,
    load_template,
    parse_assistant_text,
    tokenize_conversation,
    tokenize_prompt,
)
from training.student import TinyStudentConfig, train_tokenizer
from trajectories.record import Message, ToolCall
from trajectories.tools import TOOLS

NASTY_TEXT = 'x = "a\\n\\t\\"b\\""\n\tπ = \'déjà\'  # </tool_call> <tool_call> {"}\n\r\n\U0001f600\x00 \\u0041\n\n'


def _call(arguments: object, name: str = "file_editor", call_id: str = "call_1") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def _conversation() -> list[Message]:
    create = _call({"command": "create", "path": "pass_dir/F.py", "file_text": NASTY_TEXT})
    return [
        Message(role="system", content="SYSTEM TEXT"),
        Message(role="user", content="USER TEXT"),
        Message(role="assistant", content="I look.", reasoning="THINK\ntwice", tool_calls=[create]),
        Message(role="tool", content="OBSERVATION ONE", tool_call_id="call_1", name="file_editor"),
        Message(
            role="assistant",
            tool_calls=[
                _call({}, "pass_evaluator", "call_2"),
                _call({"command": "view", "path": "."}, call_id="call_3"),
            ],
        ),
        Message(role="tool", content="OBSERVATION TWO", tool_call_id="call_2", name="pass_evaluator"),
        Message(role="tool", content="OBSERVATION THREE", tool_call_id="call_3", name="file_editor"),
        Message(role="assistant", content="Done."),
    ]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [message.model_dump_json() for message in _conversation()]
    return train_tokenizer(texts, TinyStudentConfig(vocab_size=400))


def _expected_turns(messages: list[Message]) -> list[str]:
    """The assistant's turns written without the template: what must train, exactly."""
    turns = []
    for message in messages:
        if message.role == "assistant":
            text = f"<think>\n{message.reasoning}\n</think>\n\n" if message.reasoning else ""
            text += message.content
            for index, call in enumerate(message.tool_calls):
                text += "\n" if index or message.content else ""
                text += f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
            turns.append(text + "<|im_end|>")
    return turns


def _runs(token_ids: list[int], mask: list[int], wanted: int) -> list[list[int]]:
    runs: list[list[int]] = []
    previous = None
    for token, trains in zip(token_ids, mask, strict=True):
        if trains == wanted:
            if previous != wanted:
                runs.append([])
            runs[-1].append(token)
        previous = trains
    return runs


def test_mask_covers_the_assistants_turns_and_nothing_else(tokenizer):
    messages = _conversation()
    tokens = tokenize_conversation(tokenizer, [message.to_openai() for message in messages], TOOLS)
    trained = [tokenizer.decode(run) for run in _runs(tokens.input_ids, tokens.loss_mask, 1)]
    assert trained == _expected_turns(messages)
    rest = "".join(tokenizer.decode(run) for run in _runs(tokens.input_ids, tokens.loss_mask, 0))
    for text in ("SYSTEM", "USER TEXT", "OBSERVATION ONE", "OBSERVATION TWO", "OBSERVATION THREE", "pass_evaluator"):
        assert text in rest
    assert "Done." not in rest and "THINK" not in rest


def test_labels_are_the_ids_where_they_train(tokenizer):
    tokens = tokenize_conversation(tokenizer, [message.to_openai() for message in _conversation()], TOOLS)
    assert [label == token for label, token in zip(tokens.labels, tokens.input_ids, strict=True)] == [
        bool(trains) for trains in tokens.loss_mask
    ]
    assert set(tokens.labels) - set(tokens.input_ids) == {-100}
    assert tokens.num_trained == sum(tokens.loss_mask)


def test_arguments_as_an_object_or_as_text_give_the_same_tokens(tokenizer):
    as_text = [message.to_openai() for message in _conversation()]
    as_object = json.loads(json.dumps(as_text))
    for message in as_object:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert tokenize_conversation(tokenizer, as_text, TOOLS) == tokenize_conversation(tokenizer, as_object, TOOLS)


def test_a_turns_prompt_is_a_prefix_of_the_trained_conversation(tokenizer):
    """What the student sees when it answers is what it saw in training, token for token."""
    messages = _conversation()
    whole = tokenize_conversation(tokenizer, [message.to_openai() for message in messages], TOOLS)
    for index, message in enumerate(messages):
        if message.role == "assistant":
            prompt = tokenize_prompt(tokenizer, messages[:index], TOOLS)
            assert whole.input_ids[: len(prompt)] == prompt
            assert whole.loss_mask[len(prompt) - 1 : len(prompt) + 1] == [0, 1]


def test_what_was_rendered_is_parsed_back_and_renders_the_same():
    answers = [message for message in _conversation() if message.role == "assistant"]
    for message, text in zip(answers, _expected_turns(answers), strict=True):
        parsed = parse_assistant_text(text)
        assert (parsed.content, parsed.reasoning) == (message.content, message.reasoning)
        assert [(call.name, call.arguments) for call in parsed.tool_calls] == [
            (call.name, call.arguments) for call in message.tool_calls
        ]
        assert len({call.id for call in parsed.tool_calls}) == len(parsed.tool_calls)
        assert _expected_turns([parsed]) == [text]


def test_argument_text_keeps_its_spacing_and_key_order():
    text = '<tool_call>\n{"name":  "file_editor" , "arguments": { "path":"a",\n "command" : "view" } }\n</tool_call>'
    (call,) = parse_assistant_text(text).tool_calls
    assert call.arguments == '{ "path":"a",\n "command" : "view" }'


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"name": "file_editor", "arguments": {"path": }}', "file_editor", '{"path": }'),
        ('{"name": "file_editor", "arguments": {"file_text": "cut', "file_editor", '{"file_text": "cut'),
        ('{"arguments": {}}', MALFORMED_CALL_NAME, '{"arguments": {}}'),
        ("not json", MALFORMED_CALL_NAME, "not json"),
        ("[1, 2]", MALFORMED_CALL_NAME, "[1, 2]"),
        ("", MALFORMED_CALL_NAME, ""),
        ("[" * 100_000, MALFORMED_CALL_NAME, "[" * 100_000),
    ],
)
@pytest.mark.parametrize("close", ["\n</tool_call>", ""])
def test_a_malformed_call_is_recorded_as_it_was_written(body, name, arguments, close):
    message = parse_assistant_text(f"Text.\n<tool_call>\n{body}{close}")
    assert message.content == "Text."
    assert [(call.name, call.arguments) for call in message.tool_calls] == [(name, arguments)]


def test_calls_after_a_malformed_one_are_still_read():
    text = '<tool_call>\n{broken\n</tool_call>\n<tool_call>\n{"name": "pass_evaluator", "arguments": {}}\n</tool_call>'
    assert [call.name for call in parse_assistant_text(text).tool_calls] == [MALFORMED_CALL_NAME, "pass_evaluator"]


def test_arguments_that_do_not_stand_last_are_still_an_object():
    text = '<tool_call>\n{"arguments": {"command": "view"}, "name": "file_editor"}\n</tool_call>'
    (call,) = parse_assistant_text(text).tool_calls
    assert (call.name, json.loads(call.arguments)) == ("file_editor", {"command": "view"})


def test_a_template_without_generation_marks_is_refused(tokenizer):
    assert has_generation_marks(load_template())
    with pytest.raises(UserError, match="generation"):
        tokenize_conversation(tokenizer, [{"role": "user", "content": "x"}], None, chat_template="{{ messages }}")
    with pytest.raises(UserError, match="qwen3_style"):
        load_template("no_such_template")
