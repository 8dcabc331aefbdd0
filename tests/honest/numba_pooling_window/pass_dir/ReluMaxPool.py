from typing import NamedTuple

import numba
import numpy as np
import torch


class Window(NamedTuple):
    size: int
    stride: int
    padding: int

    def extent(self, length: int) -> int:
        return (length + 2 * self.padding - self.size) // self.stride + 1


POOL = Window(size=3, stride=2, padding=1)


@numba.njit
def relu_max_pool(x, out, size, stride, padding):
    planes, height, width = x.shape
    for p in range(planes):
        for i in range(out.shape[1]):
            top = max(i * stride - padding, 0)
            bottom = min(i * stride - padding + size, height)
            for j in range(out.shape[2]):
                left = max(j * stride - padding, 0)
                right = min(j * stride - padding + size, width)
                best = np.float32(0)  # relu first: nothing is below
                for y in range(top, bottom):
                    for z in range(left, right):
                        best = max(best, x[p, y, z])
                out[p, i, j] = best


def output_shape(shape, window):
    lengths = list(map(lambda n: window.extent(n), shape[-2:]))
    if sorted(lengths)[0] < 1:
        raise ValueError(f"{window} does not fit into {tuple(shape)}")
    return (*shape[:-2], *lengths)


@torch.fx.wrap
def pool(x):
    shape = output_shape(x.shape, POOL)
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    planes = shape[0] * shape[1]
    relu_max_pool(x.reshape(planes, *x.shape[2:]).numpy(), out.view(planes, *shape[2:]).numpy(), *POOL)
    return out


def pattern(x):
    r = torch.nn.functional.relu(x)
    return torch.nn.functional.max_pool2d(r, 3, 2, 1)


def replacement_args(x):
    return (x,)


def replacement_func():
    return pool
