import torch
import triton
import triton.language as tl
from attn_tile_map import map_query_tiles


@triton.jit
def encoder_fwd(q, k, v, o, cu, tile_seq, tile_start, num_tiles, scale,
                H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    for unit in range(tl.program_id(0), num_tiles * H, tl.num_programs(0)):
        tile = unit // H
        head = unit % H
        seq = tl.load(tile_seq + tile)
        lo = tl.load(cu + seq)
        hi = tl.load(cu + seq + 1)
        i = tl.load(tile_start + tile) + tl.arange(0, BM)
        d = tl.arange(0, D)
        qt = tl.load(q + (i[:, None] * H + head) * D + d[None, :], mask=(i < hi)[:, None], other=0.0)
        m = tl.full((BM,), float("-inf"), tl.float32)
        l = tl.zeros((BM,), tl.float32)
        acc = tl.zeros((BM, D), tl.float32)
        for s0 in range(lo, hi, BN):
            s = s0 + tl.arange(0, BN)
            kt = tl.load(k + (s[None, :] * H + head) * D + d[:, None], mask=(s < hi)[None, :], other=0.0)
            x = tl.where((s < hi)[None, :], tl.dot(qt, kt) * scale, float("-inf"))
            m1 = tl.maximum(m, tl.max(x, 1))
            p = tl.exp(x - m1[:, None])
            f = tl.exp(m - m1)
            vt = tl.load(v + (s[:, None] * H + head) * D + d[None, :], mask=(s < hi)[:, None], other=0.0)
            acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
            l = l * f + tl.sum(p, 1)
            m = m1
        tl.store(o + (i[:, None] * H + head) * D + d[None, :], acc / l[:, None], mask=(i < hi)[:, None])


def run(q, k, v, cu_seqlens):
    total_q, H, D = q.shape
    seq, start = map_query_tiles(cu_seqlens)
    num_tiles = seq.numel()
    programs = min(num_tiles * H, torch.cuda.get_device_properties(q.device).multi_processor_count)
    o = torch.empty((total_q, H, D), dtype=torch.float32, device=q.device)
    encoder_fwd[(programs,)](q, k, v, o, cu_seqlens, seq, start, num_tiles, D**-0.5, H=H, D=D, BM=32, BN=32)
    return o
