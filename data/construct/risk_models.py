"""Graphs whose kernels tempt to depend on the batch (after BIEvolve's risks): one function each, with its inputs.

Attention with grouped, latent and selected keys, for prefill and decode, paged and ragged; linear attention; experts;
norms; sampling. References in plain torch: the order of every sum in them follows the row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Inputs = tuple[Tensor, ...]
BATCHES = (2, 5, 16)
"""Rows of the three graphs of a task."""
_NEGATIVE = -1e4


@dataclass(frozen=True)
class RiskTask:
    """One task: a function of tensors, and how its inputs are drawn for a number of rows."""

    task_id: str
    title: str
    family: str
    function: Callable[..., Tensor | tuple[Tensor, ...]]
    inputs: Callable[[int, torch.dtype], Inputs]


def _attend(scores: Tensor, values: Tensor) -> Tensor:
    return torch.matmul(torch.softmax(scores.float(), dim=-1).to(values.dtype), values)


def gqa_decode(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q: [B, Hkv, G, D], k and v: [B, Hkv, S, D]."""
    return _attend(torch.matmul(q, k.transpose(-1, -2)) * 0.125, v)


def gqa_prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q: [B, Hkv, G, T, D], k and v: [B, Hkv, 1, T, D], mask: [T, T] of zeros and large negatives."""
    return _attend(torch.matmul(q, k.transpose(-1, -2)) * 0.125 + mask, v)


def mla_decode(q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor) -> Tensor:
    """q: [B, H, R], q_rope: [B, H, P], latent: [B, S, R] (keys and values), k_rope: [B, S, P]."""
    scores = torch.matmul(q, latent.transpose(-1, -2)) + torch.matmul(q_rope, k_rope.transpose(-1, -2))
    return _attend(scores * 0.0721, latent)


def mla_prefill(q: Tensor, latent: Tensor, up_k: Tensor, up_v: Tensor, mask: Tensor) -> Tensor:
    """q: [B, H, T, D], latent: [B, 1, T, R], up_k and up_v: [H, R, D], mask: [T, T]."""
    k, v = torch.matmul(latent, up_k), torch.matmul(latent, up_v)
    return _attend(torch.matmul(q, k.transpose(-1, -2)) * 0.125 + mask, v)


def dsa_indexer(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """q: [B, H, D], k: [B, S, D], weights: [B, H] -> scores [B, S]: which keys a row attends to."""
    scores = torch.relu(torch.matmul(q, k.transpose(-1, -2)).float())
    return (scores * weights.unsqueeze(-1)).sum(dim=1)


def dsa_selected(q: Tensor, k: Tensor, v: Tensor, selected: Tensor) -> Tensor:
    """q: [B, H, D], k and v: [B, S, D], selected: [B, N, D] of int64, the chosen keys along S."""
    keys, values = torch.gather(k, 1, selected), torch.gather(v, 1, selected)
    return _attend(torch.matmul(q, keys.transpose(-1, -2)) * 0.125, values)


def kda_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """state: [B, H, K, V] in float32, q, k and gate: [B, H, K], v: [B, H, V], beta: [B, H]."""
    decayed = state * torch.exp(-F.softplus(gate.float())).unsqueeze(-1)
    known = (decayed * k.float().unsqueeze(-1)).sum(dim=-2)
    delta = (v.float() - known) * torch.sigmoid(beta.float()).unsqueeze(-1)
    after = decayed + k.float().unsqueeze(-1) * delta.unsqueeze(-2)
    return (after * q.float().unsqueeze(-1)).sum(dim=-2).to(q.dtype), after


def gated_delta_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """As kda_step with one gate a head, [B, H], and keys and queries of unit length."""
    q_unit, k_unit = F.normalize(q.float(), dim=-1), F.normalize(k.float(), dim=-1)
    decayed = state * torch.exp(-F.softplus(gate.float())).unsqueeze(-1).unsqueeze(-1)
    known = (decayed * k_unit.unsqueeze(-1)).sum(dim=-2)
    delta = (v.float() - known) * torch.sigmoid(beta.float()).unsqueeze(-1)
    after = decayed + k_unit.unsqueeze(-1) * delta.unsqueeze(-2)
    return (after * q_unit.unsqueeze(-1)).sum(dim=-2).to(q.dtype), after


def moe_router(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: [B, D], weight: [E, D], bias: [E] -> the experts' shares of each row, [B, E]."""
    scores = torch.softmax(F.linear(x, weight, bias).float(), dim=-1)
    return (scores / scores.sum(dim=-1, keepdim=True)).to(x.dtype)


