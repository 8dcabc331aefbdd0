import torch
import triton
import triton.language as tl


@triton.jit
def _part(x_ptr, v_ptr, i_ptr, V, SPAN: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    c = part * SPAN + tl.arange(0, SPAN)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    value, at = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(v_ptr + row * tl.num_programs(1) + part, value)
    tl.store(i_ptr + row * tl.num_programs(1) + part, part * SPAN + at)


@triton.jit
def _pick(v_ptr, i_ptr, tok_ptr, val_ptr, parts):
    row = tl.program_id(0)
    best = -float("inf")
    arg = 0
    for p in range(parts):
        v = tl.load(v_ptr + row * parts + p)
        i = tl.load(i_ptr + row * parts + p)
        # strictly greater: the earlier part keeps a tie
        arg = tl.where(v > best, i, arg)
        best = tl.maximum(best, v)
    tl.store(tok_ptr + row, arg)
    tl.store(val_ptr + row, best)


def run(logits):
    num_tokens, V = logits.shape
    span = 1024 if num_tokens <= 16 else 4096 if num_tokens <= 64 else 16384
    num_splits = triton.cdiv(V, span)
    values = torch.empty((num_tokens, num_splits), device=logits.device, dtype=torch.float32)
    indices = torch.empty((num_tokens, num_splits), device=logits.device, dtype=torch.int32)
    tokens = torch.empty(num_tokens, device=logits.device, dtype=torch.int32)
    best = torch.empty(num_tokens, device=logits.device, dtype=torch.float32)
    _part[(num_tokens, num_splits)](logits, values, indices, V, SPAN=span)
    _pick[(num_tokens,)](values, indices, tokens, best, num_splits)
    return tokens, best
