import torch
import triton
import triton.language as tl

TARGET_PROGRAMS = 1024


@triton.jit
def _tile_sum(x_ptr, part_ptr, S, D, tile_len, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for s0 in range(t * tile_len, tl.minimum((t + 1) * tile_len, S), BLOCK_S):
        s = s0 + tl.arange(0, BLOCK_S)
        ok = (s[:, None] < tl.minimum((t + 1) * tile_len, S)) & (d[None, :] < D)
        x = tl.load(x_ptr + (b * S + s[:, None]) * D + d[None, :], mask=ok, other=0.0).to(tl.float32)
        acc += tl.sum(x, axis=0)
    tl.store(part_ptr + (b * tl.num_programs(1) + t) * D + d, acc, mask=d < D)


@triton.jit
def _tile_mean(part_ptr, out_ptr, S, D, tiles, BLOCK_D: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for t in range(tiles):
        acc += tl.load(part_ptr + (b * tiles + t) * D + d, mask=d < D, other=0.0)
    tl.store(out_ptr + b * D + d, acc / S, mask=d < D)


def run(x):
    B, S, D = x.shape
    d_blocks = triton.cdiv(D, 128)
    tiles = min(16, max(1, TARGET_PROGRAMS // (B * d_blocks)))
    tile_len = triton.cdiv(S, tiles)
    part = torch.empty((B, tiles, D), device=x.device, dtype=torch.float32)
    out = torch.empty((B, D), device=x.device, dtype=torch.float32)
    _tile_sum[(B, tiles, d_blocks)](x, part, S, D, tile_len, BLOCK_S=32, BLOCK_D=128)
    _tile_mean[(B, d_blocks)](part, out, S, D, tiles, BLOCK_D=128)
    return out
