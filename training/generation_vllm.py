"""VllmEngine: continuous batching through a vLLM `LLM` in this process (colocated with the trainer). A server's engine
is in generation_server.py.

All that is called of vLLM stands here: LLM.llm_engine's add_request, step, abort_request, has_unfinished_requests and
model_config; SamplingParams; the fields of RequestOutput. Written against vLLM 0.22 to 0.31, the versions that TRL 1.16
speaks to. The LLM must have logprobs_mode="processed_logprobs" (TRL sets it): only those are what was drawn from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from training.generation import FinishReason, Generated, GenerationRequest
from training.generation_server import VllmServerEngine
from training.student_policy import SamplingConfig

__all__ = ["VllmEngine", "VllmServerEngine", "read_output"]

_STEPS_BETWEEN_EXCHANGES = 8
"""Tensor parallel ranks tell each other their new requests so often at least: an exchange costs some milliseconds."""


class VllmEngine:
    """Generates with the weights that the LLM holds; synchronising them is the trainer's."""

    def __init__(
        self,
        llm: Any,
        sampling: SamplingConfig | None = None,
        *,
        stop_token_ids: Iterable[int] = (),
        tensor_parallel_group: Any = None,
        use_seeds: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """sampling: its temperature, top_p and max_context; max_new_tokens is each request's own.

        stop_token_ids: that end every answer, beside the checkpoint's own and each request's.
        tensor_parallel_group: torch.distributed group of the ranks that hold one model together (TRL's tp_group); each
            then runs the requests of all of them, as vLLM's external launcher wants it, and returns its own.
        use_seeds: draw each request by its own seed. vLLM then draws row by row, which is slower; without it the LLM's
            own seed counts, and what is drawn depends on the order of the requests.
        extra: further arguments of SamplingParams (top_k, min_p, repetition_penalty).
        """
        self.sampling = sampling or SamplingConfig(temperature=1.0)
        self.process_group = tensor_parallel_group
        self.is_collective = tensor_parallel_group is not None
        self._llm, self._engine = llm, llm.llm_engine
        length = int(self._engine.model_config.max_model_len)
        self.max_model_len = min(self.sampling.max_context or length, length)
        self._stop_token_ids = frozenset(stop_token_ids)
        self._use_seeds, self._extra = use_seeds, dict(extra or {})
        self._submitted: list[GenerationRequest] = []
        self._cancelled: list[str] = []
        self._own: set[str] = set()
        """Keys that are under way here."""

    def submit(self, request: GenerationRequest) -> None:
        self._submitted.append(request)
        self._own.add(request.key)

    def step(self) -> list[Generated]:
        """One step of the engine; with tensor parallelism a few, until a request of any of the ranks is finished."""
        for request, cancelled in self._exchange():
            self._add(request, cancelled)
        for _ in range(_STEPS_BETWEEN_EXCHANGES if self.is_collective else 1):
            if not self._engine.has_unfinished_requests():
                return []
            finished = [output for output in self._engine.step() if output.finished]
            if finished:  # on all ranks of the group at once: they run the same requests
                return self._read(finished)
        return []

    def cancel(self, key: str) -> None:
        if key in self._own:
            self._own.discard(key)
            self._cancelled.append(key)

    def describe(self) -> dict[str, Any]:
        config = self._engine.model_config
        return {
            "kind": "vllm",
            "model": str(config.model),
            "dtype": str(config.dtype),
            "sampling": self.sampling.model_dump(include={"temperature", "top_p"}) | self._extra,
        }

    def _exchange(self) -> list[tuple[list[GenerationRequest], list[str]]]:
        """What is new here, or on every rank of the group, in the same order on each."""
        own = (self._submitted, self._cancelled)
        self._submitted, self._cancelled = [], []
        if not self.is_collective:
            return [own]
        import torch.distributed as dist

        everyones: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(everyones, own, group=self.process_group)
        return everyones

    def _add(self, requests: list[GenerationRequest], cancelled: list[str]) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        for request in requests:
            parameters = SamplingParams(
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=request.max_new_tokens,
                logprobs=0,  # of the chosen token alone
                stop_token_ids=sorted(self._stop_token_ids.union(request.stop_token_ids)),
                seed=request.seed if self._use_seeds else None,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                **self._extra,
            )
            # the form that vLLM's renderer gives; a dictionary without a type would be rendered again
            prompt = {"type": "token", "prompt_token_ids": list(request.prompt_ids)}
            self._engine.add_request(request.key, prompt, parameters)
        if cancelled:
            self._engine.abort_request(cancelled)

    def _read(self, outputs: list[Any]) -> list[Generated]:
        answers = []
        for output in outputs:
            if output.request_id not in self._own:
                continue  # another rank's, or cancelled
            self._own.discard(output.request_id)
            answers.append(read_output(output))
        return answers


def read_output(output: Any) -> Generated:
    """A finished RequestOutput of one sequence."""
    sequence = output.outputs[0]
    ids = list(sequence.token_ids)
    if sequence.finish_reason not in ("stop", "length"):
        return Generated(output.request_id, [], [], "error", f"vLLM ended it as {sequence.finish_reason!r}")
    reason: FinishReason = "stop" if sequence.finish_reason == "stop" else "length"
    logprobs = [float(chosen[token].logprob) for token, chosen in zip(ids, sequence.logprobs, strict=True)]
    return Generated(output.request_id, ids, logprobs, reason)
