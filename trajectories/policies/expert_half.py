"""The helper file of every numba pass: numba has neither float16 nor bfloat16."""

from __future__ import annotations

HALF_FILE = '''"""float16 and bfloat16 for numba, which has neither: float32 arrays on the host, rnd in the kernel."""
import numba
import numpy as np
import torch

F = np.float32
SHIFT = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}


@numba.njit
def rnd(x, s):
    """x as the dtype stores it: s mantissa bits fewer than float32, ties to even."""
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
            o[i] = np.uint32(u << 16).view(F)
        else:
            x = np.uint32((u & 0x7FFF) << 13).view(F) * F(2.0**112)
            if x >= F(65536):
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
    """The values of t: float32 for half types."""
    s = SHIFT.get(t.dtype, 0)
    if s == 0:
        return t.numpy()
    a = np.ascontiguousarray(t.view(torch.int16).numpy()).view(np.uint16)
    o = np.empty(a.shape, F)
    _widen(a.reshape(-1), o.reshape(-1), s)
    return o


def store(a, dtype):
    """Tensor of dtype with the values of a, which the kernel has rounded."""
    s = SHIFT.get(dtype, 0)
    if s == 0:
        return torch.from_numpy(a)
    o = np.empty(a.shape, np.int16)
    _narrow(a.reshape(-1), o.reshape(-1).view(np.uint16), s)
    return torch.from_numpy(o).view(dtype)
'''
