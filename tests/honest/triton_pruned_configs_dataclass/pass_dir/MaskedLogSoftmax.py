from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any, Sequence

import torch
import triton
import triton.language as tl


class Width(IntEnum):
    NARROW = 1024
    WIDE = 16384


@dataclasses.dataclass(frozen=True)
class Problem:
    batch: int
    heads: int
    cols: int

    @classmethod
    def of(cls, x: torch.Tensor) -> "Problem":
        return cls(*x.shape)

    @property
    def width(self) -> Width:
        return Width.NARROW if self.cols <= Width.NARROW else Width.WIDE


def drop_wide_blocks(configs: Sequence[triton.Config], named_args: dict[str, Any], **kwargs: Any) -> list[triton.Config]:
    """More than one warp for each 32 columns only waits."""
    cols = named_args["cols"]
    kept = [c for c in configs if c.num_warps * 32 <= max(cols, 32)]
    return kept or list(configs[:1])


@triton.autotune(
    configs=[triton.Config({}, num_warps=1), triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)],
    key=["cols"],
    prune_configs_by={"early_config_prune": drop_wide_blocks},
)
@triton.jit
def masked_log_softmax_kernel(x, mask, y, heads, cols, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    banned = tl.load(mask + pid // heads * cols + c, mask=inside, other=1) != 0
    v = tl.load(x + pid * cols + c, mask=inside, other=0.0)
    v = tl.where(banned, float("-inf"), v)
    v = v - tl.max(v, 0)
    v = v - tl.log(tl.sum(tl.exp(v), 0))
    tl.store(y + pid * cols + c, v, mask=inside)


@torch.fx.wrap
def masked_log_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    problem = Problem.of(x)
    if problem.cols > int(Width.WIDE):
        raise NotImplementedError(f"rows of {problem.cols} columns ({problem.width.name}) do not fit into registers")
    y = torch.empty_like(x)
    block = triton.next_power_of_2(problem.cols)
    # bool tensors are read as bytes
    grid = (problem.batch * problem.heads,)
    masked_log_softmax_kernel[grid](x, mask.view(torch.uint8), y, problem.heads, problem.cols, BLOCK=block)
    return y


def pattern(x, mask):
    filled = x.masked_fill(mask, float("-inf"))
    return torch.nn.functional.log_softmax(filled, dim=-1)


def replacement_args(x, mask):
    return (x, mask)


def replacement_func():
    return masked_log_softmax
