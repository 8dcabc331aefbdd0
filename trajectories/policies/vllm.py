"""VLLMPolicy: the openai policy for a server that one runs oneself: no key needed, and it looks before it leaps.

Before the first attempt it asks the server for its models, once a process. A server that is missing, serves another
model or was started without tool calls is a UserError that shows the command to start it with.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

import openai

from data.task import Task
from eval_harness.errors import UserError
from trajectories.policies.openai import OpenAIPolicy
from trajectories.policies.retries import Failure, FailureKind, plain_text
from trajectories.policies.vllm_config import VLLMPolicyConfig

logger = logging.getLogger(__name__)

_POLL_S = 2.0
_CHECK_TIMEOUT_S = 10.0
_NO_TOOL_CALLS = ("enable-auto-tool-choice", "tool-call-parser")
"""Words of vLLM's refusal of tools."""


class VLLMPolicy(OpenAIPolicy):
    """One conversation with a vLLM server."""

    kind = "vllm"
    key_is_required = False

    def __init__(self, config: VLLMPolicyConfig) -> None:
        super().__init__(config)
        self._server = config

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        """Raises UserError if the server is missing or serves another model."""
        super().start(task, attempt_index=attempt_index, seed=seed, device=device)
        identity = (self._server.base_url, self._server.model)
        with _checked_mutex:  # the attempts of a run begin together; one looks, the others wait for what it finds
            if identity not in _checked:
                self._check_server()
                _checked.add(identity)

    def _check_server(self) -> None:
        config = self._server
        deadline = time.monotonic() + config.wait_for_server_s
        while True:
            try:
                listed = self._client.models.list(timeout=_CHECK_TIMEOUT_S)
                break
            except (openai.APIConnectionError, openai.InternalServerError) as error:
                if time.monotonic() >= deadline:
                    text = self._redactor.error(plain_text(str(error)))
                    raise UserError(
                        f"{config.base_url}: no vLLM server answers ({text}); start it with "
                        f"`{config.serve_command()}`, or set policy.wait_for_server_s while it loads"
                    ) from None
                logger.info("%s: waiting for the server (`%s`)", config.base_url, config.serve_command())
                time.sleep(min(_POLL_S, max(0.05, deadline - time.monotonic())))
            except openai.OpenAIError as error:
                self._give_up_or_pause(self._failure(error), config.max_retries)
        names = [model.id for model in listed.data or ()]
        if config.model not in names:
            raise UserError(
                f"{config.base_url}: serves {', '.join(names) or 'no model'}, not {config.model}; set policy.model to "
                f"what it serves, or start it with `{config.serve_command()}`"
            )

    def _failure_of(
        self, status: int | None, text: str, code: str, headers: Mapping[str, str] | None = None
    ) -> Failure:
        if status == 400 and any(words in text for words in _NO_TOOL_CALLS):
            cure = f"start the server with tool calls: `{self._server.serve_command()}`"
            return Failure(FailureKind.USER, plain_text(text), cure)
        return super()._failure_of(status, text, code, headers)


_checked: set[tuple[str, str]] = set()
_checked_mutex = threading.Lock()
