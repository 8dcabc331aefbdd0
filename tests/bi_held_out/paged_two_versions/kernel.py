"""Paged decode with a one-pass and a partitioned version, picked by the amount of parallelism at hand."""
import torch
import triton
import triton.language as tl

PART = 128


@triton.jit
def _paged(q_ptr, kc_ptr, vc_ptr, bt_ptr, len_ptr, o_ptr, l_ptr, scale, max_blocks, H: tl.constexpr, D: tl.constexpr,
           PAGE: tl.constexpr, SPAN: tl.constexpr, NP: tl.constexpr):
    b, h, p = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n_ctx = tl.load(len_ptr + b)
    d = tl.arange(0, D)
    j = tl.arange(0, PAGE)
    q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32) * scale
    m = -1.0e30
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    lo = p * SPAN
    for t in range(lo, tl.minimum(lo + SPAN, n_ctx), PAGE):
        page = tl.load(bt_ptr + b * max_blocks + t // PAGE).to(tl.int64)
        off = ((page * PAGE + j) * H + h)[:, None] * D + d[None, :]
        ok = t + j < n_ctx
        s = tl.sum(tl.load(kc_ptr + off).to(tl.float32) * q[None, :], 1)
        s = tl.where(ok, s, -1.0e30)
        mn = tl.maximum(m, tl.max(s, 0))
        w = tl.where(ok, tl.exp(s - mn), 0.0)
        acc = acc * tl.exp(m - mn) + tl.sum(w[:, None] * tl.load(vc_ptr + off).to(tl.float32), 0)
        den = den * tl.exp(m - mn) + tl.sum(w, 0)
        m = mn
    at = (b * H + h) * NP + p
    tl.store(o_ptr + at * D + d, acc / tl.maximum(den, 1.0e-20))
    tl.store(l_ptr + at, m + tl.log(tl.maximum(den, 1.0e-20)))


def _v1(q, kc, vc, tables, lens):
    n, h, d = q.shape
    o = torch.empty((n, h, d), device=q.device, dtype=torch.float32)
    lse = torch.empty((n, h), device=q.device, dtype=torch.float32)
    width = tables.shape[1]
    _paged[(n, h, 1)](q, kc, vc, tables, lens, o, lse, d**-0.5, width, h, d, kc.shape[1], width * kc.shape[1], 1)
    return o


def _v2(q, kc, vc, tables, lens):
    n, h, d = q.shape
    width = tables.shape[1]
    parts = triton.cdiv(width * kc.shape[1], PART)
    o = torch.empty((n, h, parts, d), device=q.device, dtype=torch.float32)
    lse = torch.empty((n, h, parts), device=q.device, dtype=torch.float32)
    _paged[(n, h, parts)](q, kc, vc, tables, lens, o, lse, d**-0.5, width, h, d, kc.shape[1], PART, parts)
    top = lse.max(dim=-1, keepdim=True).values
    e = torch.exp(lse - top)
    return (o * (e / e.sum(-1, keepdim=True))[..., None]).sum(2)


def run(q, k_cache, v_cache, block_tables, context_lens):
    capacity = block_tables.shape[1] * k_cache.shape[1]
    use_v1 = capacity <= PART or q.shape[0] * q.shape[1] > 256
    impl = _v1 if use_v1 else _v2
    return impl(q, k_cache, v_cache, block_tables, context_lens)
