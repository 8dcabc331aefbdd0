"""GenerationEngine: token ids in, token ids out, with continuous batching. It knows no text, no turns and no training.

submit(request) as rollouts become ready -> step() does a bit of work and returns what has finished since.

Implementations: generation_transformers.py (CPU, tests, and GPUs without vLLM), generation_vllm.py (vLLM in this
process, or a server), ScriptedEngine here (tests and measurements).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class GenerationRequest:
    """One answer that is wanted."""

    key: str
    """Comes back with the answer; unique among the unfinished requests of an engine."""
    prompt_ids: Sequence[int]
    max_new_tokens: int
    """At least 1; the caller has made room for them (prompt and answer fit in max_model_len)."""
    seed: int = 0
    """Of the sampling, where the engine draws each row by itself."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the answer, beside those that the checkpoint names."""


@dataclass(frozen=True)
class Generated:
    """One answer."""

    key: str
    ids: list[int]
    """What was generated, with the token that ended it where finish_reason is "stop"."""
    logprobs: list[float]
    """Natural logarithm of each token's probability under the distribution that it was drawn from: after temperature
    and top_p; at temperature 0 the model's own. As long as ids."""
    finish_reason: FinishReason
    """"length": cut at max_new_tokens. "error": the engine failed on this one for good; ids may be empty."""
    error: str = ""
    """What went wrong, one line, where finish_reason is "error"."""


@runtime_checkable
class GenerationEngine(Protocol):
    """Generates for many requests at a time. Used from one thread."""

    is_collective: bool
    """Whether several ranks must call step() equally often (tensor parallel; ZeRO-3 or FSDP with sharded weights)."""
    process_group: Any
    """torch.distributed group of those ranks; None: all of them."""
    max_model_len: int
    """Tokens of a prompt with its answer."""

    def submit(self, request: GenerationRequest) -> None:
        """Add a request to those under way."""
        ...

    def step(self) -> list[Generated]:
        """Work for a short while (at most about a second) and return the finished ones, in any order.

        Without requests a collective engine takes part in the others' work with a dummy; another returns at once.
        """
        ...

    def cancel(self, key: str) -> None:
        """Drop an unfinished request; nothing happens if there is none."""
        ...

    def describe(self) -> dict[str, Any]:
        """For the record of a trajectory: kind, model, sampling. Never a key."""
        ...


class ScriptedEngine:
    """Answers that a function writes from the request; for tests and measurements of the loop.

    answer: request -> token ids without a limit; what is longer than max_new_tokens is cut there. A step gives each
    unfinished request tokens_per_step tokens and takes step_s seconds, as a continuous batching server does; None
    finishes each at its first step.
    """

    def __init__(
        self,
        answer: Callable[[GenerationRequest], Sequence[int]],
        *,
        max_model_len: int = 32_768,
        is_collective: bool = False,
        tokens_per_step: int | None = None,
        step_s: float = 0.0,
        max_rows: int | None = None,
    ) -> None:
        self.max_model_len, self.is_collective, self.process_group = max_model_len, is_collective, None
        self.num_steps = self.num_dummy_steps = 0
        self.requests: list[GenerationRequest] = []
        """Every request there was, in order."""
        self._answer = answer
        self._tokens_per_step, self._step_s, self._max_rows = tokens_per_step, step_s, max_rows
        self._active: dict[str, tuple[Generated, int]] = {}
        """Key -> the whole answer and how many of its tokens are still to come."""
        self._waiting: deque[GenerationRequest] = deque()

    def submit(self, request: GenerationRequest) -> None:
        self.requests.append(request)
        self._waiting.append(request)

    def step(self) -> list[Generated]:
        while self._waiting and (self._max_rows is None or len(self._active) < self._max_rows):
            self._admit(self._waiting.popleft())
        if not self._active:
            self.num_dummy_steps += self.is_collective
            return []
        self.num_steps += 1
        time.sleep(self._step_s)
        finished = []
        for key, (generated, left) in list(self._active.items()):
            left = 0 if self._tokens_per_step is None else left - self._tokens_per_step
            if left > 0:
                self._active[key] = (generated, left)
            else:
                finished.append(self._active.pop(key)[0])
        return finished

    def cancel(self, key: str) -> None:
        self._active.pop(key, None)
        self._waiting = deque(request for request in self._waiting if request.key != key)

    def describe(self) -> dict[str, Any]:
        return {"kind": "scripted"}

    def _admit(self, request: GenerationRequest) -> None:
        whole = list(self._answer(request))
        ids = whole[: request.max_new_tokens]
        reason: FinishReason = "stop" if len(ids) == len(whole) else "length"
        self._active[request.key] = (Generated(request.key, ids, [-0.5] * len(ids), reason), len(ids))
