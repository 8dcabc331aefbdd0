"""Dense prefill with a resident grid: programs draw the next tile from a counter until none is left."""
import torch
import triton
import triton.language as tl


@triton.jit
def attend_tile(Q, K, V, O, bh, tile, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    here = (bh * T + rm[:, None]) * D + d[None, :]
    q = tl.load(Q + here, mask=(rm < T)[:, None], other=0.0)
    m = tl.full([BM], -1.0e30, tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n0 in range(0, tl.minimum(T, (tile + 1) * BM), BN):
        rn = n0 + tl.arange(0, BN)
        there = (bh * T + rn[:, None]) * D + d[None, :]
        k = tl.load(K + there, mask=(rn < T)[:, None], other=0.0)
        v = tl.load(V + there, mask=(rn < T)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((rm[:, None] >= rn[None, :]) & (rn < T)[None, :], s, -1.0e30)
        m2 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m2[:, None])
        r = tl.exp(m - m2)
        acc = tl.dot(p.to(v.dtype), v, acc * r[:, None])
        l = l * r + tl.sum(p, 1)
        m = m2
    tl.store(O + here, acc / l[:, None], mask=(rm < T)[:, None])


@triton.jit
def crew(Q, K, V, O, NEXT, total, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tiles = tl.cdiv(T, BM)
    job = tl.atomic_add(NEXT, 1)
    while job < total:
        # the longest tiles (late queries) first
        attend_tile(Q, K, V, O, job // tiles, tiles - 1 - job % tiles, T, scale, D, BM, BN)
        job = tl.atomic_add(NEXT, 1)


class CausalAttention(torch.nn.Module):
    def __init__(self, block_m: int = 64):
        super().__init__()
        self.block_m = block_m

    def forward(self, q, k, v):
        B, H, T, D = q.shape
        bn = 32 if T < 256 else 64
        total = B * H * triton.cdiv(T, self.block_m)
        sms = torch.cuda.get_device_properties(q.device).multi_processor_count
        workers = min(2 * sms, total)
        counter = torch.zeros(1, dtype=torch.int32, device=q.device)
        o = torch.empty((B, H, T, D), dtype=torch.float32, device=q.device)
        crew[(workers,)](q, k, v, o, counter, total, T, D**-0.5, D=D, BM=self.block_m, BN=bn, num_warps=4)
        return o


def run(q, k, v):
    return CausalAttention()(q.contiguous(), k.contiguous(), v.contiguous())
