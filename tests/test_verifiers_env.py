"""The environment for `verifiers`: its loop and client against a local server. Skipped where it is not installed."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator
from tests.policy_helpers import KEY, scripted_answer
from tests.protocol_servers import Answer, ProtocolServer, status
from training.verifiers_env import load_environment, read_message
from trajectories.prompts import PROMPT_VERSION
from trajectories.record import Usage
from trajectories.tools import TOOLS

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
NO_FORMAT = {"weights": {"format": 0.0}}


@pytest.fixture(name="vf")
def vf_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package; environments take over the process's signals, which are given back."""
    vf = pytest.importorskip("verifiers", minversion="0.3")
    monkeypatch.setenv("TEST_STUDENT_KEY", KEY)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield vf
    for number, handler in handlers.items():
        signal.signal(number, handler)


class AllAtOnce(CannedEvaluator):
    """Answers nobody before so many ask: a loop that evaluates one after the other breaks the barrier."""

    def __init__(self, num_together: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(num_together)

    def _evaluate(self, *arguments: Any) -> None:
        self.barrier.wait(timeout=30)
        super()._evaluate(*arguments)


def evaluate(vf: Any, answers: Any, **settings: Any) -> list[dict[str, Any]]:
    """Attempts at the first bundled task, as `env.evaluate` runs them, through real sockets."""
    from verifiers.types import ClientConfig

    rollouts = settings.pop("rollouts", 1)
    known: dict[str, Any] = {"tasks": "mini:train", "evaluator": CannedEvaluator(), "reward": NO_FORMAT}
    env = vf.load_environment("training.verifiers_env", **(known | settings))
    server = ProtocolServer(answers)
    try:
        client = ClientConfig(api_key_var="TEST_STUDENT_KEY", api_base_url=server.url, max_retries=0)
        results = env.evaluate_sync(
            client, "m", num_examples=1, rollouts_per_example=rollouts, state_columns=["pass_reward"]
        )
        assert all(request["tools"] == server.requests[0]["tools"] for request in server.requests)
        found = [tool["function"] for tool in server.requests[0]["tools"]]
        assert [tool["name"] for tool in found] == [tool["function"]["name"] for tool in TOOLS]
        assert found[0]["parameters"] == TOOLS[0]["function"]["parameters"]
    finally:
        server.close()
    return list(results["outputs"])


def test_attempts_are_run_and_rewarded(vf: Any) -> None:
    outputs = evaluate(vf, lambda body: scripted_answer(body, "as=2", usage=USAGE), rollouts=4, evaluator=AllAtOnce(4))
    assert [output["reward"] for output in outputs] == pytest.approx([1.30] * 4, abs=0.01)
    for output in outputs:
        assert output["error"] is None and output["stop_condition"] == "has_final_env_response"
        assert output["metrics"]["pass_correct"] == 1.0 and output["metrics"]["pass_coverage"] == 1.0
        assert output["pass_reward"]["total"] == output["reward"]
        tools = [message for message in output["completion"] if message["role"] == "tool"]
        assert "2.00" in tools[-1]["content"] and "turns left: " in tools[-1]["content"]
        assert output["completion"][-1]["role"] == "assistant"  # the answer without a call ends it
        assert PROMPT_VERSION and "turn" in output["prompt"][1]["content"]


def test_the_attempts_own_limits_end_it(vf: Any) -> None:
    look = Answer(calls=[("file_editor", json.dumps({"command": "view", "path": "graphs"}))], usage=USAGE)
    (output,) = evaluate(vf, lambda body: look, max_turns=3)
    answers = [message for message in output["completion"] if message["role"] == "assistant"]
    assert len(answers) == 3 and "turns left: 0" in output["completion"][-1]["content"]
    assert output["reward"] == 0.0 and output["error"] is None  # never evaluated: a failing pass


def test_malformed_calls_are_answered(vf: Any) -> None:
    answers = [Answer(calls=[("file_editor", "{not json")], usage=USAGE), Answer("I stop.", usage=USAGE)]
    (output,) = evaluate(vf, answers)
    assert "malformed call" in output["completion"][1]["content"]


def test_our_failure_is_an_error_and_not_a_zero(vf: Any) -> None:
    for mark in ("harness-error", "unstable"):
        (output,) = evaluate(vf, lambda body, mark=mark: scripted_answer(body, mark, usage=USAGE))
        assert output["error"] is not None and "InfraError" in str(output["error"])
        assert output["pass_reward"]["total"] is None


def test_an_endpoint_that_fails_is_no_students_failure(vf: Any) -> None:
    (output,) = evaluate(vf, [status(500, "down")])
    assert output["error"] is not None and output["pass_reward"]["total"] is None


def test_settings_are_checked_before_anything_is_opened(vf: Any) -> None:
    for settings, said in (
        ({"tasks": "no_such_set"}, "no such task folder"),
        ({"reward": {"preset": "best"}}, "preset"),
        ({"limits": {"turns": 3}}, "turns"),
        ({"protocol": "passnet"}, "passnet is never used for a reward"),
        ({"executor": {"kind": "cloud"}}, "cloud"),
    ):
        with pytest.raises(UserError, match=said):
            load_environment(**({"evaluator": CannedEvaluator()} | settings))


def test_a_missing_package_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(UserError, match=r"pip install 'passwright\[verifiers\]'"):
        load_environment()
    monkeypatch.setitem(sys.modules, "verifiers", SimpleNamespace(__version__="0.4.0"))
    with pytest.raises(UserError, match=r"verifiers 0.4.0: another interface"):
        load_environment()


def test_messages_are_read_whole() -> None:
    call = SimpleNamespace(id="c0", name="pass_evaluator", arguments="{}")
    parts = [{"type": "text", "text": "I "}, {"type": "image_url"}, {"type": "text", "text": "look."}]
    message = SimpleNamespace(content=parts, reasoning_content="hm", tool_calls=[call])
    usage = SimpleNamespace(prompt_tokens=7, completion_tokens=3)
    response = SimpleNamespace(usage=usage, message=SimpleNamespace(finish_reason="length"))
    read = read_message(message, response)
    assert (read.content, read.reasoning, read.finish_reason) == ("I look.", "hm", "length")
    assert read.usage == Usage(input_tokens=7, output_tokens=3) and read.tool_calls[0].name == "pass_evaluator"
    bare = read_message(SimpleNamespace(content=None, tool_calls=None))
    assert (bare.content, bare.tool_calls, bare.usage) == ("", [], None)