def moe_combine(outputs: Tensor, shares: Tensor, shared: Tensor) -> Tensor:
    """outputs: [B, E, D] of every expert, shares: [B, E], shared: [B, D] of the shared expert."""
    return (outputs.float() * shares.float().unsqueeze(-1)).sum(dim=1).to(shared.dtype) + shared


def residual_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """x and residual: [B, D], weight: [D]."""
    total = x + residual
    wide = total.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    return weight * scaled.to(x.dtype), total


def head_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: [B, H, D], normalised over D, weight and bias: [D]."""
    return F.layer_norm(x, (128,), weight, bias, 1e-5)


def sampling_probabilities(logits: Tensor, temperature: Tensor, floor: Tensor) -> Tensor:
    """logits: [B, V], temperature and floor (of min-p): [B, 1] -> probabilities of what may be drawn."""
    shares = torch.softmax(logits.float() / (temperature.float().abs() + 0.5), dim=-1)
    allowed = shares >= torch.sigmoid(floor.float()) * shares.amax(dim=-1, keepdim=True)
    kept = torch.where(allowed, shares, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def paged_decode(q: Tensor, k_pages: Tensor, v_pages: Tensor, mask: Tensor) -> Tensor:
    """q: [B, H, 1, D], pages: [B, H, N, P, D] (N pages of P keys of each row), mask: [B, 1, 1, N * P]."""
    k, v = k_pages.flatten(2, 3), v_pages.flatten(2, 3)
    return _attend(torch.matmul(q, k.transpose(-1, -2)) * 0.125 + mask, v)


def ragged_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """hidden: [B, S, D], mask: [B, S, 1] of int64, 1 where a row has a token: the mean over a row's own tokens."""
    inside = mask.to(hidden.dtype)
    return (hidden * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1.0)


def ragged_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """scores: [B, H, S], mask: [B, 1, S], zero or a large negative beyond a row's length."""
    return torch.softmax(scores.float() + mask, dim=-1).to(scores.dtype)


def _normal(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], list[Tensor]]:
    return lambda dtype: [torch.randn(shape).to(dtype) for shape in shapes]


def _causal(length: int, dtype: torch.dtype) -> Tensor:
    return torch.full((length, length), _NEGATIVE).triu(1).to(dtype)


def _lengths(rows: int, length: int, dtype: torch.dtype) -> Tensor:
    """[rows, length] of 0 and a large negative: each row has its own length."""
    ends = torch.arange(1, rows + 1) * length // (rows + 1) + 1
    return torch.where(torch.arange(length) < ends[:, None], 0.0, _NEGATIVE).to(dtype)


def _plain(*shapes: Callable[[int], tuple[int, ...]]) -> Callable[[int, torch.dtype], Inputs]:
    return lambda rows, dtype: tuple(_normal(*(shape(rows) for shape in shapes))(dtype))


def _with(
    shapes: Callable[[int], list[tuple[int, ...]]], more: Callable[[int, torch.dtype], list[Tensor]]
) -> Callable[[int, torch.dtype], Inputs]:
    return lambda rows, dtype: (*_normal(*shapes(rows))(dtype), *more(rows, dtype))


def _state_inputs(heads: int, gate: tuple[int, ...]) -> Callable[[int, torch.dtype], Inputs]:
    def make(rows: int, dtype: torch.dtype) -> Inputs:
        vectors = _normal(*[(rows, heads, 64)] * 3, (rows, heads, *gate), (rows, heads))(dtype)
        return (torch.randn(rows, heads, 64, 64), *vectors)

    return make


