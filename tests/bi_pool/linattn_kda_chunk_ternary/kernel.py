"""KDA: the delta rule with a decay for each key channel, in chunked WY form."""

import torch
import triton
import triton.language as tl


@triton.jit
def _solve_unit_lower(A, i, C: tl.constexpr):
    strict = i[:, None] > i[None, :]
    X = tl.where(strict, -A, 0.0)
    for r in range(1, C):
        row = tl.sum(tl.where((i == r)[:, None], X, 0.0), 0)
        row += tl.sum(row[:, None] * X, 0)
        X = tl.where((i == r)[:, None] & strict, row[None, :], X)
    return X + tl.where(i[:, None] == i[None, :], 1.0, 0.0)


@triton.jit
def kda_kernel(q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, o_ptr, T, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr):
    bh = tl.program_id(0)
    i = tl.arange(0, BT)
    d = tl.arange(0, D)
    S = tl.zeros((D, D), tl.float32)
    for t0 in range(0, T, BT):
        tok = ((bh // H) * T + t0 + i) * H + bh % H
        at = tok[:, None] * D + d[None, :]
        cum = tl.cumsum(-0.05 * tl.load(g_ptr + at), 0)
        last = tl.sum(tl.where((i == BT - 1)[:, None], cum, 0.0), 0)
        beta = tl.load(beta_ptr + tok)
        q = tl.load(q_ptr + at).to(tl.float32) * tl.exp(cum)
        k = tl.load(k_ptr + at).to(tl.float32) * (D ** -0.5)
        k_in = k * tl.exp(cum)
        k_out = tl.trans(k * tl.exp(-cum))
        v = tl.load(v_ptr + at).to(tl.float32)
        A = tl.where(i[:, None] > i[None, :], tl.dot(k_in, k_out) * beta[:, None], 0.0)
        inv = _solve_unit_lower(A, i, BT)
        fresh = tl.dot(inv, (v - tl.dot(k_in, S)) * beta[:, None])
        att = tl.where(i[:, None] >= i[None, :], tl.dot(q, k_out), 0.0)
        tl.store(o_ptr + at, tl.dot(q, S) + tl.dot(att, fresh))
        S = S * tl.exp(last)[:, None] + tl.dot(tl.trans(k * tl.exp(last[None, :] - cum)), fresh)


def run(q, k, v, g, beta):
    bsz, T, H, D = q.shape
    o = torch.empty((bsz, T, H, D), dtype=torch.float32, device=q.device)
    BT = 16 if bsz <= 16 else 32
    kda_kernel[(bsz * H,)](q, k, v, g, beta, o, T, H=H, D=D, BT=BT)
    return o
