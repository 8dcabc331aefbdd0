"""Euclidean length of each row; a row is cut by its own width and the pieces are added left to right."""
import math

import torch
import triton
import triton.language as tl


@triton.jit
def piece_kernel(x_ptr, piece_ptr, n_cols, piece_cols, split_k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.program_id(1)
    stop = tl.minimum((k + 1) * piece_cols, n_cols)
    acc = tl.zeros([BLOCK], tl.float32)
    for at in range(k * piece_cols, stop, BLOCK):
        i = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + i, mask=i < stop, other=0.0).to(tl.float32)
        acc += x * x
    tl.store(piece_ptr + row * split_k + k, tl.sum(acc, 0))


@triton.jit
def close_kernel(piece_ptr, out_ptr, n_rows, split_k, ROWS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = r < n_rows
    acc = tl.zeros([ROWS], tl.float32)
    for k in range(split_k):
        acc += tl.load(piece_ptr + r * split_k + k, mask=live, other=0.0)
    tl.store(out_ptr + r, tl.sqrt(acc), mask=live)


def cut(n_cols: int) -> tuple[int, int]:
    split_k = min(16, max(1, int(math.log2(max(2, n_cols))) - 8))
    piece = -(-n_cols // split_k)
    piece = -(-piece // 256) * 256
    return -(-n_cols // piece), piece


def run(x):
    n_rows, n_cols = x.shape
    split_k, piece = cut(n_cols)
    pieces = torch.empty((n_rows, split_k), dtype=torch.float32, device=x.device)
    out = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if not n_rows:
        return out
    piece_kernel[(n_rows, split_k)](x.contiguous(), pieces, n_cols, piece, split_k, BLOCK=256)
    # one lane a row: how many rows a program takes is free
    rows_each = 128 if n_rows > 64 else 32
    close_kernel[(triton.cdiv(n_rows, rows_each),)](pieces, out, n_rows, split_k, ROWS=rows_each, num_warps=1)
    return out
