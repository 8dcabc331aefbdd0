import torch
import triton
import triton.language as tl


@triton.jit
def expert_rows(x, rows, w, out, num_rows, K, N: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = i < num_rows
    r = tl.load(rows + i, mask=ok, other=0)
    n = tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + r[:, None] * K + k[None, :], mask=ok[:, None], other=0.0)
        acc = tl.dot(xv, tl.load(w + k[:, None] * N + n[None, :]), acc)
    tl.store(out + i[:, None] * N + n[None, :], acc, mask=ok[:, None])


def run(x, topk_ids, gates, w):
    T, K = x.shape
    E, _, N = w.shape
    y = torch.zeros((T, N), dtype=torch.float32, device=x.device)
    for e in range(E):
        weight = torch.where(topk_ids == e, gates, torch.zeros_like(gates))
        coef = weight[:, 0] + weight[:, 1]
        rows = (topk_ids == e).any(dim=1).nonzero().squeeze(1)
        if rows.numel() == 0:
            continue
        out = torch.empty((rows.numel(), N), dtype=torch.float32, device=x.device)
        expert_rows[(triton.cdiv(rows.numel(), 16),)](x, rows, w[e], out, rows.numel(), K, N=N, BM=16, BK=64)
        # every row appears once, so the indexed addition has nothing to race with
        y[rows] += coef[rows, None] * out
    return y
