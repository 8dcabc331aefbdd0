"""AnthropicPolicy's protocol against a real HTTP server that checks the API's rules. Faults: test_policy_faults.py."""

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import KEY, KEY_ENV, QUESTION, make, scripted_answer, serve_fixture  # noqa: F401 (fixture)
from tests.protocol_rules import MAX_CACHE_MARKS, anthropic_fault, sign
from tests.protocol_servers import Answer, page
from trajectories.environment import PassEnvironment
from trajectories.policies import make_policy
from trajectories.policies.anthropic_blocks import BlockCollector, kept_blocks, mark_for_cache, to_request, to_tools
from trajectories.record import Message, StopReason, ToolCall
from trajectories.rollout import run_rollout
from trajectories.tools import TOOLS

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
CALLS = [("file_editor", '{"command": "view", "path": "graphs \u2028 é"}'), ("pass_evaluator", "{}")]


@STREAMS
def test_an_answer_with_calls_thinking_usage_and_cost(serve, stream):
    server = serve([Answer("so it is", calls=CALLS, reasoning="hm, what now?", redacted="xyz")])
    prices = {"input": 1e6, "output": 0, "cached_input": 0, "cache_write": 2e6}
    policy = make(server, "anthropic", stream=stream, max_output_tokens=2048, thinking={"type": "adaptive"},
                  effort="high", prices=prices)  # fmt: skip
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.content == "so it is" and answer.reasoning == "hm, what now?"
    assert answer.finish_reason == "tool_calls"
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        (name, json.loads(arguments)) for name, arguments in CALLS
    ]
    if stream:
        assert [call.arguments for call in answer.tool_calls] == [arguments for _, arguments in CALLS]
    assert answer.provider_blocks == [
        {"type": "thinking", "thinking": "hm, what now?", "signature": sign("hm, what now?")},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "num_chars": 8},
        {"type": "tool_use"},
        {"type": "tool_use"},
    ]
    usage = answer.usage
    assert usage.output_tokens == 20 and usage.cached_tokens == 0 and usage.cache_write_tokens > 100
    assert usage.input_tokens >= usage.cache_write_tokens
    assert usage.cost_usd == usage.input_tokens + usage.cache_write_tokens
    request = server.requests[0]
    assert request["max_tokens"] == 2048 and request["thinking"] == {"type": "adaptive"}
    assert request["output_config"] == {"effort": "high"} and "temperature" not in request
    sampled = serve([Answer(content="Done.")])
    make(sampled, "anthropic", temperature=0.5, top_p=0.9).answer(QUESTION, [])
    assert (sampled.requests[0]["temperature"], sampled.requests[0]["top_p"]) == (0.5, 0.9)
    assert [tool["name"] for tool in request["tools"]] == [tool["function"]["name"] for tool in TOOLS]
    assert request["tools"][0]["input_schema"] == TOOLS[0]["function"]["parameters"]
    sent_keys = {server.headers[0].get(name) for name in ("authorization", "x-api-key")}
    assert sent_keys - {None} <= {KEY, f"Bearer {KEY}"} and sent_keys != {None}


@STREAMS
def test_a_whole_attempt_reads_its_prefix_from_the_cache(serve, stream):
    """Each turn reads what the turn before wrote: only the newest results are paid for in full."""

    def teacher(body):
        return scripted_answer(body, reasoning=f"thought {len(body['messages'])}")

    server = serve(teacher)
    trajectory = run_rollout(make(server, "anthropic", stream=stream), PassEnvironment(make_task(), CannedEvaluator()))
    assert trajectory.stop_reason is StopReason.SUBMITTED and trajectory.final_verdict.as_score == 1.5
    usages = [message.usage for message in trajectory.messages if message.role == "assistant"]
    assert usages[0].cached_tokens == 0
    for before, after in itertools.pairwise(usages):
        assert after.cached_tokens == before.cached_tokens + before.cache_write_tokens
        assert after.input_tokens == after.cached_tokens + after.cache_write_tokens
    assert trajectory.usage.cache_write_tokens == usages[-1].cached_tokens + usages[-1].cache_write_tokens
    assert trajectory.num_without_reasoning == 0
    for request in server.requests:
        blocks = [*request["tools"], *request["system"], *(b for m in request["messages"] for b in m["content"])]
        assert 3 <= sum("cache_control" in block for block in blocks) <= MAX_CACHE_MARKS


def test_thinking_goes_back_unchanged_from_the_record(serve):
    server = serve([Answer("one", calls=CALLS, reasoning="hm", redacted="xyz"), Answer("two")])
    policy = make(server, "anthropic")
    answer = Message.model_validate_json(policy.answer(QUESTION, TOOLS).model_dump_json())
    replies = [Message(role="tool", content="ok", tool_call_id=call.id) for call in answer.tool_calls]
    policy.answer([*QUESTION, answer, *replies], TOOLS)
    sent = server.requests[1]["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "hm", "signature": sign("hm")},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "one"},
        *(
            {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": json.loads(arguments)}
            for index, (name, arguments) in enumerate(CALLS)
        ),
    ]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"), ("tool_use", "tool_calls"), ("max_tokens", "length"), ("refusal", "refusal"),
        ("model_context_window_exceeded", "length"),
    ],
)  # fmt: skip
@STREAMS
def test_stop_reasons_under_the_names_that_the_environment_reads(serve, stream, stop, finish):
    answer = make(serve([Answer("so", finish=stop)]), "anthropic", stream=stream).answer(QUESTION, TOOLS)
    assert (answer.finish_reason, answer.content) == (finish, "so")


