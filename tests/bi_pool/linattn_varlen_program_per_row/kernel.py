import torch
import triton
import triton.language as tl


@triton.jit
def varlen_linear(q, k, v, g, o, cu, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    seq = tl.program_id(0) // H
    h = tl.program_id(0) % H
    start = tl.load(cu + seq)
    stop = tl.load(cu + seq + 1)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    S = tl.zeros((D, D), tl.float32)
    for t0 in range(start, stop, C):
        ok = t0 + i < stop
        tok = (t0 + i) * H + h
        at = tok[:, None] * D + d[None, :]
        qc = tl.load(q + at, mask=ok[:, None], other=0.0).to(tl.float32)
        kc = tl.load(k + at, mask=ok[:, None], other=0.0).to(tl.float32)
        vc = tl.load(v + at, mask=ok[:, None], other=0.0).to(tl.float32)
        lg = tl.load(g + tok, mask=ok, other=0.0) * -0.1
        cum = tl.cumsum(lg, 0)
        end = tl.sum(lg, 0)
        low = (i[:, None] >= i[None, :]) & ok[:, None]
        a = tl.dot(qc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], -1e9))
        tl.store(o + at, tl.dot(qc * tl.exp(cum)[:, None], S) + tl.dot(a, vc), mask=ok[:, None])
        S = S * tl.exp(end) + tl.dot(tl.trans(kc * tl.exp(end - cum)[:, None]), vc)


def run(q, k, v, g, cu_seqlens):
    total_tokens, H, D = q.shape
    num_seqs = len(cu_seqlens) - 1
    o = torch.empty((total_tokens, H, D), dtype=torch.float32, device=q.device)
    varlen_linear[(num_seqs * H,)](q, k, v, g, o, cu_seqlens, H=H, D=D, C=16)
    return o
