import torch
import triton
import triton.language as tl


@triton.jit
def gumbel_argmax(logits_ptr, token_ptr, score_ptr, V, inv_temp, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    arg = 0
    for i in range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        z = tl.load(logits_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32) * inv_temp
        u = tl.rand(seed, row * V + c)
        g = z - tl.log(-tl.log(tl.maximum(u, 1e-7)))
        g = tl.where(c < V, g, -float("inf"))
        top, at = tl.max(g, axis=0, return_indices=True)
        arg = tl.where(top > best, i + at, arg)
        best = tl.maximum(best, top)
    tl.store(token_ptr + row, arg.to(tl.int64))
    tl.store(score_ptr + row, best)


def run(logits):
    bsz, vocab = logits.shape
    tokens = torch.empty(bsz, device=logits.device, dtype=torch.int64)
    scores = torch.empty(bsz, device=logits.device, dtype=torch.float32)
    gumbel_argmax[(bsz,)](logits, tokens, scores, vocab, 1.0 / 0.8, 42, BLOCK=1024)
    return tokens, scores
