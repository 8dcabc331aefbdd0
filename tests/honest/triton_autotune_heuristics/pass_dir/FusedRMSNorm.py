import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=w, num_stages=s) for w in (4, 8, 16) for s in (1, 2)],
    key=["n_cols"],
)
@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["n_cols"]),
        "EVEN": lambda args: args["n_cols"] == triton.next_power_of_2(args["n_cols"]),
    }
)
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, row_stride, n_cols, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + row * row_stride + cols)
        w = tl.load(w_ptr + cols)
    else:
        x = tl.load(x_ptr + row * row_stride + cols, mask=cols < n_cols, other=0.0)
        w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0)
    xf = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(xf * xf, axis=0) / n_cols + eps)
    normed = (xf * rstd).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * row_stride + cols, w * normed, mask=cols < n_cols)


@torch.fx.wrap
def rms_norm(x, weight):
    n_cols = x.shape[-1]
    x2d = x.contiguous().view(-1, n_cols)
    y = torch.empty_like(x2d)
    grid = lambda meta: (x2d.shape[0],)
    rms_norm_kernel[grid](x2d, weight, y, x2d.stride(0), n_cols, 1e-6)
    return y.view(x.shape)


def pattern(weight, x):
    x32 = x.to(torch.float32)
    variance = x32.pow(2).mean(-1, keepdim=True)
    rstd = torch.rsqrt(variance + 1e-06)
    normed = (x32 * rstd).to(torch.bfloat16)
    return weight * normed


def replacement_args(weight, x):
    return (x, weight)


def replacement_func():
    return rms_norm
