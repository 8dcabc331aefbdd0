from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@triton.jit
def split_fwd(q_ptr, k_ptr, v_ptr, tab, lens, acc_ptr, ml_ptr, max_pages, scale,
              H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, NS: tl.constexpr):
    b = tl.program_id(0)
    ns = tl.program_id(1)
    hh = tl.arange(0, 16)
    dd = tl.arange(0, D)
    tok = tl.arange(0, PAGE)
    n = tl.load(lens + b)
    num_pages = tl.cdiv(n, PAGE)
    pages_each = tl.cdiv(num_pages, NS)
    q = tl.load(q_ptr + (b * H + hh[:, None]) * D + dd[None, :], mask=(hh < H)[:, None], other=0.0)
    m = tl.full((16,), -1e38, tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for pi in range(ns * pages_each, tl.minimum((ns + 1) * pages_each, num_pages)):
        page = tl.load(tab + b * max_pages + pi)
        ok = pi * PAGE + tok < n
        k = tl.load(k_ptr + (page * PAGE + tok)[None, :] * D + dd[:, None])
        v = tl.load(v_ptr + (page * PAGE + tok)[:, None] * D + dd[None, :])
        x = tl.where(ok[None, :], tl.dot(q, k) * scale, -1e38)
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.where(ok[None, :], tl.exp(x - m1[:, None]), 0.0)
        f = tl.exp(m - m1)
        acc = acc * f[:, None] + tl.dot(p.to(tl.float16), v)
        l = l * f + tl.sum(p, 1)
        m = m1
    at = (b * NS + ns) * H + hh
    tl.store(acc_ptr + at[:, None] * D + dd[None, :], acc, mask=(hh < H)[:, None])
    tl.store(ml_ptr + at * 2, m, mask=hh < H)
    tl.store(ml_ptr + at * 2 + 1, l, mask=hh < H)


@triton.jit
def split_merge(acc_ptr, ml_ptr, o_ptr, H: tl.constexpr, D: tl.constexpr, NS: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    dd = tl.arange(0, D)
    top = -1e38
    for ns in range(NS):
        top = tl.maximum(top, tl.load(ml_ptr + ((b * NS + ns) * H + h) * 2))
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for ns in range(NS):
        at = (b * NS + ns) * H + h
        w = tl.exp(tl.load(ml_ptr + at * 2) - top)
        den += w * tl.load(ml_ptr + at * 2 + 1)
        acc += w * tl.load(acc_ptr + at * D + dd)
    tl.store(o_ptr + (b * H + h) * D + dd, acc / den)


@dataclass
class ForwardMetadata:
    num_kv_splits: int
    attn_acc: torch.Tensor
    attn_ml: torch.Tensor


class TritonBackend:
    def __init__(self, num_heads, head_dim, device):
        self.num_heads, self.head_dim, self.device = num_heads, head_dim, device
        self.max_splits = 8
        self.forward_metadata = None

    def init_forward_metadata(self, seq_lens):
        bs = len(seq_lens)
        splits = self.max_splits
        if bs > 16:
            splits = self.max_splits // 2
        if bs > 64:
            splits = self.max_splits // 4
        acc = torch.empty((bs, splits, self.num_heads, self.head_dim), dtype=torch.float32, device=self.device)
        ml = torch.empty((bs, splits, self.num_heads, 2), dtype=torch.float32, device=self.device)
        self.forward_metadata = ForwardMetadata(splits, acc, ml)

    def forward_decode(self, q, k_pool, v_pool, table, seq_lens):
        meta = self.forward_metadata
        b, H, D = q.shape
        split_fwd[(b, meta.num_kv_splits)](
            q, k_pool, v_pool, table, seq_lens, meta.attn_acc, meta.attn_ml, table.shape[1], D**-0.5,
            H=H, D=D, PAGE=k_pool.shape[1], NS=meta.num_kv_splits)
        o = torch.empty((b, H, D), dtype=torch.float32, device=q.device)
        split_merge[(b, H)](meta.attn_acc, meta.attn_ml, o, H=H, D=D, NS=meta.num_kv_splits)
        return o


def run(q, k_pool, v_pool, table, seq_lens):
    backend = TritonBackend(q.shape[1], q.shape[2], q.device)
    backend.init_forward_metadata(seq_lens)
    return backend.forward_decode(q, k_pool, v_pool, table, seq_lens)
