"""TransformersEngine: continuous batching with a transformers model in this process, for CPU, tests and small jobs
without vLLM.

A step is exactly one forward pass: the prompts that wait, together and padded on the left, or one token of every row.
So ranks whose weights are sharded (ZeRO-3, FSDP) stay together when each calls step() equally often.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from training.generation import Generated, GenerationRequest
from training.student_policy import SamplingConfig

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class _Row:
    """One request under way."""

    request: GenerationRequest
    generator: random.Random
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TransformersEngine:
    """Generates with the model's weights as they are now. Not thread-safe."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig | None = None,
        *,
        name: str = "",
        is_collective: bool = False,
        max_rows: int = 64,
        max_prefill_tokens: int = 32_768,
    ) -> None:
        """model: unwrapped, with whole weights (unwrap_model_for_generation), or is_collective=True.

        sampling: its temperature, top_p and max_context; max_new_tokens is each request's own. max_rows: requests
        under way at a time; max_prefill_tokens: of the prompts read in one step, padding included (one always fits).
        """
        self.model, self.tokenizer = model, tokenizer
        self.sampling = sampling or SamplingConfig(temperature=1.0)
        self.is_collective, self.process_group = is_collective, None
        positions = model.config.get_text_config().max_position_embeddings
        self.max_model_len = min(self.sampling.max_context or positions, positions)
        self._name = name or str(model.config.name_or_path)
        self._max_rows, self._max_prefill_tokens = max_rows, max_prefill_tokens
        self._stop_ids = stop_token_ids(model, tokenizer)
        self._waiting: deque[GenerationRequest] = deque()
        self._rows: list[_Row] = []
        self._cache: DynamicCache | None = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)
        """(rows, cached tokens): 0 where a row is padded on the left."""

    def submit(self, request: GenerationRequest) -> None:
        self._waiting.append(request)

    def step(self) -> list[Generated]:
        """One forward pass."""
        with _evaluating(self.model), torch.no_grad():
            if self._waiting and len(self._rows) < self._max_rows:
                return self._read_prompts()
            if self._rows:
                return self._next_tokens()
            if self.is_collective:
                self._forward(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.long), None)
        return []

    def cancel(self, key: str) -> None:
        self._waiting = deque(request for request in self._waiting if request.key != key)
        self._keep([index for index, row in enumerate(self._rows) if row.request.key != key])

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "transformers",
            "model": self._name,
            "dtype": str(self.model.dtype),
            "sampling": self.sampling.model_dump(include={"temperature", "top_p"}),
        }

    def _read_prompts(self) -> list[Generated]:
        """The prompts that wait, as many as are allowed; each gets its first token."""
        rows: list[_Row] = []
        longest = 0
        while self._waiting and len(self._rows) + len(rows) < self._max_rows:
            longest = max(longest, len(self._waiting[0].prompt_ids))
            if rows and longest * (len(rows) + 1) > self._max_prefill_tokens:
                break
            request = self._waiting.popleft()
            rows.append(_Row(request, random.Random(request.seed)))
        longest = max(len(row.request.prompt_ids) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            prompt = torch.tensor(row.request.prompt_ids, dtype=torch.long)
            ids[index, longest - len(prompt) :] = prompt
            mask[index, longest - len(prompt) :] = 1
        from transformers import DynamicCache

        mask = mask.to(self.model.device)
        cache = DynamicCache()  # without a configuration: whole layers, which rows can join, in models with windows too
        logits = self._forward(ids, mask, cache)
        self._join(rows, cache, mask)
        return self._add_tokens(rows, logits)

    def _next_tokens(self) -> list[Generated]:
        """One token of every row."""
        last = torch.tensor([[row.ids[-1]] for row in self._rows], dtype=torch.long)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._rows), 1)], dim=1)
        logits = self._forward(last, self._mask, self._cache)
        return self._add_tokens(self._rows, logits)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, cache: DynamicCache | None) -> torch.Tensor:
        """Logits after the last token of each row, (rows, vocabulary), float32."""
        device = self.model.device
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _add_tokens(self, rows: Sequence[_Row], logits: torch.Tensor) -> list[Generated]:
        """Choose a token for each row; take out and return the rows that it ends."""
        tokens, logprobs = choose(logits, [row.generator.random() for row in rows], self.sampling)
        finished = []
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            if token in self._stop_ids or token in row.request.stop_token_ids:
                finished.append(Generated(row.request.key, row.ids, row.logprobs, "stop"))
            elif len(row.ids) >= row.request.max_new_tokens:
                finished.append(Generated(row.request.key, row.ids, row.logprobs, "length"))
        if finished:
            ended = {generated.key for generated in finished}
            self._keep([index for index, row in enumerate(self._rows) if row.request.key not in ended])
        return finished

    def _join(self, rows: list[_Row], cache: DynamicCache, mask: torch.Tensor) -> None:
        """Put new rows beside those under way; the shorter side gets more padding on its left."""
        if self._cache is not None:
            own, new = self._mask.shape[1], mask.shape[1]
            length = max(own, new)
            for layer, other in zip(self._cache.layers, cache.layers, strict=True):
                for name in ("keys", "values"):
                    parts = (getattr(layer, name), getattr(other, name))
                    setattr(layer, name, torch.cat([_pad_left(part, length, dim=-2) for part in parts]))
            self._mask = torch.cat([_pad_left(self._mask, length, dim=-1), _pad_left(mask, length, dim=-1)])
        else:
            self._cache, self._mask = cache, mask
        self._rows += rows

    def _keep(self, indices: list[int]) -> None:
        """Drop the other rows, and the columns that are padding in all that stay."""
        if len(indices) == len(self._rows):
            return
        self._rows = [self._rows[index] for index in indices]
        if not self._rows:
            self._cache = None
            return
        assert self._cache is not None
        kept = torch.tensor(indices, device=self._mask.device)
        mask = self._mask[kept]
        first = int(mask.any(0).nonzero()[0])
        self._mask = mask[:, first:]
        for layer in self._cache.layers:
            for name in ("keys", "values"):
                tensor = getattr(layer, name)
                setattr(layer, name, tensor.index_select(0, kept.to(tensor.device))[:, :, first:].contiguous())


