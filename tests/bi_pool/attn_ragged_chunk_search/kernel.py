import torch
import triton
import triton.language as tl
from attn_worklist import build_worklist


@triton.jit
def run_items(q, k, v, indptr, items, tmp, scale, chunk, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(items + 2 * i)
    c = tl.load(items + 2 * i + 1)
    lo = tl.load(indptr + row) + c * chunk
    hi = tl.minimum(lo + chunk, tl.load(indptr + row + 1))
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    qv = tl.load(q + (row * H + h[:, None]) * D + d[None, :], mask=(h < H)[:, None], other=0.0)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        ok = s < hi
        kt = tl.load(k + s[None, :] * D + d[:, None], mask=ok[None, :], other=0.0)
        x = tl.where(ok[None, :], tl.dot(qv, kt) * scale, float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        f = tl.exp(m - m1)
        vt = tl.load(v + s[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
        l = l * f + tl.sum(p, 1)
        m = m1
    at = tmp + (i * H + h) * (D + 2)
    tl.store(at[:, None] + d[None, :], acc, mask=(h < H)[:, None])
    tl.store(at + D, m, mask=h < H)
    tl.store(at + D + 1, l, mask=h < H)


@triton.jit
def merge_items(tmp, offsets, out, H: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    lo = tl.load(offsets + row)
    hi = tl.load(offsets + row + 1)
    m = float("-inf")
    for i in range(lo, hi):
        m = tl.maximum(m, tl.load(tmp + (i * H + h) * (D + 2) + D))
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for i in range(lo, hi):
        at = tmp + (i * H + h) * (D + 2)
        f = tl.exp(tl.load(at + D) - m)
        l += f * tl.load(at + D + 1)
        acc += f * tl.load(at + d)
    tl.store(out + (row * H + h) * D + d, acc / l)


def run(q, k, v, kv_indptr):
    B, H, D = q.shape
    plan = build_worklist(kv_indptr.tolist(), max_items=96, device=q.device)
    tmp = torch.empty((plan.num_items, H, D + 2), dtype=torch.float32, device=q.device)
    run_items[(plan.num_items,)](q, k, v, kv_indptr, plan.items, tmp, D**-0.5, plan.chunk, H=H, D=D, BN=32)
    out = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    merge_items[(B, H)](tmp, plan.offsets, out, H=H, D=D)
    return out
