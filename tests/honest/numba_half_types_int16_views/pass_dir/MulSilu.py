"""silu(a * b) for half types. numba has neither, so the kernel sees the bits as int16 and converts by hand."""
import math

import numba
import numpy as np
import torch

U32 = np.uint32
F32 = np.float32


@numba.njit(inline="always")
def bf16_to_f32(bits):
    return U32(U32(np.uint16(bits)) << U32(16)).view(F32)


@numba.njit(inline="always")
def f32_to_bf16(value):
    u = F32(value).view(U32)
    return np.int16(np.uint16((u + U32(0x7FFF) + ((u >> U32(16)) & U32(1))) >> U32(16)))


@numba.njit(inline="always")
def f16_to_f32(bits):
    u = U32(np.uint16(bits))
    magnitude = U32((u & U32(0x7FFF)) << U32(13)).view(F32) * F32(2.0**112)
    return -magnitude if u & U32(0x8000) else magnitude


@numba.njit(inline="always")
def f32_to_f16(value):
    v = F32(value)
    sign = U32(0x8000) if v < F32(0.0) else U32(0)
    u = F32(abs(v) * F32(2.0**-112)).view(U32)
    u = (u + U32(0xFFF) + ((u >> U32(13)) & U32(1))) >> U32(13)
    return np.int16(np.uint16(min(u, U32(0x7C00)) | sign))


@numba.njit
def kernel_bf16(a, b, out):
    for i in range(a.size):
        p = bf16_to_f32(f32_to_bf16(bf16_to_f32(a[i]) * bf16_to_f32(b[i])))
        out[i] = f32_to_bf16(p / (F32(1.0) + F32(math.exp(-p))))


@numba.njit
def kernel_f16(a, b, out):
    for i in range(a.size):
        p = f16_to_f32(f32_to_f16(f16_to_f32(a[i]) * f16_to_f32(b[i])))
        out[i] = f32_to_f16(p / (F32(1.0) + F32(math.exp(-p))))


KERNELS = {torch.bfloat16: kernel_bf16, torch.float16: kernel_f16}


def bits(t):
    """The elements of a contiguous half tensor as a flat int16 array."""
    return t.view(torch.int16).reshape(-1).numpy()


@torch.fx.wrap
def mul_silu(a, b):
    if a.dtype not in KERNELS:
        raise NotImplementedError(f"mul_silu: no kernel for {a.dtype}")
    out = torch.empty_like(a)
    KERNELS[a.dtype](bits(a), bits(b), bits(out))
    return out


def pattern(a, b):
    return torch.nn.functional.silu(a * b)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return mul_silu
