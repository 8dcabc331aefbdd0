import torch
import triton
import triton.language as tl

ROW_TILE = {1: 16, 2: 16, 4: 16, 8: 16, 16: 16, 32: 32, 64: 32, 128: 32, 256: 32}


@triton.jit
def mm_kernel(x_ptr, w_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
        w = tl.load(w_ptr + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    block_m = ROW_TILE.get(triton.next_power_of_2(M), 32)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, 64))
    mm_kernel[grid](x, w, y, M, N, K, BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=64, num_warps=4)
    return y
