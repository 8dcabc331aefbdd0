"""What both served policies do when an endpoint fails, streamed and whole, answer by answer."""

import time
from email.utils import formatdate

import pytest

from eval_harness.errors import UserError
from tests.policy_helpers import (
    KEY,
    MODE_NAMES,
    MODES,
    PROTOCOLS,
    QUESTION,
    make,
    serve_fixture,  # noqa: F401 (fixture)
)
from tests.protocol_servers import (
    Answer,
    cut,
    drop,
    end_early,
    page,
    slow,
    stall,
    status,
    stream_error,
    trickle,
)
from trajectories.policies import server_events
from trajectories.policies.retries import plain_text
from trajectories.policy import ContextLimitError, PolicyError
from trajectories.tools import TOOLS

BOTH = pytest.mark.parametrize(("protocol", "stream"), MODES, ids=MODE_NAMES)
EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
LONG = Answer("at last, a longer answer in several pieces", reasoning="hm, let me see")
TRANSIENT = {
    "429": status(429, "slow down"),
    "500": status(500, "oops"),
    "503": status(503, "busy"),
    "529": status(529, "Overloaded", type="overloaded_error"),
    "html 502": page(502, "<html><head><style>x{}</style></head><body><h1>Bad gateway</h1></body></html>"),
    "html 200": page(200, "<html><body>please log in</body></html>"),
    "bad json": page(200, '{"choices": [{"mess'),
    "not an object": status(200, ""),
    "drop": drop(),
    "cut": cut(LONG),
}


@BOTH
@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT)
def test_transient_faults_are_tried_again_with_growing_pauses(serve, protocol, stream, fault):
    server, pauses = serve([fault, fault, fault, LONG]), []
    answer = make(server, protocol, pauses, stream=stream).answer(QUESTION, TOOLS)
    assert answer.content == LONG.content and answer.reasoning == LONG.reasoning
    assert len(server.requests) == 4 and answer.usage.num_retries == 3
    assert all(0.5 * 2**i <= pause <= 1.5 * 2**i for i, pause in enumerate(pauses)) and len(pauses) == 3


STREAM_FAULTS = {
    "ends early": end_early(LONG),
    "overloaded in stream": stream_error(LONG, {"type": "overloaded_error", "message": "Overloaded", "code": 529}),
    "server error in stream": stream_error(LONG, {"type": "api_error", "message": "x", "code": None}),
    "stall": stall(LONG, 0.6),
}


@EACH
@pytest.mark.parametrize("fault", STREAM_FAULTS.values(), ids=STREAM_FAULTS)
def test_a_stream_that_breaks_is_tried_again_and_its_tokens_are_counted(serve, protocol, fault):
    server, pauses = serve([fault, LONG]), []
    policy = make(server, protocol, pauses, stall_timeout_s=0.2, prices={"input": 1.0, "output": 1.0})
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.content == LONG.content and len(pauses) == 1
    unbroken = make(serve([LONG]), protocol, prices={"input": 1.0, "output": 1.0}).answer(QUESTION, TOOLS)
    assert answer.usage.num_estimated == 1 and answer.usage.input_tokens > unbroken.usage.input_tokens
    assert answer.usage.cost_usd > unbroken.usage.cost_usd > 0


@EACH
def test_a_stall_is_noticed_by_silence_not_by_length(serve, protocol):
    """An answer that takes longer than the stall limit, but never falls silent, is no stall."""
    server = serve([trickle(LONG, 0.5)])
    policy = make(server, protocol, stall_timeout_s=0.2)
    assert policy.answer(QUESTION, TOOLS).usage.num_retries == 0


@EACH
def test_an_answer_that_trickles_for_ever_ends_at_the_whole_answer_s_limit(serve, protocol):
    server, pauses = serve([trickle(LONG, 5.0), LONG]), []
    began = time.monotonic()
    assert make(server, protocol, pauses, timeout_s=0.3).answer(QUESTION, TOOLS).content == LONG.content
    assert time.monotonic() - began < 2.0 and len(pauses) == 1


@BOTH
def test_a_slow_answer_is_waited_for_and_a_timeout_is_transient(serve, protocol, stream):
    server, pauses = serve([slow(LONG, 0.15), slow(LONG, 1.0), LONG]), []
    policy = make(server, protocol, pauses, stream=stream, timeout_s=0.4)
    assert policy.answer(QUESTION, TOOLS).usage.num_retries == 0
    assert policy.answer(QUESTION, TOOLS).usage.num_retries == 1 and len(pauses) == 1


@EACH
def test_the_endpoint_s_own_pause_counts_up_to_the_limit(serve, protocol):
    def limited(**headers):
        return status(429, "x", headers={name.replace("_", "-"): value for name, value in headers.items()})

    pauses: list[float] = []
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    faults = [limited(retry_after=value) for value in ("20", "9999", in_a_minute, "soon")]
    server = serve([*faults, limited(retry_after_ms="20000"), LONG])
    make(server, protocol, pauses, max_retries=5, max_retry_after_s=90).answer(QUESTION, TOOLS)
    seconds, too_long, date, unreadable, milliseconds = pauses
    assert 20 <= seconds <= 22 and 90 <= too_long <= 99 and 57 <= date <= 66 and 20 <= milliseconds <= 24
    assert 4 <= unreadable <= 12  # our own


