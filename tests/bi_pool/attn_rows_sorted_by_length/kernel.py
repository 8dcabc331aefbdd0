import torch
import triton
import triton.language as tl


@triton.jit
def decode_in_order(q, kv, lens, order, o, S, scale, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.load(order + tl.program_id(0))
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    n = tl.load(lens + b)
    qt = tl.load(q + (b * H + h[:, None]) * D + d[None, :], mask=(h < H)[:, None], other=0.0)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(0, n, BN):
        s = s0 + tl.arange(0, BN)
        t = tl.load(kv + (b * S + s[:, None]) * D + d[None, :], mask=(s < n)[:, None], other=0.0)
        x = tl.where((s < n)[None, :], tl.dot(qt, tl.trans(t)) * scale, float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        f = tl.exp(m - m1)
        acc = acc * f[:, None] + tl.dot(p.to(t.dtype), t)
        l = l * f + tl.sum(p, 1)
        m = m1
    tl.store(o + (b * H + h[:, None]) * D + d[None, :], acc / l[:, None], mask=(h < H)[:, None])


def run(q, kv, seq_lens):
    bsz, H, D = q.shape
    order = torch.argsort(seq_lens, descending=True, stable=True).to(torch.int32)
    o = torch.empty((bsz, H, D), dtype=torch.float32, device=q.device)
    decode_in_order[(bsz,)](q, kv, seq_lens, order, o, kv.shape[1], D**-0.5, H=H, D=D, BN=32)
    return o
