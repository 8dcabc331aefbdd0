"""Gumbel sampling with a key and a step a request: the random stream belongs to the request, not to its slot."""
import torch
import triton
import triton.language as tl

NUM_SPLITS = 4


@triton.jit
def _candidates(x_ptr, key_ptr, step_ptr, val_ptr, idx_ptr, V, SPAN: tl.constexpr, NUM_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    sp = tl.program_id(1)
    seed = tl.load(key_ptr + row)
    step = tl.load(step_ptr + row)
    c = sp * SPAN + tl.arange(0, SPAN)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf"))
    u = tl.rand(seed, step * V + c)
    z = x - tl.log(-tl.log(tl.maximum(u, 1e-9)) + 1e-9)
    z = tl.where(c < V, z, -float("inf"))
    tl.store(val_ptr + row * NUM_SPLITS + sp, tl.max(z, 0))
    tl.store(idx_ptr + row * NUM_SPLITS + sp, sp * SPAN + tl.argmax(z, 0))


@triton.jit
def _final(val_ptr, idx_ptr, out_ptr, NUM_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, NUM_SPLITS)
    win = tl.argmax(tl.load(val_ptr + row * NUM_SPLITS + i), 0)
    tl.store(out_ptr + row, tl.load(idx_ptr + row * NUM_SPLITS + win))


def run(logits, keys, steps):
    num_requests, vocab = logits.shape
    span = triton.next_power_of_2(triton.cdiv(vocab, NUM_SPLITS))
    vals = torch.empty((num_requests, NUM_SPLITS), dtype=torch.float32, device=logits.device)
    idxs = torch.empty((num_requests, NUM_SPLITS), dtype=torch.int32, device=logits.device)
    _candidates[(num_requests, NUM_SPLITS)](logits, keys, steps, vals, idxs, vocab, span, NUM_SPLITS)
    out = torch.empty(num_requests, dtype=torch.int32, device=logits.device)
    _final[(num_requests,)](vals, idxs, out, NUM_SPLITS)
    return out