def test_a_call_that_was_cut_off_stays_as_written_and_the_next_request_is_valid(serve):
    cut_call = [("file_editor", '{"command": "create", "file_te')]
    server = serve([Answer(calls=cut_call, finish="max_tokens"), Answer("shorter")])
    policy = make(server, "anthropic")
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.finish_reason == "length" and answer.tool_calls[0].arguments == cut_call[0][1]
    policy.answer([*QUESTION, answer, Message(role="tool", content="malformed", tool_call_id="toolu_0")], TOOLS)
    assert server.requests[1]["messages"][1]["content"][0]["input"] == {"unreadable_arguments": cut_call[0][1]}


def test_caching_can_be_off_or_long(serve):
    server = serve([Answer("a"), Answer("a")])
    make(server, "anthropic", prompt_caching="off").answer(QUESTION, TOOLS)
    make(server, "anthropic", prompt_caching="1h").answer(QUESTION, TOOLS)
    assert "cache_control" not in str(server.requests[0])
    assert server.requests[1]["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_settings_that_the_api_would_refuse_are_refused_at_once(monkeypatch):
    own = {"kind": "anthropic", "model": "m", "base_url": "http://localhost:1"}
    for more, words in (
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "wants 1024 or more"),
        ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, "below max_output_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "temperature": 0.5}, "takes 1 alone"),
        ({"thinking": {"budget_tokens": 2000}}, 'wants a "type"'),
        ({"effort": "huge"}, "policy.effort"),
        ({"prompt_cache": "5m"}, "did you mean 'prompt_caching'"),
    ):
        with pytest.raises(UserError, match=words):
            make_policy(own | more)
    monkeypatch.delenv(KEY_ENV, raising=False)
    with pytest.raises(UserError, match=r"\$TEST_TEACHER_KEY is not set"):
        make_policy({"kind": "anthropic", "model": "m", "api_key_env": KEY_ENV})


texts = st.text(max_size=12)
calls = st.lists(st.tuples(st.sampled_from(["file_editor", "pass_evaluator"]), texts), max_size=3)


@st.composite
def conversations(draw):
    messages = [Message(role="system", content=draw(texts)), Message(role="user", content=draw(texts))]
    for turn in range(draw(st.integers(0, 4))):
        tool_calls = [
            ToolCall(id=f"{draw(st.sampled_from('a.:'))}{turn}_{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(draw(calls))
        ]
        thought = draw(st.none() | texts)
        text = draw(texts)
        blocks = [{"type": "thinking", "thinking": thought, "signature": sign(thought)}] if thought is not None else []
        blocks += [{"type": "text", "text": text}] + [{"type": "tool_use"} for _ in tool_calls]
        kept = kept_blocks(blocks)
        if draw(st.booleans()) and kept:  # a message that was changed after it was recorded
            text += "!"
        messages.append(Message(role="assistant", content=text, tool_calls=tool_calls, provider_blocks=kept))
        messages += [Message(role="tool", content=draw(texts), tool_call_id=call.id) for call in tool_calls]
        if not tool_calls or draw(st.booleans()):
            messages.append(Message(role="user", content=draw(texts)))
    return messages


@given(conversations())
def test_every_conversation_becomes_a_request_that_the_api_takes(messages):
    before = copy.deepcopy(messages)
    system, turns = to_request(messages)
    tools = to_tools(TOOLS)
    mark_for_cache(tools, system, turns, "5m")
    assert anthropic_fault({"max_tokens": 1, "system": system, "messages": turns, "tools": tools}) is None
    assert messages == before
    thoughts = [block for message in messages for block in message.provider_blocks or () if "signature" in block]
    assert [block for turn in turns for block in turn["content"] if "signature" in block] == thoughts


def test_blocks_and_deltas_that_are_not_known_are_passed_over():
    collector = BlockCollector()
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "something_new"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ):
        collector.add_event(event)
    assert collector.blocks == [{"type": "text", "text": "a"}] and collector.is_whole
    assert collector.usage == {"input_tokens": 3, "output_tokens": 9}


@pytest.mark.parametrize("is_signed", [False, True], ids=["in the thought", "after it"])
@pytest.mark.parametrize("text", ["", "so"])
def test_an_answer_that_was_cut_off_while_thinking_goes_back_as_the_api_takes_it(text, is_signed):
    thought = {"type": "thinking", "thinking": "hm", "signature": sign("hm") if is_signed else ""}
    blocks = ([{"type": "text", "text": text}] if text else []) + [thought]
    answer = Message(role="assistant", content=text, provider_blocks=kept_blocks(blocks), finish_reason="length")
    answer = Message.model_validate_json(answer.model_dump_json())
    system, turns = to_request([*QUESTION, answer, Message(role="user", content="Your answer was cut off.")])
    assert anthropic_fault({"max_tokens": 1, "system": system, "messages": turns}) is None
    assert ("hm" in str(turns)) == is_signed


@pytest.mark.parametrize(("ids", "own"), [(["", ""], ["call_1_0", "call_1_1"]), (["x", "x"], ["x", "call_1_1"])])
def test_calls_without_ids_or_with_the_same_get_ids_of_their_own(serve, ids, own):
    calls = [{"type": "tool_use", "id": call_id, "name": "pass_evaluator", "input": {}} for call_id in ids]
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"type": "message", "role": "assistant", "content": calls, "stop_reason": "tool_use", "usage": usage}
    server = serve([page(200, json.dumps(whole)), Answer("Done.")])
    policy = make(server, "anthropic", stream=False)
    answer = policy.answer(QUESTION, TOOLS)
    assert [call.id for call in answer.tool_calls] == own
    replies = [Message(role="tool", content="ok", tool_call_id=call.id) for call in answer.tool_calls]
    assert policy.answer([*QUESTION, answer, *replies], TOOLS).content == "Done."
