"""Persistent GEMM with GELU. Work item = (tile, k-chunk); the last step sums the chunks and applies the activation."""

import torch
import triton
import triton.language as tl


@triton.jit
def persistent_gemm(x_ptr, w_ptr, ws_ptr, M, N, K, num_items, chunks, chunk_len,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    num_n = tl.cdiv(N, BN)
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        chunk = item % chunks
        tile = item // chunks
        rm = (tile // num_n) * BM + tl.arange(0, BM)
        rn = (tile % num_n) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(chunk * chunk_len, tl.minimum((chunk + 1) * chunk_len, K), BK):
            rk = k + tl.arange(0, BK)
            a = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
            b = tl.load(w_ptr + rk[:, None] * N + rn[None, :])
            acc = tl.dot(a, b, acc)
        tl.store(ws_ptr + (chunk * M + rm[:, None]) * N + rn[None, :], acc, mask=rm[:, None] < M)


@triton.jit
def gelu_epilogue(ws_ptr, y_ptr, numel, chunks, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(chunks):
        acc += tl.load(ws_ptr + c * numel + i, mask=i < numel, other=0.0)
    v = acc * alpha
    tl.store(y_ptr + i, 0.5 * v * (1.0 + tl.erf(v * 0.70710678)), mask=i < numel)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    BM, BN, BK = 16, 64, 64
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    chunks = 1
    while tiles * chunks * 2 <= sms and K // (chunks * 2) >= 4 * BK:
        chunks *= 2
    items = tiles * chunks
    ws = torch.empty((chunks, M, N), dtype=torch.float32, device=x.device)
    persistent_gemm[(min(items, sms),)](x, w, ws, M, N, K, items, chunks, triton.cdiv(K, chunks), BM, BN, BK)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    gelu_epilogue[(triton.cdiv(M * N, 1024),)](ws, y, M * N, chunks, 0.02, BLOCK=1024)
    return y
