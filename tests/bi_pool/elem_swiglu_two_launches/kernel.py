import torch
import triton
import triton.language as tl


@triton.jit
def _silu_mul(gate, up):
    gate = gate.to(tl.float32)
    return gate * tl.sigmoid(gate) * up.to(tl.float32)


@triton.jit
def swiglu_row(x_ptr, y_ptr, H, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    gate = tl.load(x_ptr + row * 2 * H + c, mask=c < H)
    up = tl.load(x_ptr + row * 2 * H + H + c, mask=c < H)
    tl.store(y_ptr + row * H + c, _silu_mul(gate, up), mask=c < H)


@triton.jit
def swiglu_flat(x_ptr, y_ptr, n, H, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = i // H
    c = i % H
    gate = tl.load(x_ptr + row * 2 * H + c, mask=i < n)
    up = tl.load(x_ptr + row * 2 * H + H + c, mask=i < n)
    tl.store(y_ptr + i, _silu_mul(gate, up), mask=i < n)


def run(x):
    batch_size, two_h = x.shape
    h = two_h // 2
    y = torch.empty((batch_size, h), device=x.device, dtype=torch.float32)
    if batch_size >= 64:
        swiglu_row[(batch_size,)](x, y, h, BLOCK=triton.next_power_of_2(h))
    else:
        n = batch_size * h
        swiglu_flat[(triton.cdiv(n, 256),)](x, y, n, h, BLOCK=256, num_warps=2)
    return y
