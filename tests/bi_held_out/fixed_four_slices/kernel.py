"""Split-K GEMM whose number of slices is a constant of the module."""
import torch
import triton
import triton.language as tl

split_k = 4
TILE = {"BM": 32, "BN": 64, "BK": 32}


@triton.jit
def slice_gemm(A, B, P, M, N, K, SPLIT_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(z, tl.cdiv(K, BK), SPLIT_K):
        rk = step * BK + tl.arange(0, BK)
        a = tl.load(A + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        b = tl.load(B + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(P + z * M * N + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def add_slices(P, C, numel, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(P + i, mask=i < numel, other=0.0)
    for z in tl.static_range(1, SPLIT_K):
        total += tl.load(P + z * numel + i, mask=i < numel, other=0.0)
    tl.store(C + i, total, mask=i < numel)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    partial = a.new_empty((split_k, M, N), dtype=torch.float32)
    c = a.new_empty((M, N), dtype=torch.float32)
    slice_gemm[triton.cdiv(M, TILE["BM"]), triton.cdiv(N, TILE["BN"]), split_k](a, b, partial, M, N, K,
                                                                             SPLIT_K=split_k, **TILE)
    block = 1024 if M * N >= 65536 else 256
    add_slices[(triton.cdiv(M * N, block),)](partial, c, M * N, SPLIT_K=split_k, BLOCK=block)
    return c


def run(a, b):
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"inner dimensions differ: {a.shape[1]} and {b.shape[0]}")
    return matmul(a.contiguous(), b.contiguous())
