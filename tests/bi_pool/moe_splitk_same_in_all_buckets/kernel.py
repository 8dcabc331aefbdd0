import torch
import triton
import triton.language as tl

SPLITS = 4
BY_TOKENS = [(16, {"num_stages": 4}), (64, {"num_stages": 3}), (4096, {"num_stages": 2})]


@triton.jit
def assigned_rows(x, order, starts, w, part, num_assign, K, N: tl.constexpr, TOPK: tl.constexpr,
                  SPLITS: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    e = tl.program_id(0)
    s = tl.program_id(2)
    lo = tl.load(starts + e) + tl.program_id(1) * BM
    hi = tl.load(starts + e + 1)
    if lo < hi:
        pos = lo + tl.arange(0, BM)
        ok = (pos < hi)[:, None]
        a = tl.load(order + pos, mask=pos < hi, other=0)
        n = tl.arange(0, N)
        acc = tl.zeros((BM, N), tl.float32)
        for k0 in range(s * (K // SPLITS), (s + 1) * (K // SPLITS), BK):
            k = k0 + tl.arange(0, BK)
            xv = tl.load(x + (a // TOPK)[:, None] * K + k[None, :], mask=ok, other=0.0)
            acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
        tl.store(part + (s * num_assign + a[:, None]) * N + n[None, :], acc, mask=ok)


@triton.jit
def finish(part, gate, y, num_assign, N: tl.constexpr, TOPK: tl.constexpr, SPLITS: tl.constexpr):
    t = tl.program_id(0)
    n = tl.arange(0, N)
    out = tl.zeros((N,), tl.float32)
    for j in tl.static_range(TOPK):
        v = tl.zeros((N,), tl.float32)
        for s in tl.static_range(SPLITS):
            v += tl.load(part + (s * num_assign + t * TOPK + j) * N + n)
        out += v * tl.load(gate + t * TOPK + j)
    tl.store(y + t * N + n, out)


def run(x, topk_ids, topk_weights, w):
    T, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    options = next(cfg for limit, cfg in BY_TOKENS if T <= limit)
    order = topk_ids.flatten().argsort(stable=True)
    starts = torch.searchsorted(topk_ids.flatten()[order].contiguous(), torch.arange(E + 1, dtype=torch.int32, device=x.device))
    part = torch.empty((SPLITS, T * topk, N), dtype=torch.float32, device=x.device)
    assigned_rows[(E, triton.cdiv(T * topk, 16), SPLITS)](x, order, starts, w, part, T * topk, K, N=N, TOPK=topk,
                                                          SPLITS=SPLITS, BM=16, BK=64, **options)
    y = torch.empty((T, N), dtype=torch.float32, device=x.device)
    finish[(T,)](part, topk_weights, y, T * topk, N=N, TOPK=topk, SPLITS=SPLITS)
    return y
