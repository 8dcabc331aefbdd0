"""OpenAIPolicy's protocol against a real HTTP server: what is sent, what is read. Faults: test_policy_faults.py."""

import time

import pytest

from eval_harness.errors import UserError
from tests.policy_helpers import KEY, KEY_ENV, QUESTION, make, serve_fixture, settings  # noqa: F401 (fixture)
from tests.protocol_servers import Answer, status
from trajectories.policies import make_policy
from trajectories.policies.endpoint import own_ids
from trajectories.policies.endpoint_config import Prices
from trajectories.policies.openai_answer import RawAnswer, add_chunk, read_stream_end, read_whole
from trajectories.policies.retries import MalformedAnswerError
from trajectories.policies.server_events import Pieces
from trajectories.policy import PolicyError
from trajectories.record import Message, ToolCall, Usage
from trajectories.tools import TOOLS

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
CALLS = [("file_editor", '{"command": "view",  "path": "graphs \u2028 é"}'), ("pass_evaluator", "{}")]
USAGE = {
    "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200,
    "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 150},
}  # fmt: skip


@STREAMS
def test_an_answer_with_calls_reasoning_usage_and_cost(serve, stream):
    server = serve([Answer("so\u2028it is", calls=CALLS, reasoning="hm, what now?", usage=USAGE)])
    prices = {"input": 2, "output": 10, "cached_input": 1}
    policy = make(server, stream=stream, temperature=0.5, max_output_tokens=64, prices=prices)
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.content == "so\u2028it is" and answer.reasoning == "hm, what now?"
    assert answer.finish_reason == "tool_calls" and answer.reasoning_policy is None
    assert [(call.name, call.arguments) for call in answer.tool_calls] == CALLS
    assert answer.usage.cached_tokens == 600 and answer.usage.reasoning_tokens == 150
    assert answer.usage.cost_usd == pytest.approx((400 * 2 + 600 * 1 + 200 * 10) / 1e6)
    assert answer.usage.latency_s > 0 and answer.usage.num_retries == answer.usage.num_estimated == 0
    request = server.requests[0]
    assert request["tools"] == TOOLS and request["seed"] == 7 and request["temperature"] == 0.5
    assert request["max_tokens"] == 64 and "top_p" not in request and "parallel_tool_calls" not in request
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert not {"openai-organization", "openai-project"} & set(server.headers[0])


def conversation():
    call = ToolCall(id="c0", name="pass_evaluator", arguments="{}")
    return [
        *QUESTION,
        Message(role="assistant", reasoning="hm", tool_calls=[call], turn=1),
        Message(role="tool", content="AS 1.0", tool_call_id="c0", name="pass_evaluator", turn=1),
    ]


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({}, {"reasoning_content": "hm"}),
        ({"reasoning_field": "reasoning"}, {"reasoning": "hm"}),
        ({"send_reasoning": False}, {}),
    ],
)
def test_reasoning_is_sent_back_under_the_endpoint_s_name(serve, more, sent):
    server = serve([Answer("a")])
    make(server, **more).answer(conversation(), TOOLS)
    message = server.requests[0]["messages"][2]
    assert {key: value for key, value in message.items() if "reasoning" in key} == sent
    assert message["tool_calls"][0]["function"] == {"name": "pass_evaluator", "arguments": "{}"}
    assert server.requests[0]["messages"][3]["content"] == "AS 1.0"


def test_a_rationale_is_not_sent_back_as_the_model_s_own_thought(serve):
    server = serve([Answer("a")])
    messages = conversation()
    messages[2] = messages[2].model_copy(update={"reasoning_policy": "summarised"})
    make(server).answer(messages, TOOLS)
    assert "reasoning_content" not in server.requests[0]["messages"][2]


@STREAMS
def test_reasoning_under_other_names_and_inside_the_text(serve, stream):
    server = serve(
        [
            Answer("a", reasoning="hm", reasoning_field="reasoning"),
            Answer("<think>\nhm\n</think>\n\na"),
            Answer("hm\n</think>\n\na"),
        ]
    )
    policy = make(server, stream=stream)
    for _ in range(3):
        answer = policy.answer(QUESTION, TOOLS)
        assert (answer.reasoning, answer.content) == ("hm", "a")


@STREAMS
def test_reasoning_details_go_back_unchanged(serve, stream):
    details = [
        {"type": "reasoning.text", "text": "hm", "signature": "abc", "format": "f", "index": 0},
        {"type": "reasoning.encrypted", "data": "xyz", "index": 1},
    ]
    server = serve([Answer("a", calls=CALLS[1:], fields={"reasoning_details": details}), Answer("b")])
    policy = make(server, stream=stream)
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.reasoning == "hm" and answer.provider_blocks == details
    reply = Message(role="tool", content="AS 1.0", tool_call_id=answer.tool_calls[0].id)
    stored = Message.model_validate_json(answer.model_dump_json())
    policy.answer([*QUESTION, stored, reply], TOOLS)
    sent = server.requests[1]["messages"][2]
    assert sent["reasoning_details"] == details and "reasoning_content" not in sent


