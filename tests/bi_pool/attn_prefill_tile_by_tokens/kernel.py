import torch
import triton
import triton.language as tl


def kv_tile(total_q):
    """Small launches want short tiles for latency, large ones long tiles for throughput."""
    for limit, tile in ((1024, 32), (4096, 64)):
        if total_q <= limit:
            return tile
    return 128


@triton.jit
def prefill_kernel(Q, K, V, O, CU, scale, H: tl.constexpr, D: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    blk = tl.program_id(2)
    begin = tl.load(CU + seq)
    n = tl.load(CU + seq + 1) - begin
    if blk * BLOCK_M >= n:
        return
    rm = blk * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(Q + ((begin + rm)[:, None] * H + head) * D + d[None, :], mask=(rm < n)[:, None], other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, tl.minimum((blk + 1) * BLOCK_M, n), BLOCK_N):
        rn = start + tl.arange(0, BLOCK_N)
        k = tl.load(K + ((begin + rn)[None, :] * H + head) * D + d[:, None], mask=(rn < n)[None, :], other=0.0)
        s = tl.dot(q, k) * scale
        s = tl.where((rm[:, None] >= rn[None, :]) & (rn < n)[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        v = tl.load(V + ((begin + rn)[:, None] * H + head) * D + d[None, :], mask=(rn < n)[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * alpha + tl.sum(p, 1)
        m = m_new
    tl.store(O + ((begin + rm)[:, None] * H + head) * D + d[None, :], acc / l[:, None], mask=(rm < n)[:, None])


def run(q, k, v, cu_seqlens):
    total_q, H, D = q.shape
    o = torch.empty((total_q, H, D), dtype=torch.float32, device=q.device)
    longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    grid = (cu_seqlens.shape[0] - 1, H, triton.cdiv(longest, 32))
    prefill_kernel[grid](q, k, v, o, cu_seqlens, D**-0.5, H=H, D=D, BLOCK_M=32, BLOCK_N=kv_tile(total_q))
    return o
