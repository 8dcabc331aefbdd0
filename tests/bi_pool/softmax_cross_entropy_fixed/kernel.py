import torch
import triton
import triton.language as tl

IGNORE = -100


@triton.jit
def ce_forward(x_ptr, t_ptr, loss_ptr, lse_ptr, V, ignore_index, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * V
    m = -float("inf")
    s = 0.0
    for i in tl.range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < V, other=-float("inf")).to(tl.float32)
        n = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - n) + tl.sum(tl.exp(x - n), axis=0)
        m = n
    lse = m + tl.log(s)
    target = tl.load(t_ptr + row)
    keep = target != ignore_index
    logit = tl.load(x_ptr + tl.where(keep, target, 0)).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(keep, lse - logit, 0.0))
    tl.store(lse_ptr + row, lse)


def run(logits, targets):
    num_tokens, vocab = logits.shape
    loss = torch.empty(num_tokens, device=logits.device, dtype=torch.float32)
    lse = torch.empty_like(loss)
    block = min(4096, triton.next_power_of_2(vocab))
    ce_forward[(num_tokens,)](logits, targets, loss, lse, vocab, IGNORE, BLOCK=block, num_warps=8)
    return loss, lse
