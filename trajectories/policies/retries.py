"""What a failed call to an endpoint means, and how long to wait before the next. Knows neither SDK: statuses and words.

TRANSIENT is tried again; CONTEXT ends the attempt cleanly; USER stops the run, since every further call would fail too
(a refused key, no credit, an unknown model); FINAL ends the attempt as an infrastructure failure.
"""

from __future__ import annotations

import email.utils
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trajectories.policies.endpoint_config import EndpointConfig

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
"""Beside every status from 500 on (529 is Anthropic's "overloaded")."""
_CONTEXT_STATUS = frozenset({400, 422, 500})
"""500: llama.cpp's, and what proxies make of a server's refusal."""
_TOO_LARGE = 413
"""Whoever says it, an endpoint, its rate limit or a proxy: a longer conversation will not pass either."""
_CONTEXT_WORDS = re.compile(
    r"context_length|context length|maximum context|context window|context limit|max_model_len|maximum model length"
    r"|prompt is too long|too many tokens|input is too long|reduce the length|string_above_max_length"
    r"|request_too_large|exceeds? the (?:model's )?maximum|(?:available|exceed)[ _]context[ _]size"
    r"|maximum prompt length|prompt exceeds max length|exceeded model token limit|range of input length"
    r"|must have less than \d+ tokens",
    re.IGNORECASE,
)
"""How endpoints say that a conversation is too long: OpenAI's, Anthropic's, vLLM's, SGLang's, Gemini's, llama.cpp's,
xAI's, GLM's, Moonshot's, DashScope's, TGI's and others' words."""
_CREDIT_WORDS = re.compile(r"insufficient_quota|billing_error|credit balance|insufficient (?:credit|balance)", re.I)
_MAX_ERROR_CHARS, _MAX_READ_CHARS = 400, 10_000
"""Of an error: what is told, and what is looked at; a page can have megabytes."""
_RETRY_AFTER_SPREAD = 1.1
"""Attempts that were told the same pause come back spread over a tenth of it, not all at once."""


class MalformedAnswerError(Exception):
    """An answer that is none: not JSON, no choices, or its end is missing."""


class FailureKind(StrEnum):
    """Who has to do something about a failed call."""

    TRANSIENT = "TRANSIENT"
    CONTEXT = "CONTEXT"
    USER = "USER"
    FINAL = "FINAL"


@dataclass(frozen=True)
class Failure:
    """One failed call."""

    kind: FailureKind
    text: str
    """What the endpoint said; not redacted yet."""
    cure: str = ""
    """USER only: what to do."""
    retry_after_s: float = 0.0
    """The pause that the endpoint asked for; 0: none."""


def failure_of_status(
    status: int | None, *, text: str, code: str = "", headers: Mapping[str, str] | None = None, key_env: str = ""
) -> Failure:
    """What an error status means.

    status: None if the error came inside an answer without one. code: the endpoint's own, if it gave one.
    key_env: name of the key's variable, for the cure.
    """
    said = f"{code} {text}"
    text = plain_text(text)
    if status == _TOO_LARGE or ((status is None or status in _CONTEXT_STATUS) and _CONTEXT_WORDS.search(said)):
        return Failure(FailureKind.CONTEXT, text)
    if status == 402 or _CREDIT_WORDS.search(code) or (status == 400 and _CREDIT_WORDS.search(said)):
        return Failure(FailureKind.USER, text, "the account has no credit left; top it up, then run the command again")
    if status == 401:
        return Failure(FailureKind.USER, "", f"the key in ${key_env} was refused ({status}); set another")
    if status == 403:
        # some endpoints answer one conversation so that breaks their rules; a run whose every attempt meets it stops
        return Failure(FailureKind.FINAL, f"{text}; if every request is answered so, give ${key_env} another key")
    if status == 404:
        return Failure(FailureKind.USER, text, "correct policy.base_url or policy.model")
    if status is not None and 300 <= status < 400:
        place = (headers or {}).get("location", "another address")
        return Failure(FailureKind.USER, text, f"the endpoint sends on to {place}; give that in policy.base_url")
    if status is None or status in _TRANSIENT_STATUS or status >= 500:
        return Failure(FailureKind.TRANSIENT, text, retry_after_s=retry_after_s(headers or {}))
    return Failure(FailureKind.FINAL, text)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of Retry-After (a number or an HTTP date) or of OpenAI's `retry-after-ms`; 0 if there is none."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after", "")
        if not value:
            return 0.0
        if re.fullmatch(r"\s*[\d.]+\s*", value):
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def pause_s(config: EndpointConfig, attempt: int, failure: Failure, spread: random.Random) -> float:
    """How long to wait after the failed try `attempt` (0 the first): our own back-off, or longer if asked for."""
    own = min(config.max_backoff_s, config.backoff_s * 2.0 ** min(attempt, 60)) * spread.uniform(0.5, 1.5)
    asked = min(failure.retry_after_s, config.max_retry_after_s) * spread.uniform(1.0, _RETRY_AFTER_SPREAD)
    return max(own, asked)


def error_code(body: Any) -> str:
    """The endpoint's own names of an error, from its answer: type and code."""
    part = _error_part(body)
    return f"{part.get('type') or ''} {part.get('code') or ''}" if isinstance(part, dict) else ""


def error_message(status: int, body: Any, otherwise: str) -> str:
    """What an error answer says, without the JSON around it. otherwise: if it has no message."""
    part = _error_part(body)
    message = part.get("message") if isinstance(part, dict) else part
    return f"{status}: {message}" if isinstance(message, str) and message.strip() else otherwise


def plain_text(text: str) -> str:
    """An error's text on one line, short, an HTML page without its tags."""
    text = text[:_MAX_READ_CHARS]
    if re.search(r"<(?:!doctype|html|body|head)\b", text, re.IGNORECASE):
        text = re.sub(r"(?is)<(script|style)\b.*?</\1\s*>|<[^<>]*>", " ", text)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_ERROR_CHARS else text[:_MAX_ERROR_CHARS] + "..."


def _error_part(body: Any) -> Any:
    """The error object of an answer: OpenAI's SDK has taken it out already, Anthropic's has not."""
    return body.get("error", body) if isinstance(body, dict) else body
