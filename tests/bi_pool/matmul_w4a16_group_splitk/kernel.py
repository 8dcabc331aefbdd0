"""W4A16 linear: two 4-bit weights in a byte along K, one scale for 128 input channels, zero point 8."""

import torch
import triton
import triton.language as tl


@triton.jit
def w4a16_kernel(
    x_ptr, qw_ptr, sc_ptr, out_ptr, M, N, K, groups_per_slice,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    pid_n = tl.program_id(0)
    pid_m = tl.program_id(1)
    sl = tl.program_id(2)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    HALF: tl.constexpr = GROUP // 2
    rb = tl.arange(0, HALF)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for g in range(sl * groups_per_slice, (sl + 1) * groups_per_slice):
        packed = tl.load(qw_ptr + rn[None, :] * (K // 2) + g * HALF + rb[:, None])
        lo = (packed & 0xF).to(tl.float16) - 8.0
        hi = (packed >> 4).to(tl.float16) - 8.0
        scale = tl.load(sc_ptr + g * N + rn).to(tl.float32)
        xp = x_ptr + rm[:, None] * K + g * GROUP + 2 * rb[None, :]
        x_even = tl.load(xp, mask=rm[:, None] < M, other=0.0)
        x_odd = tl.load(xp + 1, mask=rm[:, None] < M, other=0.0)
        part = tl.dot(x_even, lo.to(tl.float16))
        part = tl.dot(x_odd, hi.to(tl.float16), part)
        acc += part * scale[None, :]
    tl.store(out_ptr + sl * M * N + rm[:, None] * N + rn[None, :], acc, mask=rm[:, None] < M)


class W4Linear:
    group = 128

    def __init__(self, qweight, scales):
        self.qweight, self.scales = qweight, scales
        self.n = qweight.shape[0]
        self.k = qweight.shape[1] * 2

    def slices(self, tokens):
        level = 4 - min(4, max(0, (tokens - 1).bit_length() - 3))
        return 1 << level

    def __call__(self, x):
        m = x.shape[0]
        num_slices = self.slices(m)
        groups = self.k // self.group
        buf = torch.empty((num_slices, m, self.n), dtype=torch.float32, device=x.device)
        grid = (triton.cdiv(self.n, 64), triton.cdiv(m, 16), num_slices)
        w4a16_kernel[grid](x, self.qweight, self.scales, buf, m, self.n, self.k, groups // num_slices,
                           GROUP=self.group, BLOCK_M=16, BLOCK_N=64)
        out = buf[0]
        for i in range(1, num_slices):
            out = out + buf[i]
        return out.to(torch.float32)


def run(x, qweight, scales):
    return W4Linear(qweight, scales)(x)
