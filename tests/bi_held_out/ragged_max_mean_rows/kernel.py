"""Mean and maximum over the tokens of a packed sequence, each program owning one sequence and some features."""
import torch
import triton
import triton.language as tl


@triton.jit
def own_rows(TOK, CU, MEAN, TOPV, width, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    seq = tl.program_id(0)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    begin = tl.load(CU + seq)
    end = tl.load(CU + seq + 1)
    total = tl.zeros([BLOCK_D], tl.float32)
    peak = tl.full([BLOCK_D], -float("inf"), tl.float32)
    for t0 in range(begin, end, BLOCK_T):
        t = t0 + tl.arange(0, BLOCK_T)
        ok = (t < end)[:, None] & (d < width)[None, :]
        x = tl.load(TOK + t[:, None] * width + d[None, :], mask=ok, other=0.0).to(tl.float32)
        total += tl.sum(x, 0)
        peak = tl.maximum(peak, tl.max(tl.where(ok, x, -float("inf")), 0))
    count = tl.maximum(end - begin, 1).to(tl.float32)
    tl.store(MEAN + seq * width + d, total / count, mask=d < width)
    tl.store(TOPV + seq * width + d, peak, mask=d < width)


@torch.no_grad()
def pool(tokens, cu_seqlens):
    num_seqs = len(cu_seqlens) - 1
    total_tokens, width = tokens.shape
    mean = torch.empty((num_seqs, width), dtype=torch.float32, device=tokens.device)
    peak = torch.empty_like(mean)
    if total_tokens == 0:
        return mean.zero_(), peak.zero_()
    block_d = min(128, triton.next_power_of_2(width))
    own_rows[num_seqs, triton.cdiv(width, block_d)](tokens, cu_seqlens, mean, peak, width, BLOCK_T=32,
                                                    BLOCK_D=block_d, num_warps=4)
    return mean, peak


def run(tokens, cu_seqlens):
    return pool(tokens.contiguous(), cu_seqlens)
