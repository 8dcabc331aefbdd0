import torch
import triton
import triton.language as tl

CHUNK = 1024


@triton.jit
def _mass(x_ptr, row, V, top, CHUNK: tl.constexpr):
    total = 0.0
    for i in range(0, V, CHUNK):
        c = i + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - top), axis=0)
    return total


@triton.jit
def multinomial(x_ptr, u_ptr, tok_ptr, mass_ptr, V, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    for i in range(0, V, CHUNK):
        c = i + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=0))
    total = _mass(x_ptr, row, V, top, CHUNK)
    threshold = tl.load(u_ptr + row) * total
    token = 0
    carry = 0.0
    for i in range(0, V, CHUNK):
        c = i + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
        cdf = carry + tl.cumsum(tl.exp(x - top), axis=0)
        token += tl.sum(((cdf <= threshold) & (c < V)).to(tl.int32), axis=0)
        carry += tl.sum(tl.exp(x - top), axis=0)
    tl.store(tok_ptr + row, tl.minimum(token, V - 1))
    tl.store(mass_ptr + row, total)


def run(logits, uniforms):
    batch_size, vocab = logits.shape
    tokens = torch.empty(batch_size, dtype=torch.int32, device=logits.device)
    mass = torch.empty(batch_size, dtype=torch.float32, device=logits.device)
    multinomial[(batch_size,)](logits, uniforms, tokens, mass, vocab, CHUNK=CHUNK)
    return tokens, mass
