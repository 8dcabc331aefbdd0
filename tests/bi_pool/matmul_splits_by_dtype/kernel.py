import torch
import triton
import triton.language as tl

SPLIT_K_TABLE = {(2, False): 4, (2, True): 2, (4, False): 8, (4, True): 4}


def choose_splits(batch_size, weight, *, deep=False):
    assert batch_size > 0, "empty batch"
    return SPLIT_K_TABLE[weight.element_size(), deep]


@triton.jit
def gemm_slices(x, w, ws, M, N, K, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    s = pid % S
    tile = pid // S
    m = (tile // (N // BN)) * BM + tl.arange(0, BM)
    n = (tile % (N // BN)) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(s * BK, K, S * BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(xv, tl.load(w + k[:, None] * N + n[None, :]), acc)
    tl.store(ws + (s * M + m[:, None]) * N + n[None, :], acc, mask=m[:, None] < M)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    S = choose_splits(M, w)
    ws = torch.empty((S, M, N), dtype=torch.float32, device=x.device)
    gemm_slices[(triton.cdiv(M, 16) * (N // 64) * S,)](x, w, ws, M, N, K, S=S, BM=16, BN=64, BK=64)
    y = ws[0]
    for s in range(1, S):
        y = y + ws[s]
    return y
