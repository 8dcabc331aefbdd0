"""AnthropicPolicy: a teacher behind Anthropic's Messages API, through its own SDK, with the long prefix cached.

The key comes from an environment variable alone and reaches no record, log or message. What a failure means is in
retries.py, the loop around it in endpoint.py, content blocks in anthropic_blocks.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anthropic

from trajectories.policies.anthropic_blocks import BlockCollector, kept_blocks, mark_for_cache, to_request, to_tools
from trajectories.policies.anthropic_config import AnthropicPolicyConfig
from trajectories.policies.endpoint import EndpointPolicy, own_ids, say_estimated, whole
from trajectories.policies.http_client import DeadlineClient
from trajectories.policies.keys import read_key
from trajectories.policies.retries import (
    Failure,
    FailureKind,
    MalformedAnswerError,
    error_code,
    error_message,
    failure_of_status,
    plain_text,
)
from trajectories.policies.server_events import EventError, is_event_stream, read_events, read_json
from trajectories.record import Message, ToolCall, Usage

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""The API's stop reasons under OpenAI's names, which the environment reads; others (refusal) stay as they are."""
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""An error inside a stream has its type alone."""


class AnthropicPolicy(EndpointPolicy):
    """One conversation with a served model; its connections are shared with all others at the endpoint."""

    kind = "anthropic"
    sdk_error = anthropic.AnthropicError

    def __init__(self, config: AnthropicPolicyConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises UserError if the key's environment variable is not set. sleep: for tests."""
        key = read_key(config.api_key_env, config.base_url)
        super().__init__(config, key, sleep=sleep)
        self._settings = config
        self._client = _client(config, key)

    def _ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        request = self._request(messages, tools)
        answer = BlockCollector()
        if self._settings.stream:
            self._read_stream(request, answer)
        else:
            response = self._client.messages.with_raw_response.create(**request)
            answer.add_message(read_json(response.http_response))
        if not answer.is_whole:
            raise MalformedAnswerError("the answer has no end" if answer.has_begun else "the answer is empty")
        return self._message(answer, request)

    def _read_stream(self, request: dict[str, Any], answer: BlockCollector) -> None:
        with self._client.messages.create(**request, stream=True) as stream:
            if not is_event_stream(stream.response):
                answer.add_message(read_json(stream.response))
                return
            try:
                for event in read_events(stream.response):
                    answer.add_event(event)
                if answer.has_begun and not answer.is_whole:
                    raise MalformedAnswerError("the stream ended before the answer did")
            except Exception:
                if answer.has_begun:
                    self._lose(self._usage_so_far(answer, request))
                raise

    def _request(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        config = self._settings
        system, turns = to_request(messages)
        own_tools = to_tools(tools)
        if config.prompt_caching != "off":
            mark_for_cache(own_tools, system, turns, config.prompt_caching)
        request: dict[str, Any] = {"model": config.model, "max_tokens": config.max_output_tokens, "messages": turns}
        if system:
            request["system"] = system
        if own_tools:
            request["tools"] = own_tools
        if config.thinking is not None:
            request["thinking"] = config.thinking
        if config.effort is not None:
            request["output_config"] = {"effort": config.effort}
        # the SDK has no names for these since its second version; the API takes them for older models
        sampling = {"temperature": config.temperature, "top_p": config.top_p}
        body = {name: value for name, value in sampling.items() if value is not None} | config.extra_body
        if body:
            request["extra_body"] = body
        return request

    def _message(self, answer: BlockCollector, request: Mapping[str, Any]) -> Message:
        clean = self._redactor.text
        calls = list(answer.of_type("tool_use"))
        ids = own_ids([clean(call["id"]) for call in calls], f"call_{len(request['messages'])}")
        thoughts = [block["thinking"] for block in answer.of_type("thinking") if block.get("thinking")]
        return Message(
            role="assistant",
            content=clean("".join(block["text"] for block in answer.of_type("text"))),
            reasoning=clean("\n\n".join(thoughts)) or None,
            tool_calls=[
                ToolCall(id=call_id, name=clean(call["name"]), arguments=clean(call["arguments"] or "{}"))
                for call_id, call in zip(ids, calls, strict=True)
            ],
            finish_reason=_FINISH_REASONS.get(answer.stop_reason or "") or clean(answer.stop_reason or "") or None,
            provider_blocks=self._redactor.data(kept_blocks(answer.blocks)),
            usage=self._priced(self._usage(answer, request)),
        )

    def _usage(self, answer: BlockCollector, request: Mapping[str, Any]) -> Usage:
        reported = answer.usage
        if reported.get("input_tokens") is None or reported.get("output_tokens") is None:
            say_estimated(self._settings.base_url)
            return self._estimated(_sent(request), answer.num_chars)
        read, written = (
            whole(reported.get("cache_read_input_tokens")),
            whole(reported.get("cache_creation_input_tokens")),
        )
        details = reported.get("output_tokens_details")
        return Usage(
            # the API counts what was read from or written to the cache apart; our record counts it in
            input_tokens=whole(reported["input_tokens"]) + read + written,
            output_tokens=whole(reported["output_tokens"]),
            cached_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=whole(details.get("thinking_tokens")) if isinstance(details, Mapping) else 0,
        )

    def _usage_so_far(self, answer: BlockCollector, request: Mapping[str, Any]) -> Usage:
        """Of an answer that broke off: input as reported at its start, output by length."""
        estimated = self._estimated(_sent(request), answer.num_chars)
        if answer.usage.get("input_tokens") is None:
            return estimated
        reported = self._usage(answer, request)
        return reported.model_copy(
            update={"output_tokens": max(reported.output_tokens, estimated.output_tokens), "num_estimated": 1}
        )

    def _failure(self, error: Exception) -> Failure:
        text = str(error) + (f" ({type(error.__cause__).__name__})" if error.__cause__ else "")
        key_env = self._settings.api_key_env
        if isinstance(error, anthropic.APIConnectionError):  # timeouts too
            return Failure(FailureKind.TRANSIENT, plain_text(text))
        if isinstance(error, EventError):
            return failure_of_status(_STATUS_OF_TYPE.get(error.type), text=text, code=error.type, key_env=key_env)
        if not isinstance(error, anthropic.APIStatusError):
            return Failure(FailureKind.FINAL, plain_text(text))
        return failure_of_status(
            error.status_code,
            text=error_message(error.status_code, error.body, text),
            code=error_code(error.body),
            headers=error.response.headers,
            key_env=key_env,
        )


def _sent(request: Mapping[str, Any]) -> list[Any]:
    """What of a request counts as input."""
    return [request.get("system", []), request["messages"], request.get("tools", [])]


_clients: dict[tuple[str, str, float, float], anthropic.Anthropic] = {}
_clients_mutex = threading.Lock()


def _client(config: AnthropicPolicyConfig, key: str) -> anthropic.Anthropic:
    """One client, and so one pool of connections, for all attempts at an endpoint. Thread-safe, as the client is."""
    stall_timeout_s = min(config.stall_timeout_s, config.timeout_s) if config.stream else config.timeout_s
    identity = (config.base_url, key, config.timeout_s, stall_timeout_s)
    with _clients_mutex:
        if identity not in _clients:
            http_client = DeadlineClient(timeout_s=config.timeout_s, stall_timeout_s=stall_timeout_s)
            _clients[identity] = anthropic.Anthropic(
                # an explicit key keeps the library from looking for others, in the environment and in files
                api_key=key or "none",
                base_url=config.base_url,
                max_retries=0,
                timeout=http_client.timeout,
                http_client=http_client,
            )
        return _clients[identity]
