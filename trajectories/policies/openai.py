"""OpenAIPolicy: a teacher or student behind any endpoint that speaks OpenAI's chat completions, streamed or whole.

The key comes from an environment variable alone and reaches no record, log or message. What a failure means is in
retries.py, the loop around it in endpoint.py, the reading of answers in openai_answer.py.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openai

from trajectories.policies.endpoint import EndpointPolicy, own_ids, say_estimated, whole
from trajectories.policies.http_client import DeadlineClient
from trajectories.policies.keys import read_key
from trajectories.policies.openai_answer import RawAnswer, add_chunk, read_stream_end, read_whole, to_sent
from trajectories.policies.openai_config import OpenAIPolicyConfig
from trajectories.policies.reasoning import split_thinking
from trajectories.policies.retries import Failure, FailureKind, error_message, failure_of_status, plain_text
from trajectories.policies.server_events import EventError, is_event_stream, read_events, read_json
from trajectories.record import Message, ToolCall, Usage

_OTHER_TOKENS_FIELD = "max_completion_tokens"


class OpenAIPolicy(EndpointPolicy):
    """One conversation with a served model; its connections are shared with all others at the endpoint."""

    kind = "openai"
    sdk_error = openai.OpenAIError
    key_is_required = True
    """Of an endpoint that is not on this machine."""

    def __init__(self, config: OpenAIPolicyConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises UserError if the key's environment variable is not set. sleep: for tests."""
        key = read_key(config.api_key_env, config.base_url, is_required=self.key_is_required)
        super().__init__(config, key, sleep=sleep)
        self._settings = config
        self._client = _client(config, key)

    def _ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        request = self._request(messages, tools)
        raw = self._read_stream(request) if self._settings.stream else self._read_whole(request)
        return self._message(raw, request, call_prefix=f"call_{len(messages)}")

    def _read_whole(self, request: dict[str, Any]) -> RawAnswer:
        response = self._client.chat.completions.with_raw_response.create(**request)
        return read_whole(read_json(response.http_response))

    def _read_stream(self, request: dict[str, Any]) -> RawAnswer:
        raw = RawAnswer()
        options = {"stream_options": {"include_usage": True}} if self._settings.stream_usage else {}
        create: Any = self._client.chat.completions.create  # typed for literal arguments alone
        with create(**request, **options, stream=True) as stream:
            if not is_event_stream(stream.response):
                return read_whole(read_json(stream.response))
            try:
                for event in read_events(stream.response):
                    add_chunk(raw, event)
                return read_stream_end(raw)
            except Exception:
                if raw.has_begun:
                    self._lose(self._estimated(_sent(request), raw.num_chars))
                raise

    def _request(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        config = self._settings
        request: dict[str, Any] = {
            "model": config.model,
            "messages": [to_sent(message, config) for message in messages],
        }
        if tools:
            request["tools"] = list(tools)
            if config.parallel_tool_calls is not None:
                request["parallel_tool_calls"] = config.parallel_tool_calls
        if config.temperature is not None:
            request["temperature"] = config.temperature
        if config.top_p is not None:
            request["top_p"] = config.top_p
        if config.send_seed and self._seed is not None:
            request["seed"] = self._seed
        extra = dict(config.extra_body)
        if config.max_output_tokens is not None:
            extra[config.max_tokens_field] = config.max_output_tokens
        if extra:
            request["extra_body"] = extra
        return request

    def _message(self, raw: RawAnswer, request: Mapping[str, Any], *, call_prefix: str) -> Message:
        clean = self._redactor.text
        content, reasoning = clean(raw.content), clean(raw.visible_reasoning())
        if not reasoning:
            thought, content = split_thinking(content)
            reasoning = thought or ""
        ids = own_ids([clean(call["id"]) for call in raw.calls], call_prefix)
        calls = [
            ToolCall(id=call_id, name=clean(call["name"]), arguments=clean(call["arguments"]))
            for call_id, call in zip(ids, raw.calls, strict=True)
        ]
        return Message(
            role="assistant",
            content=content,
            reasoning=reasoning or None,
            tool_calls=calls,
            finish_reason=clean(raw.finish_reason or "") or None,
            provider_blocks=self._redactor.data(raw.reasoning_details) or None,
            usage=self._usage(raw, request),
        )

    def _usage(self, raw: RawAnswer, request: Mapping[str, Any]) -> Usage:
        reported = raw.usage
        if reported is None:
            say_estimated(self._settings.base_url)
            return self._priced(self._estimated(_sent(request), raw.num_chars))
        of_input = _mapping(reported.get("prompt_tokens_details"))
        of_output = _mapping(reported.get("completion_tokens_details"))
        input_tokens = whole(reported.get("prompt_tokens"))
        # DeepSeek names the tokens from its cache differently
        cached = whole(of_input.get("cached_tokens")) or whole(reported.get("prompt_cache_hit_tokens"))
        cached = min(cached, input_tokens)
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=whole(reported.get("completion_tokens")),
            cached_tokens=cached,
            cache_write_tokens=min(whole(of_input.get("cache_write_tokens")), input_tokens - cached),
            reasoning_tokens=whole(of_output.get("reasoning_tokens")),
        )
        charged = reported.get("cost")  # OpenRouter says what it charged; a price table of one's own goes before
        if isinstance(charged, int | float) and 0 <= charged < math.inf and not self._settings.prices.are_set:
            return usage.model_copy(update={"cost_usd": float(charged)})
        return self._priced(usage)

    def _failure(self, error: Exception) -> Failure:
        text = str(error) + (f" ({type(error.__cause__).__name__})" if error.__cause__ else "")
        if isinstance(error, openai.APIConnectionError):  # timeouts too
            return Failure(FailureKind.TRANSIENT, plain_text(text))
        if isinstance(error, EventError):
            status = int(error.code) if error.code.isdigit() else None
            return self._failure_of(status, text, f"{error.code} {error.type}")
        if not isinstance(error, openai.APIStatusError):
            return Failure(FailureKind.FINAL, plain_text(text))
        code = f"{error.code or ''} {error.type or ''}"
        return self._failure_of(
            error.status_code, error_message(error.status_code, error.body, text), code, error.response.headers
        )

    def _failure_of(
        self, status: int | None, text: str, code: str, headers: Mapping[str, str] | None = None
    ) -> Failure:
        if status == 400 and _OTHER_TOKENS_FIELD in text and self._settings.max_tokens_field != _OTHER_TOKENS_FIELD:
            cure = f"set policy.max_tokens_field={_OTHER_TOKENS_FIELD}"
            return Failure(FailureKind.USER, plain_text(text), cure)
        return failure_of_status(status, text=text, code=code, headers=headers, key_env=self._settings.api_key_env)


def _sent(request: Mapping[str, Any]) -> list[Any]:
    """What of a request counts as input."""
    return [request["messages"], request.get("tools", [])]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_clients: dict[tuple[str, str, float, float], openai.OpenAI] = {}
_clients_mutex = threading.Lock()


def _client(config: OpenAIPolicyConfig, key: str) -> openai.OpenAI:
    """One client, and so one pool of connections, for all attempts at an endpoint. Thread-safe, as the client is."""
    stall_timeout_s = min(config.stall_timeout_s, config.timeout_s) if config.stream else config.timeout_s
    identity = (config.base_url, key, config.timeout_s, stall_timeout_s)
    with _clients_mutex:
        if identity not in _clients:
            http_client = DeadlineClient(timeout_s=config.timeout_s, stall_timeout_s=stall_timeout_s)
            client = openai.OpenAI(
                base_url=config.base_url,
                api_key=key or "none",
                max_retries=0,
                timeout=http_client.timeout,
                http_client=http_client,
            )
            # the library reads further OPENAI_ variables of its own accord; only the configuration decides here
            client.organization = client.project = None
            _clients[identity] = client
        return _clients[identity]
