"""Paged decode behind graph-capture buckets: the batch is filled up to the next captured size with empty requests."""
import bisect

import torch
import triton
import triton.language as tl

CAPTURED = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256]


@triton.jit
def whole_request(Q, KC, VC, PAGES, LENS, OUT, width, scale, H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    req = tl.program_id(0)
    h = tl.program_id(1)
    n = tl.load(LENS + req)
    d = tl.arange(0, D)
    slot = tl.arange(0, PAGE)
    q = tl.load(Q + (req * H + h) * D + d).to(tl.float32) * scale
    top = -1.0e38
    den = 0.0
    num = tl.zeros([D], tl.float32)
    for i in range(tl.cdiv(n, PAGE)):
        page = tl.load(PAGES + req * width + i)
        ok = i * PAGE + slot < n
        at = ((page * PAGE + slot)[:, None] * H + h) * D + d[None, :]
        k = tl.load(KC + at, mask=ok[:, None], other=0.0).to(tl.float32)
        v = tl.load(VC + at, mask=ok[:, None], other=0.0).to(tl.float32)
        s = tl.where(ok, tl.sum(k * q[None, :], 1), -1.0e38)
        top2 = tl.maximum(top, tl.max(s, 0))
        r = tl.exp(top - top2)
        w = tl.where(ok, tl.exp(s - top2), 0.0)
        num = num * r + tl.sum(w[:, None] * v, 0)
        den = den * r + tl.sum(w, 0)
        top = top2
    tl.store(OUT + (req * H + h) * D + d, num / tl.maximum(den, 1.0e-30))


class StaticBuffers:
    """Inputs of one captured size."""

    def __init__(self, size, q, tables):
        self.size = size
        self.q = q.new_zeros((size, *q.shape[1:]))
        self.tables = tables.new_zeros((size, tables.shape[1]))
        self.lens = tables.new_zeros(size)
        self.out = torch.zeros((size, *q.shape[1:]), dtype=torch.float32, device=q.device)

    def fill(self, q, tables, lens):
        n = q.shape[0]
        self.q[:n].copy_(q)
        self.tables[:n].copy_(tables)
        self.lens[:n].copy_(lens)
        self.lens[n:].zero_()


def bucket(batch_size):
    at = bisect.bisect_left(CAPTURED, batch_size)
    return CAPTURED[at] if at < len(CAPTURED) else batch_size


def run(q, k_cache, v_cache, tables, lens):
    batch_size, H, D = q.shape
    buf = StaticBuffers(bucket(batch_size), q, tables)
    buf.fill(q, tables, lens)
    whole_request[(buf.size, H)](buf.q, k_cache, v_cache, buf.tables, buf.lens, buf.out, tables.shape[1], D**-0.5,
                                 H=H, D=D, PAGE=k_cache.shape[1], num_warps=4)
    return buf.out[:batch_size].clone()
