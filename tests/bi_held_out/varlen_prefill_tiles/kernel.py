"""Causal attention over packed sequences (prefill); tile sizes come from a small table."""
import torch
import triton
import triton.language as tl


@triton.jit
def packed_causal(Q, K, V, O, CU, scale, H: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
                  BLOCK_N: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    tile = tl.program_id(2)
    first = tl.load(CU + seq)
    length = tl.load(CU + seq + 1) - first
    if tile * BLOCK_M >= length:
        return
    rm = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    qp = ((first + rm[:, None]) * H + head) * D + d[None, :]
    q = tl.load(Q + qp, mask=(rm < length)[:, None], other=0.0)
    m = tl.full([BLOCK_M], -1.0e30, tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for n0 in range(0, tl.minimum(length, (tile + 1) * BLOCK_M), BLOCK_N):
        rn = n0 + tl.arange(0, BLOCK_N)
        kp = ((first + rn[:, None]) * H + head) * D + d[None, :]
        k = tl.load(K + kp, mask=(rn < length)[:, None], other=0.0)
        v = tl.load(V + kp, mask=(rn < length)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((rm[:, None] >= rn[None, :]) & (rn < length)[None, :], s, -1.0e30)
        m2 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m2[:, None])
        f = tl.exp(m - m2)
        acc = tl.dot(p.to(v.dtype), v, acc * f[:, None])
        l = l * f + tl.sum(p, 1)
        m = m2
    tl.store(O + qp, acc / l[:, None], mask=(rm < length)[:, None])


TABLE = (
    # tokens in flight at most, keys a step, warps
    (512, 32, 4),
    (4096, 64, 4),
    (1 << 62, 128, 8),
)


def lookup(tokens):
    for bound, keys, warps in TABLE:
        if tokens <= bound:
            return keys, warps
    raise AssertionError("the last bound is never reached")


def run(q, k, v, cu_seqlens):
    total_q, H, D = q.shape
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    keys, warps = lookup(total_q)
    out = torch.empty((total_q, H, D), dtype=torch.float32, device=q.device)
    grid = (lengths.numel(), H, triton.cdiv(int(lengths.max()), 64))
    packed_causal[grid](q, k, v, out, cu_seqlens, D**-0.5, H=H, D=D, BLOCK_M=64, BLOCK_N=keys, num_warps=warps)
    return out
