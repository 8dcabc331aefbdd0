"""Two-stage decode attention; the planner lives in planner.py."""
import torch
import triton
import triton.language as tl

from planner import DecodePlan


@triton.jit
def _stage_one(Q, K, V, Lens, Mid, Lse, sm_scale, S, H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr,
               BLOCK_N: tl.constexpr, KV_PARTS: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    part = tl.program_id(2)
    kvh = h // (H // HKV)
    n = tl.load(Lens + b)
    span = tl.cdiv(tl.cdiv(n, KV_PARTS), BLOCK_N) * BLOCK_N
    lo = span * part
    hi = tl.minimum(lo + span, n)
    offs_d = tl.arange(0, D)
    q = tl.load(Q + (b * H + h) * D + offs_d).to(tl.float32)
    m_i = -float("inf")
    l_i = 0.0
    acc = tl.zeros([D], tl.float32)
    if hi > lo:
        for start in range(lo, hi, BLOCK_N):
            t = start + tl.arange(0, BLOCK_N)
            ok = t < hi
            ptr = ((b * S + t[:, None]) * HKV + kvh) * D + offs_d[None, :]
            k = tl.load(K + ptr, mask=ok[:, None], other=0.0).to(tl.float32)
            qk = tl.where(ok, tl.sum(q[None, :] * k, 1) * sm_scale, -float("inf"))
            m_new = tl.maximum(m_i, tl.max(qk, 0))
            alpha = tl.exp(m_i - m_new)
            p = tl.exp(qk - m_new)
            v = tl.load(V + ptr, mask=ok[:, None], other=0.0).to(tl.float32)
            acc = acc * alpha + tl.sum(p[:, None] * v, 0)
            l_i = l_i * alpha + tl.sum(p, 0)
            m_i = m_new
        o = (b * H + h) * KV_PARTS + part
        tl.store(Mid + o * D + offs_d, acc / l_i)
        tl.store(Lse + o, m_i + tl.log(l_i))


@triton.jit
def _stage_two(Mid, Lse, Lens, O, H: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, KV_PARTS: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    n = tl.load(Lens + b)
    span = tl.cdiv(tl.cdiv(n, KV_PARTS), BLOCK_N) * BLOCK_N
    offs_d = tl.arange(0, D)
    m = -float("inf")
    s = 0.0
    acc = tl.zeros([D], tl.float32)
    for part in range(0, KV_PARTS):
        if part * span < n:
            o = (b * H + h) * KV_PARTS + part
            lse = tl.load(Lse + o)
            m_new = tl.maximum(m, lse)
            r = tl.exp(m - m_new)
            w = tl.exp(lse - m_new)
            acc = acc * r + w * tl.load(Mid + o * D + offs_d)
            s = s * r + w
            m = m_new
    tl.store(O + (b * H + h) * D + offs_d, acc / s)


def run(q, k_buffer, v_buffer, lens):
    bsz, heads, dim = q.shape
    S, hkv = k_buffer.shape[1], k_buffer.shape[2]
    plan = DecodePlan.build(bsz, heads, S, q.device)
    mid = q.new_empty((bsz, heads, plan.kv_parts, dim), dtype=torch.float32)
    lse = q.new_empty((bsz, heads, plan.kv_parts), dtype=torch.float32)
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    _stage_one[(bsz, heads, plan.kv_parts)](
        q, k_buffer, v_buffer, lens, mid, lse, dim**-0.5, S, heads, hkv, dim,
        BLOCK_N=plan.block_n, KV_PARTS=plan.kv_parts, num_warps=4,
    )
    _stage_two[(bsz, heads)](mid, lse, lens, out, heads, dim, BLOCK_N=plan.block_n, KV_PARTS=plan.kv_parts)
    return out
