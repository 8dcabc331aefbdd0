"""Packed causal prefill with a flat grid: total_q bounds the number of tiles, each program looks up its sequence."""
import torch
import triton
import triton.language as tl


@triton.jit
def find_sequence(CU, num_seqs, tile, BLOCK_M: tl.constexpr):
    # sequence i owns tiles cu[i] // BLOCK_M + i and following
    lo = tile * 0
    hi = lo + num_seqs
    while lo + 1 < hi:
        mid = (lo + hi) // 2
        if tl.load(CU + mid) // BLOCK_M + mid <= tile:
            lo = mid
        else:
            hi = mid
    return lo


@triton.jit
def prefill(Q, K, V, O, CU, num_seqs, scale, H: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
            BLOCK_N: tl.constexpr):
    tile = tl.program_id(0)
    h = tl.program_id(1)
    seq = find_sequence(CU, num_seqs, tile, BLOCK_M)
    first = tl.load(CU + seq)
    length = tl.load(CU + seq + 1) - first
    local = tile - (first // BLOCK_M + seq)
    if local * BLOCK_M >= length:
        return
    rm = local * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    qp = ((first + rm)[:, None] * H + h) * D + d[None, :]
    q = tl.load(Q + qp, mask=(rm < length)[:, None], other=0.0)
    m = tl.full([BLOCK_M], -1.0e30, tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for n0 in range(0, tl.minimum((local + 1) * BLOCK_M, length), BLOCK_N):
        rn = n0 + tl.arange(0, BLOCK_N)
        kp = ((first + rn)[:, None] * H + h) * D + d[None, :]
        k = tl.load(K + kp, mask=(rn < length)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((rm[:, None] >= rn[None, :]) & (rn < length)[None, :], s, -1.0e30)
        m2 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m2[:, None])
        r = tl.exp(m - m2)
        v = tl.load(V + kp, mask=(rn < length)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * r[:, None])
        l = l * r + tl.sum(p, 1)
        m = m2
    tl.store(O + qp, acc / l[:, None], mask=(rm < length)[:, None])


def run(q, k, v, cu_seqlens):
    total_q, H, D = q.shape
    num_seqs = cu_seqlens.numel() - 1
    out = torch.empty((total_q, H, D), dtype=torch.float32, device=q.device)
    BLOCK_M = 64
    tiles = total_q // BLOCK_M + num_seqs  # never fewer than needed, so nothing is read back from the device
    prefill[(tiles, H)](q, k, v, out, cu_seqlens, num_seqs, D**-0.5, H=H, D=D, BLOCK_M=BLOCK_M, BLOCK_N=64,
                        num_warps=4, num_stages=2)
    return out
