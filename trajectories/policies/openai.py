"""OpenAIPolicy: a teacher or student behind any endpoint that speaks OpenAI's chat completions.

The key comes from an environment variable alone and reaches no record, log or message. Rate limits, server errors,
timeouts and dropped connections are tried again with growing, jittered pauses; a conversation that is too long is a
ContextLimitError; a refused key or an unknown model is a UserError; what is left is a PolicyError.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import openai

from data.task import Task
from eval_harness.errors import UserError
from trajectories.policies.openai_config import OpenAIPolicyConfig
from trajectories.policy import ContextLimitError, PolicyError
from trajectories.record import Message, ToolCall, Usage

logger = logging.getLogger(__name__)

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CONTEXT_WORDS = re.compile(
    r"context_length|context length|maximum context|context window|max_model_len|prompt is too long|too many tokens"
    r"|input is too long|reduce the length|string_above_max_length",
    re.IGNORECASE,
)
"""How endpoints say that a conversation is too long: OpenAI's error code, and the words of vLLM, SGLang and others."""


class OpenAIPolicy:
    """Stateless but for the attempt's seed: an interrupted attempt can be continued from its messages."""

    is_stateless = True

    def __init__(self, config: OpenAIPolicyConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises UserError if the key's environment variable is not set. sleep: for tests."""
        self._config = config
        self._sleep = sleep
        self._seed: int | None = None
        self._random = random.Random()
        self._key = _read_key(config)
        self._client = _client(config.base_url, self._key, config.timeout_s)

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self._seed = seed
        self._random = random.Random(f"{task.task_id} {attempt_index} {seed}")

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        request = self._request(messages, tools)
        asked = time.monotonic()
        for attempt in range(self._config.max_retries + 1):
            try:
                response = self._client.chat.completions.create(**request)
                return self._message(response, latency_s=round(time.monotonic() - asked, 3))
            except openai.APIError as error:
                self._give_up_or_pause(error, attempt)
        raise AssertionError("unreachable")

    def describe(self) -> dict[str, Any]:
        return {"kind": "openai", **self._config.model_dump(mode="json", exclude={"api_key_env"})}

    def _request(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        config = self._config
        sent = [message.to_openai() for message in messages]
        if not config.send_reasoning:
            for message in sent:
                message.pop("reasoning_content", None)
        request: dict[str, Any] = {"model": config.model, "messages": sent}
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

    def _message(self, response: Any, *, latency_s: float) -> Message:
        """The endpoint's first choice. Raises PolicyError for an answer that is none."""
        if not getattr(response, "choices", None):
            text = self._redact(str(response))[:300]
            raise PolicyError(f"{self._config.base_url}: the answer has no choices: {text}")
        choice = response.choices[0]
        message = choice.message
        tool_calls = [
            ToolCall(
                id=call.id or f"call_{index}",
                name=_clean(function.name or ""),
                arguments=_clean(function.arguments or ""),
            )
            for index, call in enumerate(message.tool_calls or [])
            if (function := getattr(call, "function", None)) is not None
        ]
        reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        return Message(
            role="assistant",
            content=_clean(message.content or ""),
            reasoning=_clean(reasoning) if isinstance(reasoning, str) else None,
            tool_calls=tool_calls,
            finish_reason=choice.finish_reason,
            usage=self._usage(response.usage, latency_s),
        )

    def _usage(self, reported: Any, latency_s: float) -> Usage:
        if reported is None:
            return Usage(latency_s=latency_s)
        of_input = getattr(reported, "prompt_tokens_details", None)
        of_output = getattr(reported, "completion_tokens_details", None)
        usage = Usage(
            input_tokens=reported.prompt_tokens or 0,
            output_tokens=reported.completion_tokens or 0,
            cached_tokens=getattr(of_input, "cached_tokens", None) or 0,
            reasoning_tokens=getattr(of_output, "reasoning_tokens", None) or 0,
            latency_s=latency_s,
        )
        return usage.model_copy(update={"cost_usd": self._config.prices.cost_usd(usage)})

    def _give_up_or_pause(self, error: openai.APIError, attempt: int) -> None:
        """Return after the pause, or raise what the error means."""
        config = self._config
        status = getattr(error, "status_code", None)
        text = self._redact(str(error))[:500]
        if status in (400, 413, 422) and _CONTEXT_WORDS.search(f"{getattr(error, 'code', '')} {error}"):
            raise ContextLimitError(text) from None
        if status in (401, 403):
            raise UserError(
                f"{config.base_url}: the key in ${config.api_key_env} was refused ({status}); set another"
            ) from None
        if status == 404:
            raise UserError(f"{config.base_url}: {text}; correct policy.base_url or policy.model") from None
        is_transient = status in _TRANSIENT_STATUS or isinstance(error, openai.APIConnectionError)
        if not is_transient:
            raise PolicyError(f"{config.base_url}: {text}") from None
        if attempt >= config.max_retries:
            raise PolicyError(f"{config.base_url}: {text} (after {attempt + 1} tries)") from None
        pause_s = min(config.max_backoff_s, config.backoff_s * 2**attempt) * self._random.uniform(0.5, 1.5)
        pause_s = max(pause_s, _retry_after_s(error, config.max_backoff_s))
        logger.info("%s: %s; trying again in %.1f s", config.base_url, text, pause_s)
        self._sleep(pause_s)

    def _redact(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _read_key(config: OpenAIPolicyConfig) -> str:
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and urlsplit(config.base_url).hostname not in _LOCAL_HOSTS:
        raise UserError(
            f"policy.api_key_env: ${config.api_key_env} is not set; export the key of {config.base_url} in it"
        )
    return key


def _clean(text: str) -> str:
    """Without lone surrogates, which a model's broken escapes leave and no JSON file can hold."""
    return text.encode("utf-8", "replace").decode()


def _retry_after_s(error: openai.APIError, max_backoff_s: float) -> float:
    response = getattr(error, "response", None)
    try:
        return min(float(response.headers.get("retry-after", 0)), max_backoff_s) if response is not None else 0.0
    except ValueError:
        return 0.0


_clients: dict[tuple[str, str, float], openai.OpenAI] = {}
_clients_mutex = threading.Lock()


def _client(base_url: str, key: str, timeout_s: float) -> openai.OpenAI:
    """One client, and so one pool of connections, for all attempts at an endpoint. Thread-safe, as the client is."""
    with _clients_mutex:
        identity = (base_url, key, timeout_s)
        if identity not in _clients:
            client = openai.OpenAI(base_url=base_url, api_key=key or "none", timeout=timeout_s, max_retries=0)
            # the library reads further OPENAI_ variables of its own accord; only the configuration decides here
            client.organization = client.project = None
            _clients[identity] = client
        return _clients[identity]