def test_pieces_of_reasoning_details_are_joined():
    answer = RawAnswer()
    for piece in (
        {"type": "reasoning.text", "text": "one ", "index": 0},
        {"type": "reasoning.text", "text": "two", "signature": None, "index": 0},
        {"type": "reasoning.text", "signature": "s", "index": 0},
        {"type": "reasoning.summary", "summary": "x", "index": 1},
    ):
        add_chunk(answer, {"choices": [{"delta": {"reasoning_details": [piece]}}]})
    assert answer.reasoning_details == [
        {"type": "reasoning.text", "text": "one two", "signature": "s", "index": 0},
        {"type": "reasoning.summary", "summary": "x", "index": 1},
    ]


def piece(index, call_id=None, name=None, arguments=""):
    call = {"id": call_id, "function": {"name": name, "arguments": arguments}}
    return call if index is None else {**call, "index": index}


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(0, "a", "f", "{"), piece(0, None, None, "1}"), piece(1, "b", "g"), piece(1, "", "", "{}")],
        [piece(0, "a", "f", "{"), piece(1, "b", "g", "{"), piece(0, "a", "f", "1}"), piece(1, None, None, "}")],
        [piece(0, "a", "f", "{1}"), piece(0, "b", "g", "{}")],
        [piece(None, "a", "f", "{"), piece(None, None, None, "1}"), piece(None, "b", "g", "{}")],
    ],
    ids=["in order", "interleaved", "all under index 0", "without an index"],
)
def test_streamed_calls_are_joined_however_they_come(pieces):
    answer = RawAnswer()
    for call in pieces:
        add_chunk(answer, {"choices": [{"delta": {"tool_calls": [call]}}]})
    assert [(call["id"], call["name"], call["arguments"]) for call in answer.calls] == [
        ("a", "f", "{1}"),
        ("b", "g", "{}"),
    ]


