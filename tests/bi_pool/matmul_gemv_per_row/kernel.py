import torch
import triton
import triton.language as tl


@triton.jit
def gemv(x_ptr, w_ptr, y_ptr, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * K + k)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :])
        acc += w.to(tl.float32) * x.to(tl.float32)[None, :]
    tl.store(y_ptr + row * N + n, tl.sum(acc, axis=1))


def run(x, w):
    rows, K = x.shape
    N, _ = w.shape
    y = torch.empty(rows, N, dtype=torch.float32, device=x.device)
    gemv[(rows, N // 16)](x, w, y, N, K, BLOCK_N=16, BLOCK_K=256)
    return y
