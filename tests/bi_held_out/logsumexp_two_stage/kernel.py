"""log-sum-exp over a vocabulary in two stages: the number of pieces follows the vocabulary."""
import math

import torch
import triton
import triton.language as tl

PIECE = 4096


@triton.jit
def _stage1(x_ptr, m_ptr, s_ptr, V, num_splits, PIECE: tl.constexpr):
    row, sp = tl.program_id(0), tl.program_id(1)
    o = sp * PIECE + tl.arange(0, PIECE)
    x = tl.load(x_ptr + row.to(tl.int64) * V + o, mask=o < V, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    tl.store(m_ptr + row * num_splits + sp, m)
    tl.store(s_ptr + row * num_splits + sp, tl.sum(tl.exp(x - m), axis=0))


@triton.jit
def _stage2(m_ptr, s_ptr, out_ptr, num_splits, P2: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, P2)
    ok = i < num_splits
    m = tl.load(m_ptr + row * num_splits + i, mask=ok, other=-float("inf"))
    s = tl.load(s_ptr + row * num_splits + i, mask=ok, other=0.0)
    top = tl.max(m, axis=0)
    tl.store(out_ptr + row, top + tl.log(tl.sum(s * tl.exp(m - top), axis=0)))


class Workspace:
    """Grows to the largest batch seen; contents are always rewritten before they are read."""

    def __init__(self):
        self.buf = None

    def get(self, n, device):
        if self.buf is None or self.buf.numel() < n:
            self.buf = torch.empty(max(n, 1 << 12), device=device, dtype=torch.float32)
        return self.buf[:n]


_ms, _ss = Workspace(), Workspace()


def run(logits):
    bsz, vocab = logits.shape
    num_splits = math.ceil(vocab / PIECE)
    m = _ms.get(bsz * num_splits, logits.device)
    s = _ss.get(bsz * num_splits, logits.device)
    out = torch.empty(bsz, device=logits.device, dtype=torch.float32)
    _stage1[(bsz, num_splits)](logits, m, s, vocab, num_splits, PIECE, num_warps=8)
    _stage2[(bsz,)](m, s, out, num_splits, triton.next_power_of_2(num_splits))
    return out
