"""Grouped-query flash decoding; the number of KV pieces maximises the efficiency of the last wave."""
import math

import torch
import triton
import triton.language as tl


def _efficiencies(work, sms, limit):
    for s in range(1, limit + 1):
        waves = work * s / sms
        yield s, waves / math.ceil(waves)


def choose(work, sms, n_tiles, limit=16):
    if work >= 0.8 * sms:
        return 1
    table = dict(_efficiencies(work, sms, min(limit, n_tiles)))
    best = max(table.values())
    return next(s for s, e in table.items() if e >= 0.85 * best)


@triton.jit
def _piece(q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, S, scale, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
           P: tl.constexpr, BN: tl.constexpr):
    b, h, p = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    hk = h // G
    q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32) * scale
    per = tl.cdiv(tl.cdiv(S, BN), P) * BN
    m = -float("inf")
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for t in range(p * per, min(S, p * per + per), BN):
        n = t + tl.arange(0, BN)
        off = ((b * S + n) * (H // G) + hk)[:, None] * D + d[None, :]
        kk = tl.load(k_ptr + off, mask=(n < S)[:, None], other=0.0).to(tl.float32)
        s = tl.where(n < S, tl.sum(kk * q[None, :], 1), -float("inf"))
        mn = tl.maximum(m, tl.max(s, 0))
        w = tl.exp(s - mn)
        c = tl.exp(m - mn)
        vv = tl.load(v_ptr + off, mask=(n < S)[:, None], other=0.0).to(tl.float32)
        acc = acc * c + tl.sum(w[:, None] * vv, 0)
        den = den * c + tl.sum(w, 0)
        m = mn
    at = (b * H + h) * P + p
    has = den > 0
    tl.store(o_ptr + at * D + d, tl.where(has, acc / tl.where(has, den, 1.0), 0.0))
    tl.store(l_ptr + at, tl.where(has, m + tl.log(tl.where(has, den, 1.0)), -float("inf")))


def run(q, k, v):
    b, h, d = q.shape
    s, hk = k.shape[1], k.shape[2]
    pieces = choose(b * h, 132, triton.cdiv(s, 32))
    o = torch.empty((b, h, pieces, d), device=q.device, dtype=torch.float32)
    lse = torch.empty((b, h, pieces), device=q.device, dtype=torch.float32)
    _piece[(b, h, pieces)](q, k, v, o, lse, s, d**-0.5, h, h // hk, d, pieces, 32)
    if pieces == 1:
        return o[:, :, 0]
    weight = torch.softmax(lse, dim=-1)
    return (o * weight.unsqueeze(-1)).sum(dim=2)
