import logging

import torch
import triton
import triton.language as tl

logger = logging.getLogger("paged_backend")


@triton.jit
def paged_split(q_ptr, k_ptr, v_ptr, tab, lens, part, capacity, scale, num_splits, pages_per_split,
                H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    b = tl.program_id(0)
    sp = tl.program_id(1)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    t = tl.arange(0, PAGE)
    hm = h < H
    n = tl.load(lens + b)
    q = tl.load(q_ptr + (b * H + h[:, None]) * D + d[None, :], mask=hm[:, None], other=0.0)
    m = tl.full((16,), -1e38, tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for i in range(sp * pages_per_split, tl.minimum((sp + 1) * pages_per_split, tl.cdiv(n, PAGE))):
        page = tl.load(tab + b * capacity + i)
        ok = i * PAGE + t < n
        k = tl.load(k_ptr + (page * PAGE + t)[None, :] * D + d[:, None])
        v = tl.load(v_ptr + (page * PAGE + t)[:, None] * D + d[None, :])
        x = tl.where(ok[None, :], tl.dot(q, k) * scale, -1e38)
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.where(ok[None, :], tl.exp(x - m1[:, None]), 0.0)
        f = tl.exp(m - m1)
        acc = acc * f[:, None] + tl.dot(p.to(tl.float16), v)
        l = l * f + tl.sum(p, 1)
        m = m1
    at = part + ((b * num_splits + sp) * H + h) * (D + 2)
    tl.store(at[:, None] + d[None, :], acc, mask=hm[:, None])
    tl.store(at + D, m, mask=hm)
    tl.store(at + D + 1, l, mask=hm)


@triton.jit
def paged_merge(part, out, num_splits, H: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    m = -1e38
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for sp in range(num_splits):
        at = part + ((b * num_splits + sp) * H + h) * (D + 2)
        ms = tl.load(at + D)
        m1 = tl.maximum(m, ms)
        acc = acc * tl.exp(m - m1) + tl.load(at + d) * tl.exp(ms - m1)
        l = l * tl.exp(m - m1) + tl.load(at + D + 1) * tl.exp(ms - m1)
        m = m1
    tl.store(out + (b * H + h) * D + d, acc / l)


class PagedBackend:
    """Keeps one scratch buffer for each power-of-two batch, as a CUDA-graph runner would."""

    def __init__(self, heads, dim, page_capacity, device):
        self.heads, self.dim, self.device = heads, dim, device
        self.num_kv_splits = max(1, min(8, page_capacity // 4))
        self.pages_per_split = triton.cdiv(page_capacity, self.num_kv_splits)
        self.scratch = {}

    def prepare(self, bs):
        graph_bs = triton.next_power_of_2(bs)
        if graph_bs not in self.scratch:
            logger.info("scratch for batch %d, %d splits a row", graph_bs, self.num_kv_splits)
            shape = (graph_bs, self.num_kv_splits, self.heads, self.dim + 2)
            self.scratch[graph_bs] = torch.empty(shape, dtype=torch.float32, device=self.device)
        return self.scratch[graph_bs]

    def decode(self, q, k_pool, v_pool, table, lens):
        bs, H, D = q.shape
        part = self.prepare(bs)
        out = torch.empty((bs, H, D), dtype=torch.float32, device=q.device)
        paged_split[(bs, self.num_kv_splits)](q, k_pool, v_pool, table, lens, part, table.shape[1], D**-0.5,
                                              self.num_kv_splits, self.pages_per_split, H=H, D=D, PAGE=k_pool.shape[1])
        paged_merge[(bs, H)](part, out, self.num_kv_splits, H=H, D=D)
        return out


def run(q, k_pool, v_pool, table, lens):
    backend = PagedBackend(q.shape[1], q.shape[2], table.shape[1], q.device)
    return backend.decode(q, k_pool, v_pool, table, lens)
