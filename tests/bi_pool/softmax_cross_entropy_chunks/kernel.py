"""Per-token cross entropy of speculative drafts, forward only."""

import torch
import triton
import triton.language as tl
from ce_chunking import ce_settings


@triton.jit
def _cross_entropy(logits_ptr, target_ptr, loss_ptr, denom_ptr, V, BLOCK_V: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    logits_ptr += t * V
    m = float("-inf")
    d = 0.0
    for v in range(0, V, BLOCK_V):
        offs = v + tl.arange(0, BLOCK_V)
        block = tl.load(logits_ptr + offs, mask=offs < V, other=float("-inf")).to(tl.float32)
        block_max = tl.max(block)
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(block - m_new))
        m = m_new
    tl.store(denom_ptr + t, d)
    y = tl.load(target_ptr + t)
    picked = tl.load(logits_ptr + y).to(tl.float32)
    tl.store(loss_ptr + t, m + tl.log(d) - picked)


def run(logits, targets):
    vocab = logits.shape[-1]
    num_tokens = targets.numel()
    loss = torch.empty(targets.shape, dtype=torch.float32, device=logits.device)
    denom = torch.empty_like(loss)
    block_v, num_warps = ce_settings(num_tokens, vocab)
    _cross_entropy[(num_tokens,)](logits, targets, loss, denom, vocab, BLOCK_V=block_v, num_warps=num_warps)
    return loss, denom
