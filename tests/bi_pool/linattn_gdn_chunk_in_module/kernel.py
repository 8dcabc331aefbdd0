import torch
import triton
import triton.language as tl
from linattn_gdn_chunking import chunk_size


@triton.jit
def gdn_chunk(q, k, v, g, beta, o, T, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    lower = i[:, None] > i[None, :]
    lower_eq = i[:, None] >= i[None, :]
    S = tl.zeros((D, D), tl.float32)
    for t0 in range(0, T, C):
        tok = (b * T + t0 + i) * H + h
        at = tok[:, None] * D + d[None, :]
        qc = tl.load(q + at).to(tl.float32)
        kc = tl.load(k + at).to(tl.float32) * (D ** -0.5)
        vc = tl.load(v + at).to(tl.float32)
        bt = tl.load(beta + tok)
        lg = -0.1 * tl.load(g + tok)
        cum = tl.cumsum(lg, 0)
        end = tl.sum(lg, 0)
        decay = tl.exp(tl.where(lower_eq, cum[:, None] - cum[None, :], 0.0))
        A = tl.where(lower, tl.dot(kc, tl.trans(kc)) * decay * bt[:, None], 0.0)
        # inverse of the unit lower triangular matrix I + A by forward substitution
        inv = -A
        for r in range(1, C):
            row = -tl.sum(tl.where((i == r)[:, None], A, 0.0), 0)
            row += tl.sum(row[:, None] * tl.where(lower, inv, 0.0), 0)
            inv = tl.where((i == r)[:, None], row[None, :], inv)
        inv = tl.where(lower, inv, 0.0) + tl.where(i[:, None] == i[None, :], 1.0, 0.0)
        U = tl.dot(inv, vc * bt[:, None])
        W = tl.dot(inv, kc * (bt * tl.exp(cum))[:, None])
        new_v = U - tl.dot(W, S)
        att = tl.where(lower_eq, tl.dot(qc, tl.trans(kc)) * decay, 0.0)
        tl.store(o + at, tl.dot(qc * tl.exp(cum)[:, None], S) + tl.dot(att, new_v))
        S = S * tl.exp(end) + tl.dot(tl.trans(kc * tl.exp(end - cum)[:, None]), new_v)


def run(q, k, v, g, beta):
    num_seqs, T, H, D = q.shape
    o = torch.empty((num_seqs, T, H, D), dtype=torch.float32, device=q.device)
    gdn_chunk[(num_seqs, H)](q, k, v, g, beta, o, T, H=H, D=D, C=chunk_size(num_seqs, T))
    return o
