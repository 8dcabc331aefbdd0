import torch
import triton
import triton.language as tl

NUM_SPLITS = 8


@triton.jit
def split_best(x_ptr, seed_ptr, val_ptr, idx_ptr, V, WIDTH: tl.constexpr, NUM_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    split = tl.program_id(1)
    c = split * WIDTH + tl.arange(0, WIDTH)
    seed = tl.load(seed_ptr + row)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    u = tl.maximum(tl.rand(seed, c), 1e-7)
    score = tl.where(c < V, x - tl.log(-tl.log(u)), -float("inf"))
    value, at = tl.max(score, axis=0, return_indices=True)
    tl.store(val_ptr + row * NUM_SPLITS + split, value)
    tl.store(idx_ptr + row * NUM_SPLITS + split, split * WIDTH + at)


@triton.jit
def pick_best(val_ptr, idx_ptr, tok_ptr, best_ptr, NUM_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, NUM_SPLITS)
    value, at = tl.max(tl.load(val_ptr + row * NUM_SPLITS + k), axis=0, return_indices=True)
    tl.store(tok_ptr + row, tl.load(idx_ptr + row * NUM_SPLITS + at))
    tl.store(best_ptr + row, value)


def run(logits, seeds):
    num_requests, V = logits.shape
    values = torch.empty((num_requests, NUM_SPLITS), device=logits.device, dtype=torch.float32)
    indices = torch.empty((num_requests, NUM_SPLITS), device=logits.device, dtype=torch.int32)
    tokens = torch.empty(num_requests, device=logits.device, dtype=torch.int32)
    best = torch.empty(num_requests, device=logits.device, dtype=torch.float32)
    width = triton.next_power_of_2(triton.cdiv(V, NUM_SPLITS))
    split_best[(num_requests, NUM_SPLITS)](logits, seeds, values, indices, V, WIDTH=width, NUM_SPLITS=NUM_SPLITS)
    pick_best[(num_requests,)](values, indices, tokens, best, NUM_SPLITS=NUM_SPLITS)
    return tokens, best
