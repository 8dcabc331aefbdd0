import torch
import triton
import triton.language as tl

CHUNK_ROWS = 32


@triton.jit
def linear_bias(x_ptr, w_ptr, b_ptr, y_ptr, rows, N, K,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rm = tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < rows, other=0.0)
        w = tl.load(w_ptr + rn[None, :] * K + rk[:, None])
        acc = tl.dot(x, w, acc)
    acc += tl.load(b_ptr + rn).to(tl.float32)[None, :]
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=rm[:, None] < rows)


def run(x, w, bias):
    batch, K = x.shape
    N = w.shape[0]
    y = torch.empty((batch, N), dtype=torch.float32, device=x.device)
    for start in range(0, batch, CHUNK_ROWS):
        rows = min(CHUNK_ROWS, batch - start)
        linear_bias[(N // 32,)](x[start:], w, bias, y[start:], rows, N, K, BLOCK_M=CHUNK_ROWS, BLOCK_N=32, BLOCK_K=128)
    return y
