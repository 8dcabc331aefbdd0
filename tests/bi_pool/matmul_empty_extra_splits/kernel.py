import torch
import triton
import triton.language as tl

SLICE = 512


@triton.jit
def slices(x, w, ws, M, N, K, SLICE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(s * SLICE, tl.minimum((s + 1) * SLICE, K), BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(xv, tl.load(w + k[:, None] * N + n[None, :]), acc)
    tl.store(ws + (s * M + m[:, None]) * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def total(ws, y, MN, num_splits, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(num_splits):
        acc += tl.load(ws + s * MN + i, mask=i < MN, other=0.0)
    tl.store(y + i, acc, mask=i < MN)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    num_splits = triton.cdiv(K, SLICE)
    if M <= 32:
        num_splits = max(num_splits, 8)
    ws = torch.empty((num_splits, M, N), dtype=torch.float32, device=x.device)
    slices[(triton.cdiv(M, 16), N // 64, num_splits)](x, w, ws, M, N, K, SLICE=SLICE, BM=16, BN=64, BK=64)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    total[(triton.cdiv(M * N, 1024),)](ws, y, M * N, num_splits, BLOCK=1024)
    return y
