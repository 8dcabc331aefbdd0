"""Served teachers against local servers, for the tests of policies: both protocols, streamed and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.canned_evaluator import make_task, pass_files
from tests.protocol_servers import Answer, Answers, ProtocolServer
from trajectories.policies.anthropic import AnthropicPolicy
from trajectories.policies.anthropic_config import AnthropicPolicyConfig
from trajectories.policies.endpoint import EndpointPolicy
from trajectories.policies.openai import OpenAIPolicy
from trajectories.policies.openai_config import OpenAIPolicyConfig
from trajectories.policies.replay import pass_folder_answers
from trajectories.record import Message

KEY = "sk-test-4fe2c0b7d9"
KEY_ENV = "TEST_TEACHER_KEY"
QUESTION = [Message(role="system", content="You write passes."), Message(role="user", content="Write one.")]
PROTOCOLS = ["openai", "anthropic"]
MODES = [(protocol, stream) for protocol in PROTOCOLS for stream in (True, False)]
MODE_NAMES = [f"{protocol}-{'stream' if stream else 'whole'}" for protocol, stream in MODES]


class Servers:
    """Starts servers and closes them at the end of a test."""

    def __init__(self) -> None:
        self.started: list[ProtocolServer] = []

    def __call__(self, answers: Answers, **options: Any) -> ProtocolServer:
        self.started.append(ProtocolServer(answers, **options))
        return self.started[-1]


@pytest.fixture(name="serve")
def serve_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setenv(KEY_ENV, KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "an organisation of another endpoint")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "a token of another endpoint")
    servers = Servers()
    yield servers
    for server in servers.started:
        server.close()


def settings(server: ProtocolServer, protocol: str = "openai", **more: Any) -> dict[str, Any]:
    """A policy's settings, `kind` included."""
    base_url = server.url if protocol != "anthropic" else server.root
    own = {"kind": protocol, "model": "m", "base_url": base_url, "api_key_env": KEY_ENV, "max_retries": 3}
    return {**own, **more}


def make(server: ProtocolServer, protocol: str = "openai", pauses: list[float] | None = None, **more: Any) -> Any:
    """A started policy that notes its pauses instead of sleeping."""
    own = {key: value for key, value in settings(server, protocol, **more).items() if key != "kind"}
    sleep = ([] if pauses is None else pauses).append
    policy: EndpointPolicy
    if protocol == "openai":
        policy = OpenAIPolicy(OpenAIPolicyConfig(**own), sleep=sleep)
    else:
        policy = AnthropicPolicy(AnthropicPolicyConfig(**own), sleep=sleep)
    policy.start(make_task(), attempt_index=0, seed=7, device="cpu")
    return policy


def scripted_answer(body: dict[str, Any], mark: str = "as=1.5", extra_text: str = "", **more: Any) -> Answer:
    """What a teacher says that writes a pass in four turns, by the conversation so far."""
    message = pass_folder_answers(pass_files(mark))[sum(message["role"] == "assistant" for message in body["messages"])]
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return Answer(message.content + extra_text, calls=calls, **more)
