import torch
import triton
import triton.language as tl

NUM_SPLITS = 8


@triton.jit
def splitk_gemm(x_ptr, w_ptr, ws_ptr, M, N, K,
                NUM_SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_mn = tl.program_id(0)
    split = tl.program_id(1)
    nn = tl.cdiv(N, BLOCK_N)
    rm = (pid_mn // nn) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid_mn % nn) * BLOCK_N + tl.arange(0, BLOCK_N)
    per = K // NUM_SPLITS
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(split * per, (split + 1) * per, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
        w = tl.load(w_ptr + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(ws_ptr + (split * M + rm[:, None]) * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def reduce_splits(ws_ptr, y_ptr, numel, NUM_SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(NUM_SPLITS):
        acc += tl.load(ws_ptr + s * numel + i, mask=i < numel, other=0.0)
    tl.store(y_ptr + i, acc, mask=i < numel)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    ws = torch.empty((NUM_SPLITS, M, N), dtype=torch.float32, device=x.device)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 64), NUM_SPLITS)
    splitk_gemm[grid](x, w, ws, M, N, K, NUM_SPLITS=NUM_SPLITS, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64)
    reduce_splits[(triton.cdiv(M * N, 1024),)](ws, y, M * N, NUM_SPLITS=NUM_SPLITS, BLOCK=1024)
    return y
