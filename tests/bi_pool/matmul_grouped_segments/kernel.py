import torch
import triton
import triton.language as tl

split_k = 2


@triton.jit
def segment_gemm(x, cu, which, w, ws, total_tokens, K, N: tl.constexpr, SPLIT: tl.constexpr,
                 BM: tl.constexpr, BK: tl.constexpr):
    seg = tl.program_id(0)
    part = tl.program_id(2)
    first = tl.load(cu + seg) + tl.program_id(1) * BM
    last = tl.load(cu + seg + 1)
    if first >= last:
        return
    e = tl.load(which + seg)
    rows = first + tl.arange(0, BM)
    cols = tl.arange(0, N)
    inside = (rows < last)[:, None]
    acc = tl.zeros((BM, N), dtype=tl.float32)
    for k0 in range(part * (K // SPLIT), (part + 1) * (K // SPLIT), BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=inside, other=0.0)
        b = tl.load(w + (e * K + k[:, None]) * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(ws + (part * total_tokens + rows[:, None]) * N + cols[None, :], acc, mask=inside)


def run(x, cu_seqlens, expert_of, weights):
    total_tokens, K = x.shape
    num_seqs = cu_seqlens.shape[0] - 1
    N = weights.shape[2]
    longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    ws = torch.empty((split_k, total_tokens, N), dtype=torch.float32, device=x.device)
    segment_gemm[(num_seqs, triton.cdiv(longest, 16), split_k)](
        x, cu_seqlens, expert_of, weights, ws, total_tokens, K, N=N, SPLIT=split_k, BM=16, BK=64)
    return ws[0] + ws[1]
