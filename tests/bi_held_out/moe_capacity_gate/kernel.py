"""Switch-style layer of scalar experts: each expert takes as many tokens as its capacity, the rest pass through."""
import math

import torch
import triton
import triton.language as tl

FACTOR = 1.0


@triton.jit
def _place(expert_ptr, rank_ptr, T, BLOCK: tl.constexpr):
    e = tl.program_id(0)
    seen = 0
    for s in range(0, T, BLOCK):
        i = s + tl.arange(0, BLOCK)
        hit = tl.load(expert_ptr + i, mask=i < T, other=-1) == e
        c = tl.cumsum(hit.to(tl.int32), 0)
        tl.store(rank_ptr + i, seen + c - 1, mask=hit & (i < T))
        seen += tl.sum(hit.to(tl.int32), 0)


@triton.jit
def _apply(x_ptr, scale_ptr, expert_ptr, rank_ptr, y_ptr, capacity, D: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    e = tl.load(expert_ptr + t)
    kept = tl.load(rank_ptr + t) < capacity
    d = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + t * D + d, mask=d < D, other=0.0)
    s = tl.load(scale_ptr + e * D + d, mask=d < D, other=0.0)
    y = tl.where(kept, x * s * tl.sigmoid(x), x)
    tl.store(y_ptr + t * D + d, y, mask=d < D)


class Switch(torch.nn.Module):
    def __init__(self, factor=FACTOR):
        super().__init__()
        self.factor = factor

    def room(self, tokens, experts):
        return max(1, math.ceil(self.factor * tokens / experts))

    def forward(self, x, router, scale):
        t, d = x.shape
        experts = scale.shape[0]
        chosen = router.argmax(dim=-1).to(torch.int32)
        rank = torch.empty(t, device=x.device, dtype=torch.int32)
        _place[(experts,)](chosen, rank, t, 128)
        y = torch.empty_like(x)
        _apply[(t,)](x, scale, chosen, rank, y, self.room(t, experts), d, triton.next_power_of_2(d))
        return y


def run(x, router, scale):
    return Switch()(x, router, scale)
