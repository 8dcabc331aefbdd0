import torch
import triton
import triton.language as tl


@triton.jit
def greedy(x_ptr, tok_ptr, lp_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    arg = 0
    total = 0.0
    for i in range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
        top, at = tl.max(x, axis=0, return_indices=True)
        new = tl.maximum(best, top)
        total = total * tl.exp(best - new) + tl.sum(tl.exp(x - new), axis=0)
        arg = tl.where(top > best, i + at, arg)
        best = new
    tl.store(tok_ptr + row, arg)
    tl.store(lp_ptr + row, -tl.log(total))


def run(logits):
    num_seqs, vocab = logits.shape
    tokens = torch.empty(num_seqs, device=logits.device, dtype=torch.int32)
    logprob = torch.empty(num_seqs, device=logits.device, dtype=torch.float32)
    greedy[(num_seqs,)](logits, tokens, logprob, vocab, BLOCK=min(4096, triton.next_power_of_2(vocab)))
    return tokens, logprob
