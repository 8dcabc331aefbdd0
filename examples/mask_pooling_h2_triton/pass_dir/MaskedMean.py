"""Paper case H.2: the mean over the tokens that a mask keeps, [B, S, D] -> [B, D], one rule for all shapes.

One program a sentence and block of 128 columns; it walks over the tokens with two sums in registers. A float32 mask
times a half tensor is float32, so the result is float32 whatever the input, and nothing is rounded on the way.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(mask, hidden, out, tokens, width, m0, m1, m2, h0, h1, h2, BLOCK: tl.constexpr, STEP: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((STEP, BLOCK), tl.float32)
    count = tl.zeros((STEP, BLOCK), tl.float32)
    for start in range(0, tokens, STEP):  # STEP tokens at a time keep enough loads in flight
        t = start + tl.arange(0, STEP)
        inside = (t < tokens)[:, None] & (d < width)[None, :]
        m = tl.load(mask + b * m0 + t[:, None] * m1 + d[None, :] * m2, mask=inside, other=0).to(tl.float32)
        x = tl.load(hidden + b * h0 + t[:, None] * h1 + d[None, :] * h2, mask=inside, other=0.0).to(tl.float32)
        total += x * m
        count += m
    mean = tl.sum(total, 0) / tl.maximum(tl.sum(count, 0), 1e-09)
    tl.store(out + b * width + d, mean, mask=d < width)


@torch.fx.wrap
def masked_mean(mask, hidden):
    batch, tokens, width = hidden.shape
    out = torch.empty((batch, width), dtype=torch.float32, device=hidden.device)
    # strides are passed, so an expanded mask (stride 0) needs no copy
    _kernel[(batch, triton.cdiv(width, 128))](
        mask,
        hidden,
        out,
        tokens,
        width,
        mask.stride(0),
        mask.stride(1),
        mask.stride(2),
        hidden.stride(0),
        hidden.stride(1),
        hidden.stride(2),
        BLOCK=128,
        STEP=8,
    )
    return out


def pattern(in_0, in_1):
    tmp_0 = in_0.to(torch.float32)
    tmp_1 = in_1 * tmp_0
    tmp_2 = torch.sum(tmp_1, 1)
    tmp_3 = tmp_0.sum(1)
    tmp_4 = torch.clamp(tmp_3, min=1e-09)
    tmp_5 = tmp_2 / tmp_4
    tmp_6 = torch.cat([tmp_5], 1)
    return tmp_6


def replacement_args(in_0, in_1):
    return (in_0, in_1)


def replacement_func():
    return masked_mean
