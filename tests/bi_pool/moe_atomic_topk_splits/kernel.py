import torch
import triton
import triton.language as tl


@triton.jit
def fused_moe(x, ids, gate, w, y, K, TOPK: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, SPLIT_K: tl.constexpr):
    a = tl.program_id(0)
    s = tl.program_id(1)
    t = a // TOPK
    e = tl.load(ids + a)
    n = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for k0 in range(s * BK, K, BK * SPLIT_K):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + t * K + k).to(tl.float32)
        acc += tl.sum(xv[:, None] * tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32), 0)
    tl.atomic_add(y + t * N + n, acc * tl.load(gate + a), sem="relaxed")


def run(x, topk_ids, topk_weights, w):
    M, K = x.shape
    topk = topk_ids.shape[1]
    N = w.shape[2]
    y = x.new_zeros((M, N), dtype=torch.float32)
    meta = {"BK": 64, "SPLIT_K": max(1, 32 // triton.next_power_of_2(M))}
    meta["SPLIT_K"] = min(meta["SPLIT_K"], K // meta["BK"])
    fused_moe[(M * topk, meta["SPLIT_K"])](x, topk_ids, topk_weights, w, y, K, TOPK=topk, N=N, **meta)
    return y
