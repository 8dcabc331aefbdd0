"""Multi-query decode with splits from the cache's length alone; the merge kernel walks the splits in order."""
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl


@triton.jit
def _split_attn(q_ptr, kv_ptr, po_ptr, pm_ptr, pd_ptr, S, scale, H: tl.constexpr, D: tl.constexpr,
                num_splits: tl.constexpr, SPAN: tl.constexpr, BN: tl.constexpr):
    bh, sp = tl.program_id(0), tl.program_id(1)
    b = bh // H
    d = tl.arange(0, D)
    q = tl.load(q_ptr + bh * D + d).to(tl.float32)
    m = -1.0e30
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for i in range(0, SPAN, BN):
        n = sp * SPAN + i + tl.arange(0, BN)
        kv = tl.load(kv_ptr + (b * S + n)[:, None] * D + d[None, :], mask=(n < S)[:, None], other=0.0).to(tl.float32)
        s = tl.where(n < S, tl.sum(q[None, :] * kv, 1) * scale, -1.0e30)
        mn = tl.maximum(m, tl.max(s, 0))
        p = tl.where(n < S, tl.exp(s - mn), 0.0)
        acc = acc * tl.exp(m - mn) + tl.sum(p[:, None] * kv, 0)
        den = den * tl.exp(m - mn) + tl.sum(p, 0)
        m = mn
    at = bh * num_splits + sp
    tl.store(po_ptr + at * D + d, acc)
    tl.store(pm_ptr + at, m)
    tl.store(pd_ptr + at, den)


@triton.jit
def _merge(po_ptr, pm_ptr, pd_ptr, out_ptr, D: tl.constexpr, num_splits: tl.constexpr):
    bh = tl.program_id(0)
    d = tl.arange(0, D)
    m = -1.0e30
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(num_splits):
        ms = tl.load(pm_ptr + bh * num_splits + s)
        mn = tl.maximum(m, ms)
        acc = acc * tl.exp(m - mn) + tl.load(po_ptr + (bh * num_splits + s) * D + d) * tl.exp(ms - mn)
        den = den * tl.exp(m - mn) + tl.load(pd_ptr + bh * num_splits + s) * tl.exp(ms - mn)
        m = mn
    tl.store(out_ptr + bh * D + d, (acc / den).to(tl.float16))


@dataclass
class Wrapper:
    span: int = 128
    spaces: dict = field(default_factory=dict)

    def scratch(self, name, *shape, device):
        key = (name, shape)
        if key not in self.spaces:
            self.spaces[key] = torch.empty(shape, device=device, dtype=torch.float32)
        return self.spaces[key]

    def forward(self, q, kv):
        batch, heads, dim = q.shape
        cache_len = kv.size(1)
        num_splits = -(-cache_len // self.span)
        rows = batch * heads
        po = self.scratch("o", rows, num_splits, dim, device=q.device)
        pm = self.scratch("m", rows, num_splits, device=q.device)
        pd = self.scratch("d", rows, num_splits, device=q.device)
        out = torch.empty_like(q)
        _split_attn[(rows, num_splits)](q, kv, po, pm, pd, cache_len, dim**-0.5, heads, dim, num_splits, self.span, 32)
        _merge[(rows,)](po, pm, pd, out, dim, num_splits)
        return out


_wrapper = Wrapper()


def run(q, kv):
    return _wrapper.forward(q, kv)
