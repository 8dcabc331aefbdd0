"""Row softmax with two modes, chosen by an enum: one wide block a row, or an online sweep in narrow blocks."""
import enum

import torch
import triton
import triton.language as tl


class Mode(enum.Enum):
    WIDE = "wide"
    SWEEP = "sweep"

    @classmethod
    def pick(cls, shape):
        lines, columns = shape
        if columns > 16384:
            return cls.SWEEP
        return cls.WIDE if lines * columns <= 200_000 else cls.SWEEP


@triton.jit
def _wide(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + c, e / tl.sum(e, axis=0), mask=c < N)


@triton.jit
def _sweep(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for s in range(0, N, BLOCK):
        x = tl.load(x_ptr + row * N + s + c, mask=s + c < N, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    for s in range(0, N, BLOCK):
        x = tl.load(x_ptr + row * N + s + c, mask=s + c < N, other=-float("inf"))
        tl.store(y_ptr + row * N + s + c, tl.exp(x - m) / d, mask=s + c < N)


_IMPL = {
    Mode.WIDE: lambda x, y: _wide[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]), num_warps=8),
    Mode.SWEEP: lambda x, y: _sweep[(x.shape[0],)](x, y, x.shape[1], 512, num_warps=4),
}


def run(logits):
    out = torch.empty_like(logits)
    _IMPL[Mode.pick(logits.shape)](logits, out)
    return out
