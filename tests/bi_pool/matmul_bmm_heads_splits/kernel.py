"""Absorbed projection of latent attention: y[b, h] = q[b, h] @ W[h]."""

import torch
import triton
import triton.language as tl

WANTED_PROGRAMS = 128


def occupancy_splits(programs: int, limit: int) -> int:
    """Power of two that brings the launch near WANTED_PROGRAMS."""
    splits = 1
    for candidate in (2, 4, 8):
        if candidate <= limit and programs * candidate <= WANTED_PROGRAMS:
            splits = candidate
    return splits


@triton.jit
def head_proj(q_ptr, w_ptr, o_ptr, B, H, K, per,
              N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr):
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    h = tl.program_id(1)
    z = tl.program_id(2)
    n = tl.arange(0, N)
    acc = tl.zeros((BLOCK_B, N), dtype=tl.float32)
    for k0 in range(z * per, z * per + per, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        q = tl.load(q_ptr + (b[:, None] * H + h) * K + k[None, :], mask=b[:, None] < B, other=0.0)
        w = tl.load(w_ptr + (h * K + k[:, None]) * N + n[None, :])
        acc = tl.dot(q, w, acc)
    tl.store(o_ptr + ((z * B + b[:, None]) * H + h) * N + n[None, :], acc, mask=b[:, None] < B)


def run(q, w):
    B, H, K = q.shape
    N = w.shape[-1]
    row_tiles = triton.cdiv(B, 16)
    z = occupancy_splits(row_tiles * H, limit=K // 128)
    o = torch.empty((z, B, H, N), dtype=torch.float32, device=q.device)
    head_proj[(row_tiles, H, z)](q, w, o, B, H, K, K // z, N=N, BLOCK_B=16, BLOCK_K=64)
    acc = o[0]
    for part in o[1:]:
        acc = acc + part
    return acc
