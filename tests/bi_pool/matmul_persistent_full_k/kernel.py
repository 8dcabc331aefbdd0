"""Persistent GEMM: as many programs as SMs walk the output tiles in a grouped order."""

import torch
import triton
import triton.language as tl


@triton.jit
def _tile_coords(tile, num_m, num_n, GROUP: tl.constexpr):
    per_group = GROUP * num_n
    group = tile // per_group
    first_m = group * GROUP
    group_rows = tl.minimum(num_m - first_m, GROUP)
    return first_m + (tile % per_group) % group_rows, (tile % per_group) // group_rows


@triton.jit
def persistent_kernel(a_ptr, b_ptr, c_ptr, M, N, K,
                      BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), num_m * num_n, tl.num_programs(0)):
        tm, tn = _tile_coords(tile, num_m, num_n, GROUP)
        rm = tm * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = tn * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(0, tl.cdiv(K, BLOCK_K)):
            rk = ki * BLOCK_K + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
            b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    tiles = triton.cdiv(M, 16) * triton.cdiv(N, 64)
    num_programs = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
    persistent_kernel[(num_programs,)](a, b, c, M, N, K, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, GROUP=4)
    return c
