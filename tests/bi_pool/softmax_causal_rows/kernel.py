import torch
import triton
import triton.language as tl


@triton.jit
def causal_softmax(s_ptr, p_ptr, seq_q, seq_k, scale, TILE_K: tl.constexpr):
    i = tl.program_id(0)
    bh = tl.program_id(1)
    base = (bh * seq_q + i) * seq_k
    last = seq_k - seq_q + i
    m = -float("inf")
    z = 0.0
    for k in range(0, last + 1, TILE_K):
        c = k + tl.arange(0, TILE_K)
        s = tl.load(s_ptr + base + c, mask=c <= last, other=-float("inf")) * scale
        mn = tl.maximum(m, tl.max(s, 0))
        z = z * tl.exp(m - mn) + tl.sum(tl.exp(s - mn), 0)
        m = mn
    for k in range(0, seq_k, TILE_K):
        c = k + tl.arange(0, TILE_K)
        s = tl.load(s_ptr + base + c, mask=(c <= last) & (c < seq_k), other=-float("inf")) * scale
        tl.store(p_ptr + base + c, tl.exp(s - m) / z, mask=c < seq_k)


def run(scores):
    bh, seq_q, seq_k = scores.shape
    probs = torch.empty_like(scores)
    num_k_splits = max(1, seq_k // 128)
    tile_k = triton.next_power_of_2(triton.cdiv(seq_k, num_k_splits))
    causal_softmax[(seq_q, bh)](scores, probs, seq_q, seq_k, 0.0883, TILE_K=tile_k, num_warps=2)
    return probs
