"""Linear + ReLU. Few tiles: one program a tile. Many tiles: a persistent launch. Both call _tile()."""

import torch
import triton
import triton.language as tl


@triton.jit
def _tile(x_ptr, w_ptr, y_ptr, tm, tn, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tm * BM + tl.arange(0, BM)
    rn = tn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
        b = tl.load(w_ptr + rk[:, None] * N + rn[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], tl.maximum(acc, 0.0), mask=rm[:, None] < M)


@triton.jit
def tiled(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _tile(x_ptr, w_ptr, y_ptr, tl.program_id(0), tl.program_id(1), M, N, K, BM, BN, BK)


@triton.jit
def persistent(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    num_n = N // BN
    total = tl.cdiv(M, BM) * num_n
    for t in range(tl.program_id(0), total, tl.num_programs(0)):
        _tile(x_ptr, w_ptr, y_ptr, t // num_n, t % num_n, M, N, K, BM, BN, BK)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    meta = {"BM": 16, "BN": 64, "BK": 64}
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    row_tiles, col_tiles = triton.cdiv(M, meta["BM"]), N // meta["BN"]
    if row_tiles * col_tiles <= 16:
        tiled[(row_tiles, col_tiles)](x, w, y, M, N, K, **meta)
    else:
        persistent[(16,)](x, w, y, M, N, K, **meta)
    return y
