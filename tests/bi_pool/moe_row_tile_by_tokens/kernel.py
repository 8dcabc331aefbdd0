import torch
import triton
import triton.language as tl


def default_config(num_tokens):
    config = {"BLOCK_M": 16, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4}
    if num_tokens > 32:
        config.update(BLOCK_M=32, num_stages=3)
    return config


@triton.jit
def expert_tiles(x, perm, starts, w, out, K, N: tl.constexpr, TOPK: tl.constexpr, E: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    e = tl.program_id(0)
    n = tl.arange(0, N)
    hi = tl.load(starts + e + 1)
    for lo in range(tl.load(starts + e), hi, BLOCK_M):
        pos = lo + tl.arange(0, BLOCK_M)
        a = tl.load(perm + pos, mask=pos < hi, other=0)
        acc = tl.zeros((BLOCK_M, N), tl.float32)
        for k0 in range(0, K, BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)
            xv = tl.load(x + (a // TOPK)[:, None] * K + k[None, :], mask=(pos < hi)[:, None], other=0.0)
            acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
        tl.store(out + a[:, None] * N + n[None, :], acc, mask=(pos < hi)[:, None])


def run(x, topk_ids, gates, w):
    T, K = x.shape
    E, _, N = w.shape
    topk = topk_ids.shape[1]
    perm = torch.argsort(topk_ids.flatten(), stable=True)
    starts = torch.zeros(E + 1, dtype=torch.int64, device=x.device)
    starts[1:] = torch.bincount(topk_ids.flatten(), minlength=E).cumsum(0)
    out = torch.empty((T * topk, N), dtype=torch.float32, device=x.device)
    expert_tiles[(E,)](x, perm, starts, w, out, K, N=N, TOPK=topk, E=E, **default_config(T))
    weighted = out.view(T, topk, N) * gates[..., None]
    return weighted[:, 0] + weighted[:, 1]
