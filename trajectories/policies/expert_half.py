"""The helper files of numba passes: half types, which numba lacks, and functions that it can vectorise."""

from __future__ import annotations

HALF_FILE = '''"""float16 and bfloat16 for numba, which has neither: float32 arrays on the host, rnd in the kernel."""
import numba
import numpy as np
import torch

F = np.float32
SHIFT = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}


@numba.njit(forceinline=True)
def rnd(x, s):
    """x as the dtype stores it: s mantissa bits fewer than float32, ties to even."""
    x = F(x)
    if s == 0:
        return x
    u = x.view(np.uint32)
    return np.uint32((u + ((1 << (s - 1)) - 1) + ((u >> s) & 1)) >> s << s).view(F)


@numba.njit(error_model="numpy", forceinline=True)
def wide(bits, s):
    """The float32 that the bits of a stored value stand for."""
    u = np.uint32(bits)
    if s != 13:
        return np.uint32(u << s).view(F)
    x = np.uint32((u & 0x7FFF) << 13).view(F) * F(2.0**112)
    if x >= F(65536):
        x = F(np.inf) if x == F(65536) else F(np.nan)
    return -x if u & 0x8000 else x


@numba.njit
def _widen(a, o, s):
    for i in range(a.size):
        o[i] = wide(a[i], s)


@numba.njit(error_model="numpy", forceinline=True)
def _narrow(a, o, s):
    for i in range(a.size):
        u = F(a[i]).view(np.uint32)
        if s == 16:
            o[i] = u >> 16
        else:
            h = F(abs(F(a[i])) * F(2.0**-112)).view(np.uint32) >> 13
            o[i] = (min(h, np.uint32(0x7C00)) if a[i] == a[i] else np.uint32(0x7E00)) | (u >> 16 & 0x8000)


def bits(t):
    """The stored bits of a tensor of floats, unsigned."""
    return t.view(torch.int16).numpy().view(np.uint16) if SHIFT[t.dtype] else t.numpy().view(np.uint32)


def load(t):
    """The values of t: float32 for half types."""
    s = SHIFT.get(t.dtype, 0)
    if s == 0:
        return t.numpy()
    a = np.ascontiguousarray(bits(t))
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

MATHS_FUNCTIONS = {
    "exp": '''@numba.njit(error_model="numpy", forceinline=True)
def exp(x):
    """e**x: 2**n * e**r with a polynomial (Cephes), so that loops vectorise."""
    c = min(max(F(x), F(-87)), F(89))
    n = np.floor(c * F(1.44269504) + F(0.5))
    r = c - n * F(0.693359375) + n * F(2.12194440e-4)
    p = ((F(1.9875691e-4) * r + F(1.3981999e-3)) * r + F(8.3334519e-3)) * r + F(4.1665796e-2)
    p = ((p * r + F(1.6666665e-1)) * r + F(0.5)) * r * r + r + F(1)
    return p * np.int32((np.int32(n) + 127) << 23).view(F) if x == x else F(x)
''',
    "erf": '''@numba.njit(error_model="numpy", forceinline=True)
def erf(x):
    """1 - erfc(abs(x)) by the erfcc of Numerical Recipes: near 1 and -1 it rounds as eager's does."""
    a = abs(F(x))
    t = F(1) / (F(1) + F(0.5) * a)
    p = ((F(0.17087277) * t - F(0.82215223)) * t + F(1.48851587)) * t - F(1.13520398)
    p = (((p * t + F(0.27886807)) * t - F(0.18628806)) * t + F(0.09678418)) * t + F(0.37409196)
    y = F(1) - t * exp((p * t + F(1.00002368)) * t - F(1.26551223) - a * a)
    return y if x > 0 else -y
''',
    "tanh": '''@numba.njit(error_model="numpy", forceinline=True)
def tanh(x):
    """A polynomial near 0 (Cephes), by exp elsewhere."""
    z = F(x) * F(x)
    p = ((F(-5.7049887e-3) * z + F(2.0639088e-2)) * z - F(5.3739715e-2)) * z + F(1.3331442e-1)
    far = F(1) - F(2) / (exp(F(2) * abs(F(x))) + F(1))
    return (p * z - F(3.3333282e-1)) * z * F(x) + F(x) if z < F(0.39) else (far if x > 0 else -far)
''',
}
MATHS_HEAD = """import numba
import numpy as np

F = np.float32
"""


def maths_file(names: list[str]) -> str:
    """The helper file with the named functions; exp is what the others are made of."""
    needed = ["exp", *(name for name in MATHS_FUNCTIONS if name in names and name != "exp")]
    return "\n\n".join([MATHS_HEAD, *(MATHS_FUNCTIONS[name] for name in needed)])
