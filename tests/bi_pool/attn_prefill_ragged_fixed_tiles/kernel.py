import torch
import triton
import triton.language as tl

TILE = {"BLOCK_M": 32, "BLOCK_N": 32}


@triton.jit
def varlen_fwd(q, k, v, o, cu, scale, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    seq = tl.program_id(2)
    lo = tl.load(cu + seq)
    length = tl.load(cu + seq + 1) - lo
    if start_m >= length:
        return
    kvh = head // (HQ // HK)
    i = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    i_ok = (i < length)[:, None]
    qt = tl.load(q + ((lo + i[:, None]) * HQ + head) * D + d[None, :], mask=i_ok, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in range(0, tl.minimum(start_m + BLOCK_M, length), BLOCK_N):
        j = start_n + tl.arange(0, BLOCK_N)
        kt = tl.load(k + ((lo + j[None, :]) * HK + kvh) * D + d[:, None], mask=(j < length)[None, :], other=0.0)
        s = tl.dot(qt, kt) * scale
        s = tl.where((j[None, :] <= i[:, None]) & (j < length)[None, :], s, float("-inf"))
        m1 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m1[:, None])
        f = tl.exp(m - m1)
        vt = tl.load(v + ((lo + j[:, None]) * HK + kvh) * D + d[None, :], mask=(j < length)[:, None], other=0.0)
        acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
        l = l * f + tl.sum(p, 1)
        m = m1
    tl.store(o + ((lo + i[:, None]) * HQ + head) * D + d[None, :], acc / l[:, None], mask=i_ok)


def run(q, k, v, cu_seqlens):
    total, HQ, D = q.shape
    num_seqs = cu_seqlens.numel() - 1
    max_len = int(torch.diff(cu_seqlens).max().item())
    o = torch.empty((total, HQ, D), dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(max_len, TILE["BLOCK_M"]), HQ, num_seqs)
    varlen_fwd[grid](q, k, v, o, cu_seqlens, D**-0.5, HQ=HQ, HK=k.shape[1], D=D, **TILE)
    return o
