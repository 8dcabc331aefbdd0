import torch
import triton
import triton.language as tl


@triton.jit
def request_gumbel(x_ptr, seed_ptr, pos_ptr, tok_ptr, score_ptr, V, inv_t, BLOCK: tl.constexpr):
    req = tl.program_id(0)
    seed = tl.load(seed_ptr + req).to(tl.int32)
    pos = tl.load(pos_ptr + req)
    best = -float("inf")
    arg = 0
    for i in range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + req * V + c, mask=c < V, other=-float("inf")).to(tl.float32) * inv_t
        u = tl.maximum(tl.rand(seed, pos * V + c), 1e-7)
        score = tl.where(c < V, x - tl.log(-tl.log(u)), -float("inf"))
        top, at = tl.max(score, axis=0, return_indices=True)
        arg = tl.where(top > best, i + at, arg)
        best = tl.maximum(best, top)
    tl.store(tok_ptr + req, arg)
    tl.store(score_ptr + req, best)


def run(logits, seeds, positions):
    num_requests, vocab = logits.shape
    tokens = torch.empty(num_requests, dtype=torch.int32, device=logits.device)
    scores = torch.empty(num_requests, dtype=torch.float32, device=logits.device)
    request_gumbel[(num_requests,)](logits, seeds, positions, tokens, scores, vocab, 2.0, BLOCK=2048, num_warps=4)
    return tokens, scores
