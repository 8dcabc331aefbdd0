"""Stream-K GEMM: every worker takes the same number of (tile, k) iterations; cut tiles are stitched by a second kernel."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass
class Tile:
    m: int = 32
    n: int = 64
    k: int = 64


@triton.jit
def _accumulate(x_ptr, w_ptr, M, N, K, tile_id, it_lo, it_hi, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    nn = tl.cdiv(N, BN)
    rm = (tile_id // nn) * BM + tl.arange(0, BM)
    rn = (tile_id % nn) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for it in range(it_lo, it_hi):
        rk = it * BK + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        w = tl.load(w_ptr + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(x, w, acc)
    return acc


@triton.jit
def streamk_kernel(x_ptr, w_ptr, ws_ptr, M, N, K, total_iters, iters_per_worker, iters_per_tile,
                   slots: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    worker = tl.program_id(0)
    start = worker * iters_per_worker
    end = tl.minimum(start + iters_per_worker, total_iters)
    it = start
    while it < end:
        tile_id = it // iters_per_tile
        tile_start = tile_id * iters_per_tile
        stop = tl.minimum(end, tile_start + iters_per_tile)
        acc = _accumulate(x_ptr, w_ptr, M, N, K, tile_id, it - tile_start, stop - tile_start, BM, BN, BK)
        # a slot per worker that touches the tile, counted from the first one
        slot = worker - tile_start // iters_per_worker
        base = ws_ptr + (tile_id * slots + slot) * BM * BN
        tl.store(base + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)
        it = stop


@triton.jit
def stitch_kernel(ws_ptr, y_ptr, M, N, iters_per_worker, iters_per_tile,
                  slots: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tile_id = tl.program_id(0)
    first = (tile_id * iters_per_tile) // iters_per_worker
    last = ((tile_id + 1) * iters_per_tile - 1) // iters_per_worker
    local = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for slot in range(0, last - first + 1):
        acc += tl.load(ws_ptr + (tile_id * slots + slot) * BM * BN + local)
    nn = tl.cdiv(N, BN)
    rm = (tile_id // nn) * BM + tl.arange(0, BM)
    rn = (tile_id % nn) * BN + tl.arange(0, BN)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


def run(x, w):
    t = Tile()
    M, K = x.shape
    N = w.shape[1]
    num_workers = torch.cuda.get_device_properties(x.device).multi_processor_count
    tiles = triton.cdiv(M, t.m) * triton.cdiv(N, t.n)
    iters_per_tile = triton.cdiv(K, t.k)
    total = tiles * iters_per_tile
    per_worker = triton.cdiv(total, num_workers)
    slots = iters_per_tile + 1
    ws = torch.empty(tiles * slots * t.m * t.n, dtype=torch.float32, device=x.device)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    streamk_kernel[(triton.cdiv(total, per_worker),)](x, w, ws, M, N, K, total, per_worker, iters_per_tile,
                                                      slots, t.m, t.n, t.k)
    stitch_kernel[(tiles,)](ws, y, M, N, per_worker, iters_per_tile, slots, t.m, t.n)
    return y
