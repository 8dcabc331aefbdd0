"""Attention of rows that lie one after another without padding: each row sees itself alone, through torch's kernels.

A kernel is not assumed to be the quickest: `choose_kernel` runs those that this GPU has, forward and backward, at the
run's own heads and length, and keeps the winner (cuDNN's on Hopper is usually ahead of FlashAttention 2's in torch).
FlashAttention as a package is used where student.attn_implementation names it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional

if TYPE_CHECKING:
    from torch.nn.attention import SDPBackend
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)

NAME = "passwright_rows"
"""As transformers knows it (attn_implementation)."""
MAX_PROBE_LENGTH = 8192
"""Tokens at which kernels are compared: their order does not change above, and the probe stays below a second."""
_PROBE_RUNS = 5


@dataclass(frozen=True)
class Kernel:
    """The kernel behind scaled_dot_product_attention, and how it was chosen."""

    name: str
    reason: str
    shares_heads: bool = True
    """Whether it reads grouped key and value heads as they are; else they are repeated."""

    @property
    def backend(self) -> SDPBackend | None:
        return _backends().get(self.name)


TORCHS_CHOICE = Kernel("torch", "torch's own choice")


def register(kernel: Kernel, *, name: str = NAME) -> None:
    """Make transformers' models take `rows_attention` under this name, with this kernel."""
    from transformers import AttentionInterface

    AttentionInterface.register(name, partial(rows_attention, kernel=kernel))


def is_usable(config: PreTrainedConfig) -> bool:
    """Whether every layer of the model attends to the whole row, with no window, sink or cap on the scores."""
    text = config.get_text_config()
    layers = set(getattr(text, "layer_types", None) or ["full_attention"])
    is_windowed = bool(getattr(text, "sliding_window", None)) and getattr(text, "use_sliding_window", True)
    return layers == {"full_attention"} and not is_windowed and not getattr(text, "attn_logit_softcapping", None)


def rows_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    row_lengths: Sequence[int] | None = None,
    kernel: Kernel = TORCHS_CHOICE,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each row.

    query: [1, heads, tokens, head_dim]; key, value with the key-value heads. row_lengths: tokens of the rows, in order;
    None: one row (a batch of several is then one row each). Returns [batch, tokens, heads, head_dim].
    """
    if attention_mask is not None or query.shape[2] != key.shape[2]:
        raise ValueError(f"{NAME} is for training on whole rows: it takes neither a mask nor a cache")
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and not kernel.shares_heads:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    options: dict[str, Any] = {
        "dropout_p": dropout,
        "is_causal": True,
        "scale": scaling,
        "enable_gqa": groups > 1 and kernel.shares_heads,
    }
    with _only(kernel.backend):
        if row_lengths is None or len(row_lengths) == 1:
            output = functional.scaled_dot_product_attention(query, key, value, **options)
        else:
            lengths = list(row_lengths)
            lengths[-1] += query.shape[2] - sum(
                lengths
            )  # padding at the end belongs to the last row: none attends to it
            parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
            output = torch.cat([functional.scaled_dot_product_attention(*part, **options) for part in parts], dim=2)
    return output.transpose(1, 2), None


@dataclass(frozen=True)
class _Timing:
    """Seconds of one layer's forward and backward pass at the probe's length."""

    steady: float
    first: float
    """Of the first pass at a length that the kernel has not seen: cuDNN plans each length anew."""

    def row_s(self, num_layers: int, growth: float) -> float:
        """Of a row of a new length through all layers. growth: pairs of its tokens over those of the probe."""
        return self.steady * growth * num_layers + max(0.0, self.first - self.steady)


def choose_kernel(
    device: torch.device,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    num_layers: int,
    length: int,
    dtype: torch.dtype,
) -> Kernel:
    """The kernel of this device that takes a row of such a length, new to it, through the layers first.

    On a CPU torch's own choice.
    """
    if device.type != "cuda":
        return TORCHS_CHOICE
    probed = min(length, MAX_PROBE_LENGTH)
    growth = (length / probed) ** 2
    timings: dict[tuple[str, bool], _Timing] = {}
    for name, backend in _backends().items():
        for shares_heads in (True, False):
            heads = (num_heads, num_kv_heads if shares_heads else num_heads)
            timing = _probe(backend, heads, head_dim, probed, device, dtype)
            if timing is not None:
                timings[name, shares_heads] = timing
            if num_heads == num_kv_heads:
                break
    if not timings:
        return TORCHS_CHOICE
    ranked = sorted(timings.items(), key=lambda item: item[1].row_s(num_layers, growth))
    shown = ", ".join(
        f"{name}{'' if shared else ' with repeated heads'} {t.steady * 1e3:.2f} ms ({t.first * 1e3:.0f} at first)"
        for (name, shared), t in ranked
    )
    (name, shares_heads), _ = ranked[0]
    return Kernel(name, f"forward and backward of one layer at {probed} tokens: {shown}", shares_heads)


def _probe(
    backend: SDPBackend, heads: tuple[int, int], head_dim: int, length: int, device: torch.device, dtype: torch.dtype
) -> _Timing | None:
    """Passes at one length until warm, then one at another; None if the kernel does not run here."""
    generator = torch.Generator(device=device).manual_seed(0)
    taken = []
    try:
        for tokens in [length] * _PROBE_RUNS + [max(1, length - 64)]:
            query, key, value = (
                torch.randn(
                    (1, count, tokens, head_dim), device=device, dtype=dtype, generator=generator
                ).requires_grad_()
                for count in (heads[0], heads[1], heads[1])
            )
            torch.cuda.synchronize(device)
            started = time.perf_counter()
            with _only(backend):
                output = functional.scaled_dot_product_attention(
                    query, key, value, is_causal=True, enable_gqa=heads[0] != heads[1]
                )
            output.backward(output.detach())
            torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - started)
    except (RuntimeError, NotImplementedError) as error:
        logger.debug("attention kernel %s: %s", backend, error)
        return None
    return _Timing(steady=min(taken[:-1]), first=taken[-1])


def _backends() -> Mapping[str, SDPBackend]:
    from torch.nn.attention import SDPBackend

    return {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def _only(backend: SDPBackend | None) -> AbstractContextManager[None]:
    from torch.nn.attention import sdpa_kernel

    return nullcontext() if backend is None else sdpa_kernel(backend)
