"""Paper case H.1: windows put back, rolled, cropped, added to the residual and normalised, in one pass over the rows.

Eager makes six kernels of it and copies the whole map three times. Here nothing is moved: row (y, x) of the result
reads row ((y - 3) mod S, (x - 3) mod S) of the windows, adds the residual, and has its mean and variance at hand.
"""

import math

import numba
import numpy as np
import torch
from pass_dir.half import SHIFT, F, load, rnd, store

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


# the sums may run in any order, as eager's do: that lets them use vector registers
@numba.njit(error_model="numpy", fastmath={"reassoc", "nsz"})
def _kernel(bias, weight, residual, windows, o_sum, o_norm, size, s):
    side, channels = windows.shape[0], residual.shape[1]
    for row in range(residual.shape[0]):
        y = (row // size - SHIFT_BACK) % side
        x = (row % size - SHIFT_BACK) % side
        total = 0.0
        for c in range(channels):
            value = rnd(residual[row, c] + windows[y, x, c], s)  # the sum is an output, rounded as eager stores it
            o_sum[row, c] = value
            total += value
        mean = F(total / channels)
        total = 0.0
        for c in range(channels):
            centred = o_sum[row, c] - mean
            total += centred * centred
        scale = F(1) / math.sqrt(F(total / channels) + F(EPS))
        for c in range(channels):
            o_norm[row, c] = rnd((o_sum[row, c] - mean) * scale * weight[c] + bias[c], s)


@torch.fx.wrap
def window_layernorm(bias, weight, residual, windows, route):
    side, size = ROUTES[route]
    channels = residual.shape[2]
    # in_3 is [1, S/7, 7, S/7, 7, C]: contiguous, it is an S x S map of rows already
    grid = load(windows.contiguous().view(side, side, channels))
    o_sum = np.empty(residual.shape, np.float32)
    o_norm = np.empty(residual.shape, np.float32)
    rows = (size * size, channels)
    _kernel(
        load(bias),
        load(weight),
        load(residual).reshape(rows),
        grid,
        o_sum.reshape(rows),
        o_norm.reshape(rows),
        size,
        SHIFT[residual.dtype],
    )
    return store(o_sum, residual.dtype), store(o_norm, residual.dtype)
