"""Elementwise parts of a decoder layer as one compiled kernel each: RMS norms, rotary positions, the gate of the MLP.

Eager, they move four times as much memory as they need and keep float32 copies for the backward pass. Only functions
of tensors are compiled: linear layers, hooks, adapters and sharding stay as they are. A module is changed only if its
class is listed here (their forward passes are the same in all of these families), and is itself again afterwards.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

_FAMILIES = ("Qwen2", "Qwen3", "Qwen3Moe", "Llama", "Mistral")
NORM_CLASSES = frozenset(f"{family}RMSNorm" for family in _FAMILIES)
GATE_CLASSES = frozenset(f"{family}MLP" for family in _FAMILIES)
RECOMPILE_LIMIT = 64
"""torch's own 8 is one for each of norms, heads, first lengths and evaluation, and then it goes back to eager."""


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """hidden: [..., width], weight: [width]. The mean square in float32, the rest as transformers rounds it."""
    wide = hidden.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(hidden.dtype)


def gate(gated: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gated) * up, of equal shapes."""
    return functional.silu(gated) * up


def rotate(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary positions: query and key [batch, heads, tokens, head_dim], cos and sin [batch, tokens, head_dim]."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return _turn(query, cos, sin), _turn(key, cos, sin)


def _turn(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


@contextmanager
def fused(model: PreTrainedModel, *, compiled: bool = True) -> Iterator[dict[str, int]]:
    """Within the block the model's layers use these; yields how many of each were replaced.

    compiled: False leaves the functions to eager torch (the same numbers, for tests).
    """
    build = _compile if compiled else _plain
    undo: list[Callable[[], None]] = []
    counts = {"norms": 0, "gates": 0, "rotations": 0}
    norm, gated = build(rms_norm), build(gate)
    try:
        for module in model.modules():
            name = type(module).__name__
            if name in NORM_CLASSES:
                undo.append(_replace(module, "forward", _norm_forward(module, norm)))
                counts["norms"] += 1
            elif name in GATE_CLASSES and _is_silu(module):
                undo.append(_replace(module, "forward", _gate_forward(module, gated)))
                counts["gates"] += 1
        modeling = importlib.import_module(type(model).__module__)
        if any(type(model).__name__.startswith(family) for family in _FAMILIES):
            undo.append(_replace(modeling, "apply_rotary_pos_emb", _rotation(build(rotate))))
            counts["rotations"] = 1
        yield counts
    finally:
        for step in reversed(undo):
            step()


def _norm_forward(module: Any, norm: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    epsilon = module.variance_epsilon

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        # two dimensions always: each shape more would be compiled again
        return norm(hidden.reshape(-1, hidden.shape[-1]), module.weight, epsilon).view(hidden.shape)

    return forward


def _gate_forward(module: Any, gated: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(hidden: torch.Tensor) -> torch.Tensor:
        return module.down_proj(gated(module.gate_proj(hidden), module.up_proj(hidden)))

    return forward


def _rotation(turned: Callable[..., Any]) -> Callable[..., Any]:
    def apply_rotary_pos_emb(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *_: Any, **__: Any
    ) -> Any:
        return turned(q, k, cos, sin)

    return apply_rotary_pos_emb


def _is_silu(module: Any) -> bool:
    probe = torch.linspace(-3, 3, 7)
    return bool(torch.equal(module.act_fn(probe), functional.silu(probe)))


def _replace(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute; returns what puts back the state before."""
    had_own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before) if had_own else delattr(owner, name)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
    return torch.compile(function)