RISK_TASKS = (
    RiskTask("gqa_decode", "Grouped-query attention, one new token", "attention.gqa", gqa_decode,
             _plain(lambda b: (b, 4, 4, 64), lambda b: (b, 4, 333, 64), lambda b: (b, 4, 333, 64))),
    RiskTask("gqa_prefill", "Grouped-query attention, causal prefill", "attention.prefill", gqa_prefill,
             _with(lambda b: [(b, 2, 4, 96, 64), (b, 2, 1, 96, 64), (b, 2, 1, 96, 64)],
                   lambda b, dtype: [_causal(96, dtype)])),
    RiskTask("mla_decode", "Multi-head latent attention, absorbed, one new token", "attention.mla", mla_decode,
             _plain(lambda b: (b, 8, 128), lambda b: (b, 8, 32), lambda b: (b, 300, 128), lambda b: (b, 300, 32))),
    RiskTask("mla_prefill", "Multi-head latent attention, expanded, causal prefill", "attention.mla", mla_prefill,
             _with(lambda b: [(b, 4, 64, 64), (b, 1, 64, 128), (4, 128, 64), (4, 128, 64)],
                   lambda b, dtype: [_causal(64, dtype)])),
    RiskTask("dsa_indexer", "Sparse attention: the indexer's scores", "attention.dsa", dsa_indexer,
             _plain(lambda b: (b, 16, 64), lambda b: (b, 500, 64), lambda b: (b, 16))),
    RiskTask("dsa_selected", "Sparse attention over selected keys", "attention.dsa", dsa_selected,
             _with(lambda b: [(b, 8, 64), (b, 256, 64), (b, 256, 64)],
                   lambda b, dtype: [torch.randint(0, 256, (b, 48, 1)).expand(b, 48, 64).contiguous()])),
    RiskTask("kda_step", "Kimi Delta Attention: one step of the recurrence", "linear_attention.kda", kda_step,
             _state_inputs(8, (64,))),
    RiskTask("gated_delta_step", "Gated DeltaNet: one step of the recurrence", "linear_attention.gated_deltanet",
             gated_delta_step, _state_inputs(8, ())),
    RiskTask("moe_router", "Mixture of experts: shares of each row", "moe", moe_router,
             _plain(lambda b: (b, 512), lambda b: (32, 512), lambda b: (32,))),
    RiskTask("moe_combine", "Mixture of experts: outputs weighed and added to the shared expert's", "moe", moe_combine,
             _plain(lambda b: (b, 8, 768), lambda b: (b, 8), lambda b: (b, 768))),
    RiskTask("residual_rms_norm", "Residual add and RMSNorm, the sum is an output too", "normalization",
             residual_rms_norm, _plain(lambda b: (b, 4096), lambda b: (b, 4096), lambda b: (4096,))),
    RiskTask("head_layer_norm", "LayerNorm over each head", "normalization", head_layer_norm,
             _plain(lambda b: (b, 16, 128), lambda b: (128,), lambda b: (128,))),
    RiskTask("sampling_probabilities", "Temperature, min-p and renormalised probabilities", "sampling",
             sampling_probabilities, _plain(lambda b: (b, 8000), lambda b: (b, 1), lambda b: (b, 1))),
    RiskTask("paged_decode", "Attention over pages of keys, each row its own length", "attention.paged", paged_decode,
             _with(lambda b: [(b, 8, 1, 64), (b, 8, 12, 16, 64), (b, 8, 12, 16, 64)],
                   lambda b, dtype: [_lengths(b, 192, dtype)[:, None, None]])),
    RiskTask("ragged_mean", "Mean over each row's own tokens", "reduction", ragged_mean,
             _with(lambda b: [(b, 200, 384)], lambda b, dtype: [(_lengths(b, 200, dtype) == 0).long()[..., None]])),
    RiskTask("ragged_softmax", "Softmax over each row's own length", "softmax", ragged_softmax,
             _with(lambda b: [(b, 8, 700)], lambda b, dtype: [_lengths(b, 700, dtype)[:, None]])),
)  # fmt: skip
