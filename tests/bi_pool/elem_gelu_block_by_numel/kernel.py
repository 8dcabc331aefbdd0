import torch
import triton
import triton.language as tl


@triton.jit
def bias_gelu(x_ptr, b_ptr, y_ptr, numel, n_cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < numel
    v = tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.float32)
    v += tl.load(b_ptr + i % n_cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, 0.5 * v * (1.0 + tl.erf(v * 0.70710678)), mask=mask)


def run(x, bias):
    numel = x.numel()
    if numel > 1 << 18:
        block, num_warps = 2048, 8
    elif numel > 1 << 15:
        block, num_warps = 1024, 4
    else:
        block, num_warps = 256, 2
    y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    bias_gelu[(triton.cdiv(numel, block),)](x, bias, y, numel, x.shape[-1], BLOCK=block, num_warps=num_warps)
    return y
