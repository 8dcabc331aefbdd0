"""Paper case H.1: windows put back, rolled, cropped, added to the residual and normalised, in one kernel.

One program a row of C channels. Nothing is moved: row (y, x) of the result reads row ((y - 3) mod S, (x - 3) mod S) of
the windows, adds the residual, and holds the row in registers for its mean and variance.
"""

import torch
import triton
import triton.language as tl

# route -> (S, SC): the grid of windows is S x S, the feature map that is kept SC x SC
ROUTES = {
    "133x96": (133, 128),
    "70x192": (70, 64),
    "35x384": (35, 32),
    "35x48": (35, 32),
    "21x96": (21, 16),
    "14x192": (14, 8),
}
SHIFT_BACK = 3  # torch.roll(shifts=(3, 3)): element (y, x) of the result came from (y - 3, x - 3), around the edge
EPS = 1e-05


@triton.jit
def _kernel(bias, weight, residual, windows, o_sum, o_norm, side, size, channels, back, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y = (row // size + side - back) % side  # + side: the remainder of a negative number is negative here
    x = (row % size + side - back) % side
    c = tl.arange(0, BLOCK)
    mask = c < channels
    moved = tl.load(windows + (y * side + x) * channels + c, mask=mask, other=0.0).to(tl.float32)
    total = tl.load(residual + row * channels + c, mask=mask, other=0.0).to(tl.float32) + moved
    # the sum is an output: what is normalised is the sum as it was stored
    total = total.to(o_sum.dtype.element_ty).to(tl.float32)
    tl.store(o_sum + row * channels + c, total, mask=mask)
    mean = tl.sum(total, 0) / channels
    centred = tl.where(mask, total - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / channels + eps)
    w = tl.load(weight + c, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(bias + c, mask=mask, other=0.0).to(tl.float32)
    tl.store(o_norm + row * channels + c, centred * scale * w + b, mask=mask)


@torch.fx.wrap
def window_layernorm(bias, weight, residual, windows, route):
    side, size = ROUTES[route]
    channels = residual.shape[2]
    o_sum = torch.empty_like(residual)
    o_norm = torch.empty_like(residual)
    _kernel[(size * size,)](
        bias,
        weight,
        residual.contiguous(),
        windows.contiguous(),
        o_sum,
        o_norm,
        side,
        size,
        channels,
        SHIFT_BACK,
        EPS,
        BLOCK=triton.next_power_of_2(channels),
        num_warps=1 if channels <= 128 else 4,
    )
    return o_sum, o_norm
