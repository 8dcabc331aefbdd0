"""float16 and bfloat16 for numba kernels. numba knows neither, so their bits travel as uint16.

`load` widens a tensor to a float32 array, `store` narrows one back; inside a kernel `rnd` rounds a value as storing it
in the tensor's dtype would. Eager rounds after every operator, and a kernel that does not is off by a bit or two.
"""

import numba
import numpy as np
import torch

F = np.float32
SHIFT = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}  # bits of a float32 mantissa that the dtype lacks


@numba.njit(forceinline=True)
def rnd(x, s):
    """x to the nearest value with s mantissa bits fewer, ties to even."""
    x = F(x)
    if s == 0:
        return x
    u = x.view(np.uint32)
    return np.uint32((u + ((1 << (s - 1)) - 1) + ((u >> s) & 1)) >> s << s).view(F)


@numba.njit(error_model="numpy")
def _widen(a, o, s):
    for i in range(a.size):
        u = np.uint32(a[i])
        if s == 16:
            o[i] = np.uint32(u << 16).view(F)  # bfloat16 is the upper half of a float32
        else:
            # float16: put its ten mantissa bits in place and let the multiplication mend the exponent, subnormals too
            x = np.uint32((u & 0x7FFF) << 13).view(F) * F(2.0**112)
            if x >= F(65536):  # exponent 31 means inf or nan
                x = F(np.inf) if x == F(65536) else F(np.nan)
            o[i] = -x if u & 0x8000 else x


@numba.njit(error_model="numpy")
def _narrow(a, o, s):
    for i in range(a.size):
        u = F(a[i]).view(np.uint32)
        if s == 16:
            o[i] = u >> 16
        else:
            h = F(abs(F(a[i])) * F(2.0**-112)).view(np.uint32) >> 13
            o[i] = (min(h, np.uint32(0x7C00)) if a[i] == a[i] else np.uint32(0x7E00)) | (u >> 16 & 0x8000)


def load(t):
    """The values of t as an array: float32 for half types, as they are for the others."""
    s = SHIFT.get(t.dtype, 0)
    if s == 0:
        return t.numpy()
    a = np.ascontiguousarray(t.view(torch.int16).numpy()).view(np.uint16)
    o = np.empty(a.shape, F)
    _widen(a.reshape(-1), o.reshape(-1), s)
    return o


def store(a, dtype):
    """A tensor of dtype with the values of a, which the kernel has rounded already."""
    s = SHIFT.get(dtype, 0)
    if s == 0:
        return torch.from_numpy(a)
    o = np.empty(a.shape, np.int16)
    _narrow(a.reshape(-1), o.reshape(-1).view(np.uint16), s)
    return torch.from_numpy(o).view(dtype)
