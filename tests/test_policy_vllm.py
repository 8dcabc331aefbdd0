"""VLLMPolicy: what it says about a server that is missing, serves something else or has no tool calls."""

import socket
import threading
import time

import pytest

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import scripted_answer, serve_fixture  # noqa: F401 (fixture)
from tests.protocol_servers import Answer, ProtocolServer, status
from trajectories.environment import PassEnvironment
from trajectories.policies import make_policy
from trajectories.policies.vllm_config import VLLMPolicyConfig
from trajectories.rollout import run_rollout

COMMAND = "vllm serve m --enable-auto-tool-choice --tool-call-parser hermes"


def vllm(url, **more):
    return {"kind": "vllm", "model": "m", "base_url": url, "api_key_env": "NOT_SET_HERE", "max_retries": 0, **more}


def attempt(settings):
    return run_rollout(make_policy(settings), PassEnvironment(make_task(), CannedEvaluator()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_whole_attempt_without_a_key(serve):
    server = serve(lambda body: scripted_answer(body, reasoning="hm", reasoning_field="reasoning"))
    trajectory = attempt(vllm(server.url, name="own"))
    assert trajectory.final_verdict.as_score == 1.5 and trajectory.num_without_reasoning == 0
    assert trajectory.policy["kind"] == "vllm" and trajectory.policy["teacher"] == "own"
    assert not server.requests[0].get("stream")
    assert server.requests[-1]["messages"][2]["reasoning"] == "hm"


def test_a_missing_server_is_told_with_the_command_that_starts_it():
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(UserError, match="no vLLM server answers") as caught:
        attempt(vllm(url, reasoning_parser="qwen3"))
    assert f"`{COMMAND} --reasoning-parser qwen3 --port {url.split(':')[2][:-3]}`" in str(caught.value)


def test_a_server_that_is_still_loading_is_waited_for(serve):
    port = free_port()
    started = []

    def start_late():
        time.sleep(0.5)
        server = ProtocolServer(lambda body: scripted_answer(body), port=port)
        started.append(server)

    threading.Thread(target=start_late).start()
    try:
        assert attempt(vllm(f"http://127.0.0.1:{port}/v1", wait_for_server_s=20)).num_turns == 4
    finally:
        started[0].close()


def test_a_server_of_another_model_says_what_it_serves(serve):
    with pytest.raises(UserError, match=r"serves other, third, not m; set policy.model"):
        attempt(vllm(serve([], models=["other", "third"]).url))


def test_a_server_without_tool_calls_is_told_with_the_command(serve):
    refusal = status(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    with pytest.raises(UserError, match=f"start the server with tool calls: `{COMMAND} --port"):
        attempt(vllm(serve([refusal]).url))


def test_a_server_that_wants_a_key_says_so(serve, monkeypatch):
    with pytest.raises(UserError, match=r"key in \$NOT_SET_HERE was refused \(401\)"):
        attempt(vllm(serve([status(401, "Unauthorized")]).url))


def test_the_server_is_asked_once_a_process(serve):
    server = serve([Answer("a"), Answer("b")])
    attempt(vllm(server.url))
    server.models = ["other"]
    assert attempt(vllm(server.url)).messages[-1].content == "b"


def test_the_command_names_the_port_only_where_it_is_not_the_usual_one():
    assert VLLMPolicyConfig(model="m").serve_command() == COMMAND
