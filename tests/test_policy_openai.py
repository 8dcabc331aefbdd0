"""OpenAIPolicy against a real HTTP server that speaks chat completions, well and badly."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.collect import CollectConfig, run_collect
from trajectories.environment import PassEnvironment
from trajectories.policies import make_policy
from trajectories.policies.openai import OpenAIPolicy
from trajectories.policies.openai_config import OpenAIPolicyConfig, Prices
from trajectories.policies.replay import pass_folder_answers
from trajectories.policy import ContextLimitError, PolicyError
from trajectories.record import Message, StopReason, ToolCall, Usage
from trajectories.rollout import run_rollout
from trajectories.store import load_trajectories
from trajectories.tools import TOOLS

KEY = "sk-test-4fe2c0b7"
QUESTION = [Message(role="system", content="s"), Message(role="user", content="u")]


def completion(content="", *, calls=(), finish_reason="stop", usage=None, **fields):
    message = {"role": "assistant", "content": content, **fields}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return 200, {
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": usage or {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip


def error(status, message, code=None):
    return status, {"error": {"message": message, "type": "e", "code": code}}


class Endpoint:
    """Answers requests from a list, or by a function of the request's messages; keeps what it was sent."""

    def __init__(self, answers):
        self.answers = answers
        self.requests, self.headers = [], []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append(body)
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                answers = endpoint.answers
                answer = answers(body["messages"]) if callable(answers) else answers[len(endpoint.requests) - 1]
                if answer == "drop":
                    self.connection.close()
                    return
                if answer == "hang":
                    time.sleep(1.0)
                    return
                status, reply, *more = answer
                data = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in (more[0] if more else {}).items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "an organisation of another endpoint")
    endpoints = []

    def start(answers):
        endpoints.append(Endpoint(answers))
        return endpoints[-1]

    yield start
    for endpoint in endpoints:
        endpoint.server.shutdown()
        endpoint.server.server_close()


def make(endpoint, pauses=None, **settings):
    settings = {"model": "m", "base_url": endpoint.url, "api_key_env": "TEST_KEY", "max_retries": 3, **settings}
    policy = OpenAIPolicy(OpenAIPolicyConfig(**settings), sleep=([] if pauses is None else pauses).append)
    policy.start(make_task(), attempt_index=0, seed=7, device="cpu")
    return policy


def test_an_answer_with_calls_reasoning_usage_and_cost(serve):
    usage = {
        "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200,
        "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 150},
    }  # fmt: skip
    calls = [("file_editor", '{"command": "view",  "path": "graphs"}'), ("pass_evaluator", "{}")]
    endpoint = serve([completion(None, calls=calls, reasoning_content="hm", finish_reason="tool_calls", usage=usage)])
    policy = make(endpoint, temperature=0.5, max_output_tokens=64, prices={"input": 2, "output": 10, "cached": 1})
    answer = policy.answer(QUESTION, TOOLS)
    assert answer.content == "" and answer.reasoning == "hm" and answer.finish_reason == "tool_calls"
    assert [(call.name, call.arguments) for call in answer.tool_calls] == calls
    assert answer.usage.cached_tokens == 600 and answer.usage.reasoning_tokens == 150
    assert answer.usage.cost_usd == pytest.approx((400 * 2 + 600 * 1 + 200 * 10) / 1e6)
    assert answer.usage.latency_s > 0
    request = endpoint.requests[0]
    assert request["tools"] == TOOLS and request["seed"] == 7 and request["temperature"] == 0.5
    assert request["max_tokens"] == 64 and "top_p" not in request and "parallel_tool_calls" not in request
    assert request["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"
    assert not {"openai-organization", "openai-project"} & set(endpoint.headers[0])


def test_a_conversation_is_sent_back_with_and_without_reasoning(serve):
    endpoint = serve([completion("a"), completion("b")])
    call = ToolCall(id="c0", name="pass_evaluator", arguments="{}")
    messages = [
        *QUESTION,
        Message(role="assistant", reasoning="hm", tool_calls=[call], turn=1),
        Message(role="tool", content="AS 1.0", tool_call_id="c0", name="pass_evaluator", turn=1),
    ]
    make(endpoint).answer(messages, TOOLS)
    make(endpoint, send_reasoning=False).answer(messages, TOOLS)
    with_reasoning, without = (request["messages"] for request in endpoint.requests)
    assert with_reasoning[2]["reasoning_content"] == "hm" and "reasoning_content" not in without[2]
    assert with_reasoning[3] == {"role": "tool", "content": "AS 1.0", "tool_call_id": "c0", "name": "pass_evaluator"}
    assert with_reasoning[2]["tool_calls"][0]["function"] == {"name": "pass_evaluator", "arguments": "{}"}


def test_other_fields_for_reasoning(serve):
    endpoint = serve([completion("a", reasoning="hm\ud800")])
    assert make(endpoint).answer(QUESTION, TOOLS).reasoning == "hm?"


@pytest.mark.parametrize("fault", [error(429, "slow down"), error(500, "oops"), error(503, "busy"), "drop"])
def test_transient_faults_are_tried_again_with_growing_pauses(serve, fault):
    endpoint, pauses = serve([fault, fault, fault, completion("at last")]), []
    assert make(endpoint, pauses).answer(QUESTION, TOOLS).content == "at last"
    assert len(endpoint.requests) == 4
    assert all(0.5 * 2**i <= pause <= 1.5 * 2**i for i, pause in enumerate(pauses)) and len(pauses) == 3


def test_a_timeout_is_transient(serve):
    endpoint, pauses = serve(["hang", completion("at last")]), []
    assert make(endpoint, pauses, timeout_s=0.2).answer(QUESTION, TOOLS).content == "at last"
    assert len(pauses) == 1


def test_the_endpoint_s_own_pause_counts_up_to_the_limit(serve):
    pauses = []
    faults = [(*error(429, "x"), {"retry-after": "20"}), (*error(429, "x"), {"retry-after": "9999"})]
    make(serve([*faults, completion("ok")]), pauses, max_backoff_s=30.0).answer(QUESTION, TOOLS)
    assert pauses == [20.0, 30.0]


def test_a_fault_that_stays_is_a_policy_error_without_the_key(serve):
    endpoint = serve([error(500, f"key {KEY} at fault")] * 4)
    with pytest.raises(PolicyError, match="after 4 tries") as caught:
        make(endpoint).answer(QUESTION, TOOLS)
    assert KEY not in str(caught.value) and "***" in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        error(400, "too much", "context_length_exceeded"),
        error(400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
        error(400, "The input is too long for the model"),
        error(413, "prompt is too long: 300000 tokens > 200000 maximum"),
    ],
)
def test_a_conversation_that_is_too_long_is_a_context_limit(serve, fault):
    endpoint = serve([fault])
    with pytest.raises(ContextLimitError):
        make(endpoint).answer(QUESTION, TOOLS)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (error(401, "bad key"), UserError, r"key in \$TEST_KEY was refused \(401\)"),
        (error(404, "no model m"), UserError, "correct policy.base_url or policy.model"),
        (error(400, "tools not supported"), PolicyError, "tools not supported"),
        ((200, {"id": "x", "choices": []}), PolicyError, "no choices"),
    ],
)
def test_other_faults_are_not_tried_again(serve, fault, kind, words):
    endpoint = serve([fault])
    with pytest.raises(kind, match=words):
        make(endpoint).answer(QUESTION, TOOLS)
    assert len(endpoint.requests) == 1


