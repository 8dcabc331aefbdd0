"""Top-1 expert linear: a program per (token tile of an expert, column tile); tiles come from a default config."""
import torch
import triton
import triton.language as tl


def default_config(M, E, N, K):
    config = {"BM": 16, "BN": 64, "BK": 64, "mode": "dense"}
    if M <= E:
        config.update(BN=32, BK=256, mode="vector")
    return config


@triton.jit
def _grouped(x_ptr, w_ptr, ids_ptr, exp_ptr, y_ptr, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr,
             BN: tl.constexpr, BK: tl.constexpr, VECTOR: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    tok = tl.load(ids_ptr + pm * BM + tl.arange(0, BM))
    e = tl.load(exp_ptr + pm)
    n = pn * BN + tl.arange(0, BN)
    ok = tok < M
    if VECTOR:
        t = tl.load(ids_ptr + pm * BM)
        acc1 = tl.zeros((BN,), tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            x = tl.load(x_ptr + t * K + k, mask=(k < K) & (t < M), other=0.0).to(tl.float32)
            w = tl.load(w_ptr + e * N * K + n[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
            acc1 += tl.sum(w.to(tl.float32) * x[None, :], 1)
        tl.store(y_ptr + t * N + n, acc1, mask=t < M)
    else:
        acc = tl.zeros((BM, BN), tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            x = tl.load(x_ptr + tok[:, None] * K + k[None, :], mask=ok[:, None], other=0.0)
            w = tl.load(w_ptr + e * N * K + n[None, :] * K + k[:, None])
            acc = tl.dot(x, w, acc)
        tl.store(y_ptr + tok[:, None] * N + n[None, :], acc, mask=ok[:, None])


def _align(expert, E, bm, M):
    ids, owners = [], []
    for e in range(E):
        mine = (expert == e).nonzero().flatten().tolist()
        for i in range(0, len(mine), bm):
            tile = mine[i : i + bm]
            ids += tile + [M] * (bm - len(tile))
            owners.append(e)
    dev = expert.device
    return torch.tensor(ids, dtype=torch.int32, device=dev), torch.tensor(owners, dtype=torch.int32, device=dev)


def run(x, w, expert):
    M, K = x.shape
    E, N, _ = w.shape
    cfg = default_config(M, E, N, K)
    vector = cfg["mode"] == "vector"
    bm = 1 if vector else cfg["BM"]
    ids, owners = _align(expert, E, bm, M)
    y = torch.empty((M, N), device=x.device, dtype=torch.float32)
    grid = (owners.numel(), triton.cdiv(N, cfg["BN"]))
    _grouped[grid](x, w, ids, owners, y, M, N, K, bm, cfg["BN"], cfg["BK"], vector)
    return y
