import torch
import triton
import triton.language as tl

CHUNK = 32


@triton.jit
def decayed_attention(q, k, v, g, o, T, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    h = tl.program_id(0)
    b = tl.program_id(1)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    low = i[:, None] >= i[None, :]
    S = tl.zeros((D, D), tl.float32)
    for t0 in range(0, T, C):
        ok = t0 + i < T
        tok = (b * T + t0 + i) * H + h
        at = tok[:, None] * D + d[None, :]
        qc = tl.load(q + at, mask=ok[:, None], other=0.0).to(tl.float32)
        kc = tl.load(k + at, mask=ok[:, None], other=0.0).to(tl.float32)
        vc = tl.load(v + at, mask=ok[:, None], other=0.0).to(tl.float32)
        lg = -0.1 * tl.load(g + tok, mask=ok, other=0.0)
        cum = tl.cumsum(lg, 0)
        end = tl.sum(lg, 0)
        att = tl.dot(qc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], -1e9))
        out = tl.dot(att, vc) + tl.dot(qc * tl.exp(cum)[:, None], S)
        tl.store(o + at, out, mask=ok[:, None])
        S = tl.exp(end) * S + tl.dot(tl.trans(kc * tl.exp(end - cum)[:, None]), vc)


def run(q, k, v, g):
    batch, T, H, D = q.shape
    o = torch.empty((batch, T, H, D), dtype=torch.float32, device=q.device)
    decayed_attention[(H, batch)](q, k, v, g, o, T, H=H, D=D, C=CHUNK)
    return o