def test_settings_that_would_leak_or_fail_are_refused(monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    settings = {"kind": "openai", "model": "m", "api_key_env": "NOT_SET"}
    with pytest.raises(UserError, match=r"\$NOT_SET is not set"):
        make_policy({**settings, "base_url": "https://example.invalid/v1"})
    with pytest.raises(UserError, match="keep keys out of the address"):
        make_policy({"kind": "openai", "model": "m", "base_url": f"http://u:{KEY}@localhost/v1"})
    with pytest.raises(UserError, match="looks like a key"):
        make_policy({**settings, "base_url": "http://localhost/v1", "extra_body": {"x_api_key": KEY}})
    with pytest.raises(UserError, match="did you mean 'api_key_env'"):
        make_policy({"kind": "openai", "model": "m", "api_key": KEY})
    make_policy({**settings, "base_url": "http://localhost:1/v1"})


def test_cached_tokens_cost_as_others_unless_priced():
    assert Prices(input=1.0).cost_usd(Usage(input_tokens=10**6, cached_tokens=10**6)) == 1.0


def teacher(messages):
    """Writes a pass by the conversation so far, as a model would."""
    answer = pass_folder_answers(pass_files("as=1.5"))[sum(message["role"] == "assistant" for message in messages)]
    return completion(answer.content, calls=[(call.name, call.arguments) for call in answer.tool_calls])


def test_a_whole_attempt_over_http(serve):
    environment = PassEnvironment(make_task(), CannedEvaluator())
    trajectory = run_rollout(make(serve(teacher)), environment)
    assert trajectory.stop_reason is StopReason.SUBMITTED and trajectory.final_verdict.as_score == 1.5
    assert trajectory.usage.input_tokens == 400 and trajectory.num_turns == 4


def test_no_file_of_a_collection_holds_the_key(serve, tmp_path):
    def unlucky(messages):
        return error(500, f"{KEY} failed") if "Task a" in messages[1]["content"] else teacher(messages)

    policy = {"kind": "openai", "model": "m", "base_url": serve(unlucky).url, "api_key_env": "TEST_KEY"}
    policy["max_retries"] = 0
    config = CollectConfig(name="c", tasks=["x"], policy=policy, out_dir=tmp_path)
    summary = run_collect(config, [make_task("a"), make_task("b")], CannedEvaluator(), progress=False)
    assert summary.stop_reasons == {"POLICY_ERROR": 1, "SUBMITTED": 1}
    assert load_trajectories(tmp_path)[1].policy["model"] == "m"
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY not in path.read_text(), path


def test_a_refused_key_stops_the_collection_at_once(serve, tmp_path):
    endpoint = serve(lambda messages: error(401, "no"))
    policy = {"kind": "openai", "model": "m", "base_url": endpoint.url, "api_key_env": "TEST_KEY"}
    config = CollectConfig(name="c", tasks=["x"], policy=policy, num_workers=1, out_dir=tmp_path)
    with pytest.raises(UserError, match="was refused"):
        run_collect(config, [make_task("a"), make_task("b")], CannedEvaluator(), progress=False)
    assert len(endpoint.requests) == 1
