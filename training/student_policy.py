"""TransformersPolicy: a student's checkpoint answers messages, on CPU or one GPU, through transformers.

For small students and for tests of the loop; a served student answers through an OpenAI-compatible endpoint instead.
One LoadedStudent may serve many attempts, one answer at a time; the policy of an attempt keeps the key-value cache of
its conversation, so each turn reads only what is new.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.errors import UserError
from training.chat_templates import opens_reasoning
from training.chat_tokens import END_OF_TURN, parse_assistant_text, tokenize_prompt
from trajectories.policy import ContextLimitError
from trajectories.record import Message, Usage

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase


class SamplingConfig(BaseModel):
    """How a student's tokens are chosen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=4096, ge=1)
    """Of one answer; a longer one is cut there and read as it is."""
    max_context: int | None = Field(default=None, ge=1)
    """Tokens of a conversation with its answer; None: what the checkpoint was made for."""


@dataclass(frozen=True)
class LoadedStudent:
    """A checkpoint in memory, with the lock that keeps its answers one after another."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    lock: threading.Lock = field(default_factory=threading.Lock)


def load_student(path: Path | str, *, device: str = "cpu", dtype: str | None = None) -> LoadedStudent:
    """Read a checkpoint folder (weights, tokenizer, chat template). dtype None keeps the stored one."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (Path(path) / "config.json").is_file():
        raise UserError(f"{path}: no config.json, so no checkpoint; give the folder that training wrote")
    tokenizer = AutoTokenizer.from_pretrained(path)
    if not tokenizer.chat_template:
        raise UserError(f"{path}: the tokenizer has no chat template; save the one that the student was trained with")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype or "auto").to(device).eval()
    return LoadedStudent(str(path), model, tokenizer)


class TransformersPolicy:
    """Answers messages with a student's tokens. One conversation; single-use, as every policy."""

    def __init__(self, student: LoadedStudent, sampling: SamplingConfig | None = None) -> None:
        self.student = student
        self.sampling = sampling or SamplingConfig()
        positions = student.model.config.max_position_embeddings
        self.max_context = min(self.sampling.max_context or positions, positions)
        self._stop_ids = _stop_ids(student)
        self._reasoning_is_open = opens_reasoning(student.tokenizer)
        self._generator = torch.Generator(device=student.model.device)
        self._cache: DynamicCache | None = None
        self._cached_ids: list[int] = []
        self._num_answers = 0

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        """Seed the sampling; a student is told nothing else about its task."""
        self._generator.manual_seed(seed)
        self._cache, self._cached_ids, self._num_answers = None, [], 0

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The student's next turn. Raises ContextLimitError if the conversation leaves no room for one."""
        started = time.perf_counter()
        tokenizer = self.student.tokenizer
        prompt = tokenize_prompt(tokenizer, messages, tools)
        room = self.max_context - len(prompt)
        if room <= 0:
            raise ContextLimitError(
                f"{self.student.name}: the conversation has {len(prompt)} tokens and the context {self.max_context}"
            )
        with self.student.lock:
            num_cached = self._keep_common_prefix(prompt)
            new_ids = list(self._generate(prompt[num_cached:], min(room, self.sampling.max_new_tokens)))
        text = tokenizer.decode(new_ids, skip_special_tokens=False).removesuffix(END_OF_TURN)
        self._num_answers += 1
        message = parse_assistant_text(
            text, call_id_prefix=f"call_{self._num_answers}", reasoning_is_open=self._reasoning_is_open
        )
        message.finish_reason = "stop" if new_ids[-1] in self._stop_ids else "length"
        message.usage = Usage(
            input_tokens=len(prompt),
            output_tokens=len(new_ids),
            cached_tokens=num_cached,
            latency_s=time.perf_counter() - started,
        )
        return message

    def describe(self) -> dict[str, Any]:
        """For the record."""
        return {
            "kind": "transformers",
            "model": self.student.name,
            "dtype": str(self.student.model.dtype),
            "num_parameters": self.student.model.num_parameters(),
            "sampling": self.sampling.model_dump(),
        }

    def _keep_common_prefix(self, prompt: list[int]) -> int:
        """Cut the cache to what it shares with prompt, leaving at least one token to read; return its length."""
        from transformers import DynamicCache

        shared = 0
        limit = min(len(prompt) - 1, len(self._cached_ids))
        while shared < limit and prompt[shared] == self._cached_ids[shared]:
            shared += 1
        if self._cache is None or shared == 0:
            self._cache, shared = DynamicCache(config=self.student.model.config), 0
        elif shared < len(self._cached_ids):
            # a negative number of tokens to remove: newer transformers refuse the length to keep
            self._cache.crop(shared - len(self._cached_ids))
        self._cached_ids = prompt[:shared]
        return shared

    @torch.inference_mode()
    def _generate(self, unread: list[int], max_new_tokens: int) -> Iterator[int]:
        """Token ids one by one, the stop token included. Not model.generate: that costs a small model threefold."""
        model = self.student.model
        step = unread
        for _ in range(max_new_tokens):
            ids = torch.tensor([step], device=model.device)
            output = model(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
            self._cached_ids += step
            token = self._choose(output.logits[0, -1])
            yield token
            if token in self._stop_ids:
                return
            step = [token]

    def _choose(self, logits: torch.Tensor) -> int:
        if self.sampling.temperature == 0:
            return int(logits.argmax())
        probabilities = torch.softmax(logits.float() / self.sampling.temperature, dim=-1)
        if self.sampling.top_p < 1:
            ordered, indices = probabilities.sort(descending=True)
            # a token stays while those before it hold less than top_p: the first one always does
            ordered[ordered.cumsum(0) - ordered >= self.sampling.top_p] = 0
            return int(indices[torch.multinomial(ordered, 1, generator=self._generator)])
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def _stop_ids(student: LoadedStudent) -> frozenset[int]:
    """Tokens that end a turn: what the checkpoint says, and the template's own end of turn."""
    stated = student.model.generation_config.eos_token_id
    ids = {stated} if isinstance(stated, int) else set(stated or ())
    if student.tokenizer.eos_token_id is not None:
        ids.add(student.tokenizer.eos_token_id)
    return frozenset(ids)
