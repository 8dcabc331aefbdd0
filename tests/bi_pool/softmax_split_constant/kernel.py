import torch
import triton
import triton.language as tl

NUM_SPLITS = 8
CONFIG = {"SPLITS": NUM_SPLITS, "BLOCK": 2048, "num_warps": 4}


@triton.jit
def _lse_parts(x_ptr, part_ptr, V, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    span = tl.cdiv(V, SPLITS)
    m = -float("inf")
    s = 0.0
    for k in range(0, span, BLOCK):
        i = k + tl.arange(0, BLOCK)
        ok = (i < span) & (split * span + i < V)
        x = tl.load(x_ptr + row * V + split * span + i, mask=ok, other=-float("inf")).to(tl.float32)
        mn = tl.maximum(m, tl.max(x, 0))
        s = s * tl.exp(m - mn) + tl.sum(tl.exp(x - mn), 0)
        m = mn
    tl.store(part_ptr + row * SPLITS + split, m + tl.log(s))


@triton.jit
def _emit(x_ptr, part_ptr, y_ptr, lse_ptr, V, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    parts = tl.load(part_ptr + row * SPLITS + tl.arange(0, SPLITS))
    m = tl.max(parts, 0)
    lse = m + tl.log(tl.sum(tl.exp(parts - m), 0))
    if tile == 0:
        tl.store(lse_ptr + row, lse)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * V + c, tl.exp(x - lse), mask=c < V)


def run(logits):
    num_tokens, vocab = logits.shape
    parts = torch.empty((num_tokens, NUM_SPLITS), device=logits.device, dtype=torch.float32)
    lse = torch.empty(num_tokens, device=logits.device, dtype=torch.float32)
    probs = torch.empty((num_tokens, vocab), device=logits.device, dtype=torch.float32)
    _lse_parts[(num_tokens, NUM_SPLITS)](logits, parts, vocab, **CONFIG)
    _emit[(num_tokens, triton.cdiv(vocab, CONFIG["BLOCK"]))](logits, parts, probs, lse, vocab, **CONFIG)
    return probs, lse
