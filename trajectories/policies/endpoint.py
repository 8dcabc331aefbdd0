"""EndpointPolicy: what the served teachers share. One answer: ask -> (fail -> pause)* -> usage -> missing reasoning.

A subclass speaks one protocol: it sends a conversation, reads the answer, and says what its SDK's errors mean. The
SDKs' own retries are off: only these are counted, logged and bounded.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import httpx2

from data.task import Task
from eval_harness.errors import UserError
from trajectories.policies.endpoint_config import EndpointConfig
from trajectories.policies.keys import Redactor
from trajectories.policies.reasoning import add_usage, settle_reasoning
from trajectories.policies.retries import Failure, FailureKind, MalformedAnswerError, pause_s, plain_text
from trajectories.policies.server_events import EventError
from trajectories.policy import ContextLimitError, PolicyError
from trajectories.record import Message, Usage

logger = logging.getLogger(__name__)

CHARS_PER_TOKEN = 4
"""Of an estimate, where an endpoint does not say its tokens."""
WIRE_ERRORS = (httpx2.HTTPError, httpx2.StreamError, json.JSONDecodeError, UnicodeDecodeError, MalformedAnswerError)
"""What a broken answer raises below or beside an SDK's own errors."""


class EndpointPolicy(ABC):
    """Stateless but for the attempt's seed: an interrupted attempt can be continued from its messages."""

    is_stateless = True
    kind: str
    """Of the configuration."""
    sdk_error: type[Exception]
    """The base class of the SDK's errors."""

    def __init__(self, config: EndpointConfig, key: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """sleep: for tests."""
        self._config = config
        self._redactor = Redactor(key)
        self._sleep = sleep
        self._seed: int | None = None
        self._random = random.Random()
        self._lost = Usage()
        """Tokens of answers that broke off in the call that is being made."""

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self._seed = seed
        self._random = random.Random(f"{task.task_id} {attempt_index} {seed}")

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The assistant message that follows. Raises PolicyError, ContextLimitError, UserError."""

        def ask_further(question: str) -> Message:
            return self._call([*messages, Message(role="user", content=question)], tools)

        return settle_reasoning(self._call(messages, tools), self._config.missing_reasoning, ask_further)

    def describe(self) -> dict[str, Any]:
        """For the record: everything of the configuration but where the key is."""
        settings = self._config.model_dump(mode="json", exclude={"api_key_env", "name"})
        return {"kind": self.kind, "teacher": self._config.teacher, **settings}

    @abstractmethod
    def _ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """One try. Raises sdk_error or one of WIRE_ERRORS."""

    @abstractmethod
    def _failure(self, error: Exception) -> Failure:
        """What an error of the SDK means."""

    def _call(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """One answer, after as many tries as it takes, with the usage of all of them."""
        config = self._config
        asked = time.monotonic()
        self._lost = Usage()
        for attempt in range(config.max_retries + 1):
            try:
                message = self._ask(messages, tools)
            except WIRE_ERRORS as error:
                text = plain_text(f"{type(error).__name__}: {error}")
                self._give_up_or_pause(Failure(FailureKind.TRANSIENT, text), attempt)
            except (self.sdk_error, EventError) as error:
                self._give_up_or_pause(self._failure(error), attempt)
            else:
                usage = add_usage(message.usage or Usage(), self._lost)
                update = {"num_retries": attempt, "latency_s": round(time.monotonic() - asked, 3)}
                return message.model_copy(update={"usage": usage.model_copy(update=update)})
        raise AssertionError("unreachable")

    def _give_up_or_pause(self, failure: Failure, attempt: int) -> None:
        """Return after the pause, or raise what the failure means."""
        config = self._config
        text = self._redactor.error(failure.text)
        if failure.kind is FailureKind.CONTEXT:
            raise ContextLimitError(text, lost=self._lost) from None
        if failure.kind is FailureKind.USER:
            said = f"{text}; " if text else ""
            raise UserError(f"{config.base_url}: {said}{self._redactor.error(failure.cure)}") from None
        if failure.kind is FailureKind.FINAL:
            raise PolicyError(f"{config.base_url}: {text}", lost=self._lost) from None
        if attempt >= config.max_retries:
            raise PolicyError(f"{config.base_url}: {text} (after {attempt + 1} tries)", lost=self._lost) from None
        pause = pause_s(config, attempt, failure, self._random)
        logger.info("%s: %s; trying again in %.1f s", config.base_url, text, pause)
        self._sleep(pause)

    def _lose(self, usage: Usage) -> None:
        """Count an answer that broke off after it had begun: the endpoint charges for it."""
        self._lost = add_usage(self._lost, self._priced(usage))

    def _priced(self, usage: Usage) -> Usage:
        return usage.model_copy(update={"cost_usd": self._config.prices.cost_usd(usage)})

    def _estimated(self, sent: Any, num_output_chars: int) -> Usage:
        """Tokens by length, marked as such. sent: the request's messages and tools, as plain data."""
        return Usage(
            input_tokens=math.ceil(len(json.dumps(sent, ensure_ascii=False)) / CHARS_PER_TOKEN),
            output_tokens=math.ceil(num_output_chars / CHARS_PER_TOKEN),
            num_estimated=1,
        )


def whole(value: Any) -> int:
    """A token count as an endpoint wrote it; 0 for what is none."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


def own_ids(ids: Sequence[str], prefix: str) -> list[str]:
    """The ids of an answer's calls, each its own: what is missing or said twice becomes prefix and number."""
    known: list[str] = []
    for index, call_id in enumerate(ids):
        number = index
        while not call_id or call_id in known:
            call_id, number = f"{prefix}_{number}", number + len(ids)
        known.append(call_id)
    return known


_said_of: set[str] = set()


def say_estimated(base_url: str) -> None:
    """Warn once a process that an endpoint keeps its token counts to itself."""
    if base_url not in _said_of:
        _said_of.add(base_url)
        logger.warning("%s does not say its tokens; they are estimated, %d characters each", base_url, CHARS_PER_TOKEN)
