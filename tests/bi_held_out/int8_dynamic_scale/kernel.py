"""Dynamic int8 quantisation of activations: one pass finds the range, one pass rounds."""
import torch
import triton
import triton.language as tl


@triton.jit
def find_range(x_ptr, range_ptr, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < numel, other=0.0).to(tl.float32)
    tl.atomic_max(range_ptr, tl.max(tl.abs(x), 0))


@triton.jit
def round_to_int8(x_ptr, range_ptr, code_ptr, back_ptr, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < numel
    scale = tl.maximum(tl.load(range_ptr), 1e-8) / 127.0
    x = tl.load(x_ptr + i, mask=ok, other=0.0).to(tl.float32)
    y = x / scale
    y = tl.where(y >= 0, tl.floor(y + 0.5), tl.ceil(y - 0.5))
    y = tl.minimum(tl.maximum(y, -127.0), 127.0)
    tl.store(code_ptr + i, y.to(tl.int8), mask=ok)
    tl.store(back_ptr + i, (y * scale).to(back_ptr.dtype.element_ty), mask=ok)


def quantize(activations: torch.Tensor, block: int = 2048):
    flat = activations.contiguous().view(-1)
    numel = flat.numel()
    codes = torch.empty(flat.shape, dtype=torch.int8, device=flat.device)
    back = torch.empty(flat.shape, dtype=torch.float32, device=flat.device)
    if numel:
        span = torch.zeros(1, dtype=torch.float32, device=flat.device)
        grid = (triton.cdiv(numel, block),)
        find_range[grid](flat, span, numel, BLOCK=block)
        round_to_int8[grid](flat, span, codes, back, numel, BLOCK=block)
    return codes.view_as(activations), back.view_as(activations)


def run(activations):
    return quantize(activations)