@BOTH
def test_a_fault_that_stays_is_a_policy_error_without_the_key(serve, protocol, stream):
    server = serve([status(500, f"key {KEY} at fault")] * 4)
    with pytest.raises(PolicyError, match="after 4 tries") as caught:
        make(server, protocol, stream=stream).answer(QUESTION, TOOLS)
    assert KEY not in str(caught.value) and "***" in str(caught.value)


@EACH
def test_money_for_answers_that_broke_off_for_good_is_told_with_the_error(serve, protocol):
    server = serve([cut(Answer("word " * 40), after=20)] * 3 + [status(400, "prompt is too long")])
    teacher = make(server, protocol, max_retries=1, prices={"output": 1e6})
    with pytest.raises(PolicyError) as caught:
        teacher.answer(QUESTION, TOOLS)
    assert caught.value.lost.num_estimated == 2 and caught.value.lost.cost_usd > 20
    with pytest.raises(ContextLimitError) as caught:
        teacher.answer(QUESTION, TOOLS)
    assert caught.value.lost.num_estimated == 1 and caught.value.lost.cost_usd > 10


@pytest.mark.parametrize("num_before", range(380, 402, 3))
def test_no_beginning_of_the_key_is_left_where_an_error_is_cut(serve, num_before):
    with pytest.raises(PolicyError) as caught:
        make(serve([status(500, "x" * num_before + KEY)]), max_retries=0).answer(QUESTION, TOOLS)
    assert KEY[:10] not in str(caught.value)


def test_a_huge_page_is_read_in_no_time():
    started = time.monotonic()
    for piece in ("<", "<script", "<style>"):
        assert len(plain_text("<html>" + piece * 300_000)) < 500
    assert time.monotonic() - started < 5


def test_a_line_without_end_is_no_answer(serve, monkeypatch):
    monkeypatch.setattr(server_events, "MAX_LINE_BYTES", 1000)
    with pytest.raises(PolicyError, match="longer than"):
        make(serve([Answer(fields={"content": "x" * 200_000})]), max_retries=0).answer(QUESTION, TOOLS)


def test_an_html_page_is_told_in_one_plain_line(serve):
    with pytest.raises(PolicyError) as caught:
        make(serve([TRANSIENT["html 502"]]), max_retries=0).answer(QUESTION, TOOLS)
    assert "Bad gateway" in str(caught.value) and "<" not in str(caught.value) and "\n" not in str(caught.value)


TOO_LONG = {
    "openai's code": status(400, "too much", code="context_length_exceeded"),
    "vllm's words": status(400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
    "newer vllm": status(400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
    "others' words": status(400, "The input is too long for the model"),
    "anthropic's words": status(400, "prompt is too long: 300000 tokens > 200000 maximum"),
    "input and output": status(400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"),
    "too many bytes": status(413, "Request exceeds the maximum size", type="request_too_large"),
    "a proxy's page": page(413, "<html><h1>Request Entity Too Large</h1></html>"),
    "a rate limit below one request": status(413, "Request too large: limit 6000, requested 8000", code="rate_limit"),
    "gemini's": status(400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    "llama.cpp's": status(400, "the request exceeds the available context size", type="exceed_context_size_error"),
    "llama.cpp's of old": status(500, "the request exceeds the available context size. try increasing it"),
    "moonshot's": status(400, "Invalid request: Your request exceeded model token limit: 131072"),
    "xai's": status(400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    "glm's": status(400, "Prompt exceeds max length", code="1261"),
    "dashscope's": status(400, "Range of input length should be [1, 129024]"),
    "tgi's": status(422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
}


@BOTH
@pytest.mark.parametrize("fault", TOO_LONG.values(), ids=TOO_LONG)
def test_a_conversation_that_is_too_long_is_a_context_limit(serve, protocol, stream, fault):
    server = serve([fault])
    with pytest.raises(ContextLimitError):
        make(server, protocol, stream=stream).answer(QUESTION, TOOLS)
    assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (status(401, f"bad key {KEY}"), r"key in \$TEST_TEACHER_KEY was refused \(401\)"),
        (status(402, "pay first"), "no credit left; top it up"),
        (status(400, "Your credit balance is too low to access the API"), "no credit left"),
        (status(404, "no model m"), "no model m'?.*correct policy.base_url or policy.model"),
        (status(308, "", headers={"location": "https://elsewhere.invalid"}), "sends on to https://elsewhere.invalid"),
    ],
    ids=["401", "402", "credit", "404", "redirect"],
)
def test_what_every_further_call_would_meet_too_stops_the_run(serve, protocol, stream, fault, words):
    server = serve([fault])
    with pytest.raises(UserError, match=words) as caught:
        make(server, protocol, stream=stream).answer(QUESTION, TOOLS)
    assert len(server.requests) == 1 and KEY not in str(caught.value)


@BOTH
def test_a_conversation_that_is_refused_ends_its_attempt_alone(serve, protocol, stream):
    server = serve([status(403, "this prompt breaks our rules")])
    with pytest.raises(PolicyError, match=r"breaks our rules; if every request .* give \$TEST_TEACHER_KEY another key"):
        make(server, protocol, stream=stream).answer(QUESTION, TOOLS)
    assert len(server.requests) == 1


def test_a_spent_quota_is_no_rate_limit(serve):
    with pytest.raises(UserError, match="no credit left"):
        make(serve([status(429, "You exceeded your current quota", code="insufficient_quota")])).answer(QUESTION, TOOLS)
