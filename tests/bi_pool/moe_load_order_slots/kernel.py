import torch
import triton
import triton.language as tl


@triton.jit
def expert_to_slots(x, perm, lo, hi, e, w, out, K, N: tl.constexpr, TOPK: tl.constexpr, BM: tl.constexpr,
                    BK: tl.constexpr):
    pos = lo + tl.program_id(0) * BM + tl.arange(0, BM)
    ok = (pos < hi)[:, None]
    a = tl.load(perm + pos, mask=pos < hi, other=0)
    n = tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + (a // TOPK)[:, None] * K + k[None, :], mask=ok, other=0.0)
        acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
    tl.store(out + a[:, None] * N + n[None, :], acc, mask=ok)


@triton.jit
def add_slots(out, gate, y, N: tl.constexpr, TOPK: tl.constexpr):
    t = tl.program_id(0)
    n = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for j in tl.static_range(TOPK):
        acc += tl.load(gate + t * TOPK + j) * tl.load(out + (t * TOPK + j) * N + n)
    tl.store(y + t * N + n, acc)


def run(x, topk_ids, gates, w):
    T, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    flat = topk_ids.flatten()
    perm = flat.argsort(stable=True).to(torch.int32)
    counts = torch.bincount(flat, minlength=E).tolist()
    starts = [sum(counts[:e]) for e in range(E)]
    out = torch.empty((T * topk, N), dtype=torch.float32, device=x.device)
    for e in sorted(range(E), key=counts.__getitem__, reverse=True):
        if counts[e]:
            expert_to_slots[(triton.cdiv(counts[e], 16),)](
                x, perm, starts[e], starts[e] + counts[e], e, w, out, K, N=N, TOPK=topk, BM=16, BK=64)
    y = torch.empty((T, N), dtype=torch.float32, device=x.device)
    add_slots[(T,)](out, gates, y, N=N, TOPK=topk)
    return y