def choose(logits: torch.Tensor, uniform: Sequence[float], sampling: SamplingConfig) -> tuple[list[int], list[float]]:
    """A token for each row of logits (rows, vocabulary) and the logarithm of its probability.

    uniform: a number in [0, 1) for each row, so that a row's choice does not depend on the rows beside it.
    """
    if sampling.temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
        return tokens[:, 0].tolist(), logits.log_softmax(-1).gather(1, tokens)[:, 0].tolist()
    probabilities = (logits / sampling.temperature).double().softmax(-1)
    indices = None
    if sampling.top_p < 1:
        probabilities, indices = probabilities.sort(dim=-1, descending=True)
        # a token stays while those before it hold less than top_p: the first one always does
        probabilities[probabilities.cumsum(-1) - probabilities >= sampling.top_p] = 0
        probabilities /= probabilities.sum(-1, keepdim=True)
    sums = probabilities.cumsum(-1)
    total = sums[:, -1:]
    drawn = torch.tensor(uniform, dtype=sums.dtype, device=sums.device)[:, None] * total
    # below the total also where the product was rounded up: the first sum above it is then of a token that can be drawn
    drawn = torch.minimum(drawn, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(sums, drawn, right=True)
    logprobs = probabilities.gather(1, places).log()[:, 0].tolist()
    return (places if indices is None else indices.gather(1, places))[:, 0].tolist(), logprobs


def stop_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end an answer: what the checkpoint says, and the tokenizer's end of turn."""
    stated = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = {stated} if isinstance(stated, int) else set(stated or ())
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def _pad_left(tensor: torch.Tensor, length: int, *, dim: int) -> torch.Tensor:
    missing = length - tensor.shape[dim]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    return torch.cat([tensor.new_zeros(shape), tensor], dim=dim)


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Without dropout, whatever mode the trainer has left the model in."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()
