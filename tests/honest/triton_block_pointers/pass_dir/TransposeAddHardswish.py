import torch
import triton
import triton.language as tl


@triton.jit
def add_hardswish(x, other, out, rows, cols, xs0, xs1, os0, os1, ys0, ys1, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR
    px = tl.make_block_ptr(x, (rows, cols), (xs0, xs1), (r, 0), (BR, BC), (0, 1))
    po = tl.make_block_ptr(other, (rows, cols), (os0, os1), (r, 0), (BR, BC), (1, 0))
    py = tl.make_block_ptr(out, (rows, cols), (ys0, ys1), (r, 0), (BR, BC), (0, 1))
    for _ in range(0, tl.cdiv(cols, BC)):
        v = tl.load(px, boundary_check=(0, 1)) + tl.load(po, boundary_check=(0, 1))
        gate = tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0)
        tl.store(py, v * gate / 6.0, boundary_check=(0, 1))
        px = tl.advance(px, (0, BC))
        po = tl.advance(po, (0, BC))
        py = tl.advance(py, (0, BC))


@torch.fx.wrap
def transpose_add_hardswish(x, other):
    rows, cols = x.shape
    out = torch.empty_strided((rows, cols), (1, rows), dtype=x.dtype, device=x.device)
    add_hardswish[(triton.cdiv(rows, 32),)](
        x, other, out, rows, cols, *x.stride(), *other.stride(), *out.stride(), BR=32, BC=64
    )
    return out


def pattern(x, other):
    total = x + other
    return torch.nn.functional.hardswish(total)


def replacement_args(x, other):
    return (x, other)


def replacement_func():
    return transpose_add_hardswish