def test_calls_without_ids_or_with_the_same_get_ids_of_their_own(serve):
    same = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}] * 2
    empty = [{"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    server = serve([Answer(fields={"tool_calls": same}), Answer(fields={"tool_calls": empty})])
    policy = make(server, stream=False)
    assert [call.id for call in policy.answer(QUESTION, TOOLS).tool_calls] == ["x", "call_2_1"]
    assert [call.id for call in policy.answer(QUESTION, TOOLS).tool_calls] == ["call_2_0"]
    assert own_ids(["p_1", "", "", "p_1"], "p") == ["p_1", "p_5", "p_2", "p_3"]  # nor an id that is another's


@STREAMS
def test_arguments_that_come_as_an_object_are_its_text(serve, stream):
    call = {"id": "c", "type": "function", "function": {"name": "file_editor", "arguments": {"command": "viéw"}}}
    (read,) = make(serve([Answer(fields={"tool_calls": [call]})]), stream=stream).answer(QUESTION, TOOLS).tool_calls
    assert read.arguments == '{"command": "viéw"}'


def test_what_no_file_can_hold_is_nowhere_in_the_answer(serve):
    fields = {"reasoning_details": [{"type": "reasoning.text", "text": "\ud800", "\ud800": 1}]}
    answer = make(serve([Answer("a\ud800", fields=fields, finish="\ud800")]), stream=False).answer(QUESTION, TOOLS)
    assert Message.model_validate_json(answer.model_dump_json()) == answer


@STREAMS
def test_tokens_that_are_not_said_are_estimated_and_said_to_be(serve, stream, caplog):
    server = serve([Answer("x" * 400, usage=None), Answer("y", usage=None)])
    policy = make(server, stream=stream, prices={"input": 1.0, "output": 1.0})
    usage = policy.answer(QUESTION, []).usage
    assert usage.num_estimated == 1 and usage.output_tokens == 100 and 10 < usage.input_tokens < 60
    assert usage.cost_usd == pytest.approx((usage.input_tokens + 100) / 1e6)
    policy.answer(QUESTION, [])
    said = [record for record in caplog.records if "does not say its tokens" in record.getMessage()]
    assert len(said) == 1 and server.url in said[0].getMessage()


def test_what_an_endpoint_says_it_charged_counts_unless_there_are_prices(serve):
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cost": 0.25}
    server = serve([Answer("a", usage=usage), Answer("a", usage=usage)])
    assert make(server).answer(QUESTION, TOOLS).usage.cost_usd == 0.25
    assert make(server, prices={"input": 1}).answer(QUESTION, TOOLS).usage.cost_usd == pytest.approx(1e-4)
    endless = serve([Answer("a", usage={**usage, "cost": cost}) for cost in (float("inf"), float("nan"), -1)])
    assert [make(endless).answer(QUESTION, TOOLS).usage.cost_usd for _ in range(3)] == [0, 0, 0]


def test_token_counts_that_cannot_be_do_not_spoil_the_ledger(serve):
    usage = {"prompt_tokens": 10, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": 50}}
    answer = make(serve([Answer("a", usage=usage)]), prices={"input": 1}).answer(QUESTION, TOOLS)
    assert (answer.usage.input_tokens, answer.usage.cached_tokens, answer.usage.output_tokens) == (10, 10, 0)
    assert answer.usage.cost_usd >= 0


@STREAMS
def test_a_refusal_and_a_cut_answer_keep_their_reasons(serve, stream):
    server = serve([Answer(None, fields={"refusal": "I will not."}), Answer("so", finish="length")])
    policy = make(server, stream=stream)
    refused, was_cut = policy.answer(QUESTION, TOOLS), policy.answer(QUESTION, TOOLS)
    assert (refused.finish_reason, refused.content) == ("refusal", "I will not.")
    assert (was_cut.finish_reason, was_cut.content) == ("length", "so")


def test_an_endpoint_that_answers_whole_though_asked_to_stream_is_read(serve):
    whole = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": USAGE}
    server = serve([status(200, "")])
    server.answers = [type(server.answers[0])("status", status=200, body=whole)]
    assert make(server, stream=True).answer(QUESTION, TOOLS).content == "a"


def test_no_choices_no_message_no_end_are_malformed():
    for value in ({}, {"choices": []}, {"choices": [{}]}, {"choices": "x"}, {"choices": [{"message": None}]}):
        with pytest.raises(MalformedAnswerError):
            read_whole(value)
    with pytest.raises(MalformedAnswerError, match="ended before the answer"):
        read_stream_end(RawAnswer(content_pieces=Pieces(["half"])))


def test_settings_that_would_leak_or_fail_are_refused(monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    own = {"kind": "openai", "model": "m", "api_key_env": "NOT_SET"}
    with pytest.raises(UserError, match=r"\$NOT_SET is not set"):
        make_policy({**own, "base_url": "https://example.invalid/v1"})
    with pytest.raises(UserError, match="keep keys out of the address"):
        make_policy({"kind": "openai", "model": "m", "base_url": f"http://u:{KEY}@localhost/v1"})
    for body in ({"x_api_key": KEY}, {"headers": [{"Authorization": KEY}]}):
        with pytest.raises(UserError, match="looks like a key"):
            make_policy({**own, "base_url": "http://localhost/v1", "extra_body": body})
    with pytest.raises(UserError, match="did you mean 'api_key_env'"):
        make_policy({"kind": "openai", "model": "m", "api_key": KEY})
    make_policy({**own, "base_url": "http://localhost:1/v1"})


def test_the_field_of_newer_models_is_named(serve):
    text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with pytest.raises(UserError, match=r"set policy.max_tokens_field=max_completion_tokens"):
        make(serve([status(400, text)])).answer(QUESTION, TOOLS)


def test_other_refusals_are_not_tried_again(serve):
    server = serve([status(400, "tools not supported")])
    with pytest.raises(PolicyError, match="tools not supported"):
        make(server).answer(QUESTION, TOOLS)
    assert len(server.requests) == 1


def test_tokens_of_the_cache_cost_as_others_unless_priced():
    usage = Usage(input_tokens=10**6, cached_tokens=10**5, cache_write_tokens=2 * 10**5)
    assert Prices(input=1.0).cost_usd(usage) == 1.0
    assert Prices(input=1.0, cached_input=0.1, cache_write=1.25).cost_usd(usage) == pytest.approx(0.7 + 0.01 + 0.25)


def test_the_description_names_the_teacher_and_not_the_key(serve):
    server = serve([])
    own = settings(server, name="tutor", terms="MIT", licence="mit")
    description = make_policy(own).describe()
    assert description["kind"] == "openai" and description["teacher"] == "tutor" and description["terms"] == "MIT"
    assert make_policy(settings(server)).describe()["teacher"] == "m"
    assert KEY not in str(description) and KEY_ENV not in str(description)


def test_a_long_answer_in_many_pieces_is_joined_in_no_time():
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "word"}}
    details = [{"type": "reasoning.text", "text": "word", "index": 0}]
    delta = {"content": "word", "reasoning": "word", "tool_calls": [call], "reasoning_details": details}
    answer, started = RawAnswer(), time.monotonic()
    for _ in range(50_000):
        add_chunk(answer, {"choices": [{"delta": delta}]})
    add_chunk(answer, {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    whole = "word" * 50_000
    assert (answer.content, answer.reasoning, answer.calls[0]["arguments"]) == (whole, whole, whole)
    assert read_stream_end(answer).reasoning_details == [{"type": "reasoning.text", "text": whole, "index": 0}]
    assert time.monotonic() - started < 4  # in the square of the pieces: a minute
