"""VllmServerEngine: answers from a vLLM server (`vllm serve`) over /v1/completions, token ids in and out.

Each request is a connection of its own, so the server batches them as they come. Ranks need not go together. What the
server must be started with stands in trl's guide to its server mode; `--logprobs-mode processed_logprobs` is needed for
logprobs of what was drawn from. Synchronising weights is the trainer's.
"""

from __future__ import annotations

import math
import queue
import random
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from eval_harness.errors import UserError
from training.generation import FinishReason, Generated, GenerationRequest
from training.student_policy import SamplingConfig
from trajectories.policies.http_client import DeadlineClient

_WAIT_S = 0.05
"""Longest wait of a step for an answer."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
"""Beside every status from 500 on."""
_MAX_ERROR_CHARS = 300


class VllmServerEngine:
    """Generates on a server. A context manager; close() ends its threads."""

    is_collective = False
    process_group: Any = None

    def __init__(
        self,
        base_url: str,
        sampling: SamplingConfig | None = None,
        *,
        stop_token_ids: Iterable[int] = (),
        use_seeds: bool = True,
        extra: Mapping[str, Any] | None = None,
        timeout_s: float = 1800.0,
        max_retries: int = 5,
        max_connections: int = 256,
    ) -> None:
        """base_url: such as http://localhost:8000. timeout_s: of one answer, waiting in the server's queue included.

        stop_token_ids: that end every answer, beside the checkpoint's own and each request's.
        max_retries: of a request, after a lost connection or a server's error; then its answer is an error.
        Raises UserError: no server there, or one that is no vLLM.
        """
        self.sampling = sampling or SamplingConfig(temperature=1.0)
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self._stop_token_ids, self._extra = frozenset(stop_token_ids), dict(extra or {})
        self._use_seeds, self._max_retries = use_seeds, max_retries
        self._client = DeadlineClient(timeout_s=timeout_s, stall_timeout_s=timeout_s)
        self.model, length = self._ask_model()
        self.max_model_len = min(self.sampling.max_context or length, length)
        self._threads = ThreadPoolExecutor(max_connections, thread_name_prefix="generation")
        self._answers: queue.SimpleQueue[Generated] = queue.SimpleQueue()
        self._own: set[str] = set()
        """Keys that are under way."""

    def __enter__(self) -> VllmServerEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._own.clear()
        self._client.close()  # ends the requests under way
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, request: GenerationRequest) -> None:
        self._own.add(request.key)
        self._threads.submit(self._answer, request)

    def step(self) -> list[Generated]:
        """Wait shortly for answers."""
        finished = []
        if self._own:
            try:
                finished.append(self._answers.get(timeout=_WAIT_S))
            except queue.Empty:
                return []
        while not self._answers.empty():
            finished.append(self._answers.get())
        finished = [generated for generated in finished if generated.key in self._own]
        self._own -= {generated.key for generated in finished}
        return finished

    def cancel(self, key: str) -> None:
        """The server goes on with it; its answer is thrown away."""
        self._own.discard(key)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "vllm_server",
            "model": self.model,
            "sampling": self.sampling.model_dump(include={"temperature", "top_p"}) | self._extra,
        }

    def _ask_model(self) -> tuple[str, int]:
        try:
            response = self._client.get(f"{self.base_url}/v1/models")
            response.raise_for_status()
            model = response.json()["data"][0]
            return str(model["id"]), int(model["max_model_len"])
        except httpx2.HTTPError as error:
            self._client.close()
            raise UserError(
                f"{self.base_url}: no vLLM server answers ({_short(str(error))}); start `vllm serve` there, or mend "
                "trainer.vllm_server_base_url"
            ) from None
        except (KeyError, IndexError, TypeError, ValueError):
            self._client.close()
            raise UserError(
                f"{self.base_url}: its /v1/models names no max_model_len, so it is no vLLM server; start `vllm serve`"
            ) from None

    def _answer(self, request: GenerationRequest) -> None:
        """In a thread of its own: always puts one answer."""
        error = ""
        for tries in range(self._max_retries + 1):
            if request.key not in self._own:
                return
            try:
                response = self._client.post(f"{self.base_url}/v1/completions", json=self._body(request))
            except (httpx2.HTTPError, RuntimeError) as failure:  # RuntimeError: the client was closed
                error = f"{type(failure).__name__}: {_short(str(failure))}"
            else:
                if response.status_code == 200:
                    self._answers.put(read_completion(request.key, response))
                    return
                error = f"HTTP {response.status_code}: {_short(response.text)}"
                if response.status_code < 500 and response.status_code not in _TRANSIENT_STATUS:
                    break
            if tries < self._max_retries:
                time.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tries) * random.uniform(0.5, 1.0))
        self._answers.put(Generated(request.key, [], [], "error", f"{self.base_url}: {error}"))

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.max_new_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            # said, since a server takes what is not said from the checkpoint's generation_config.json
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
            "stop_token_ids": sorted(self._stop_token_ids.union(request.stop_token_ids)),
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **({"seed": request.seed} if self._use_seeds else {}),
            **self._extra,
        }


def read_completion(key: str, response: httpx2.Response) -> Generated:
    """The one choice of an answer; an error if its ids or logprobs are missing."""
    try:
        choice = response.json()["choices"][0]
        ids = [int(token) for token in choice["token_ids"]]
        logprobs = [float(logprob) for logprob in choice["logprobs"]["token_logprobs"]]
        reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError, ValueError):
        return Generated(
            key, [], [], "error", "the server sent no token_ids with logprobs; it needs vLLM 0.22 or later"
        )
    if len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)) or reason not in ("stop", "length"):
        return Generated(key, [], [], "error", f"the server's answer is not whole (finish_reason {reason!r})")
    finish: FinishReason = "stop" if reason == "stop" else "length"
    return Generated(key, ids, logprobs, finish)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_ERROR_CHARS else text[: _MAX_ERROR_CHARS - 3] + "..."
