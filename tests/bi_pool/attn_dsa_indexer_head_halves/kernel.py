"""Lightning indexer: score[b, s] = sum_h w[b, h] * relu(q[b, h] . k[s])."""

import torch
import triton
import triton.language as tl


@triton.jit
def indexer_kernel(q_ptr, w_ptr, k_ptr, s_ptr, S, H: tl.constexpr, HEADS_PER_PROG: tl.constexpr,
                   D: tl.constexpr, BLOCK_S: tl.constexpr):
    b = tl.program_id(0)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    h0 = tl.program_id(2) * HEADS_PER_PROG
    d = tl.arange(0, D)
    k = tl.load(k_ptr + s[:, None] * D + d[None, :], mask=(s < S)[:, None], other=0.0).to(tl.float32)
    score = tl.zeros((BLOCK_S,), tl.float32)
    for h in range(h0, h0 + HEADS_PER_PROG):
        q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32)
        logit = tl.sum(k * q[None, :], axis=1)
        score += tl.load(w_ptr + b * H + h) * tl.maximum(logit, 0.0)
    out = s_ptr + b * S + s
    if HEADS_PER_PROG == H:
        tl.store(out, score, mask=s < S)
    else:
        tl.atomic_add(out, score, mask=s < S)


def run(q, head_weights, k):
    num_tokens, H, D = q.shape
    S = k.shape[0]
    heads_per_prog = H // 2 if num_tokens <= 32 else H
    scores = torch.zeros((num_tokens, S), dtype=torch.float32, device=q.device)
    indexer_kernel[(num_tokens, triton.cdiv(S, 64), H // heads_per_prog)](
        q, head_weights, k, scores, S, H=H, HEADS_PER_PROG=heads_per_prog, D=D, BLOCK_S=64)
    return scores
