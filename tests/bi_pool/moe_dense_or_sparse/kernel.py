import torch
import triton
import triton.language as tl


@triton.jit
def dense_experts(x, ids, gate, w, y, T, K, E: tl.constexpr, N: tl.constexpr, TOPK: tl.constexpr,
                  BM: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    live = t < T
    total = tl.zeros((BM, N), tl.float32)
    for e in range(E):
        coef = tl.zeros((BM,), tl.float32)
        for j in tl.static_range(TOPK):
            sel = tl.load(ids + t * TOPK + j, mask=live, other=-1) == e
            coef += tl.where(sel, tl.load(gate + t * TOPK + j, mask=live, other=0.0), 0.0)
        acc = tl.zeros((BM, N), tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            xv = tl.load(x + t[:, None] * K + k[None, :], mask=live[:, None], other=0.0)
            acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
        total += tl.where(coef[:, None] != 0.0, acc * coef[:, None], 0.0)
    tl.store(y + t[:, None] * N + n[None, :], total, mask=live[:, None])


@triton.jit
def sparse_experts(x, ids, gate, w, y, K: tl.constexpr, N: tl.constexpr, TOPK: tl.constexpr):
    t = tl.program_id(0)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    xv = tl.load(x + t * K + k).to(tl.float32)
    total = tl.zeros((N,), tl.float32)
    for j in range(TOPK):
        e = tl.load(ids + t * TOPK + j)
        wv = tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32)
        total += tl.load(gate + t * TOPK + j) * tl.sum(xv[:, None] * wv, 0)
    tl.store(y + t * N + n, total)


def run(x, topk_ids, gates, w):
    T, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    y = torch.empty((T, N), dtype=torch.float32, device=x.device)
    tokens_per_expert = T * topk / E
    if tokens_per_expert >= 16:
        dense_experts[(triton.cdiv(T, 16),)](x, topk_ids, gates, w, y, T, K, E=E, N=N, TOPK=topk, BM=16, BK=64)
    else:
        sparse_experts[(T,)](x, topk_ids, gates, w, y, K=K, N=N, TOPK=topk)
    return y
