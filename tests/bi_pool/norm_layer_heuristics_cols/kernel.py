import torch
import triton
import triton.language as tl


def _num_warps(args):
    n = args["n_cols"]
    return 16 if n >= 8192 else 8 if n >= 2048 else 4


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n_cols"]), "num_warps": _num_warps})
@triton.jit
def ln_forward(x_ptr, g_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, n_rows, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row >= n_rows:
        return
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    xm = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(xm * xm, axis=0) / n_cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    g = tl.load(g_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * n_cols + cols, xm * rstd * g + b, mask=mask)


def run(x, gamma, beta):
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=torch.float32, device=x.device)
    mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    # pad the grid so that CUDA graphs of neighbouring sizes can share a capture
    grid = (triton.cdiv(n_rows, 8) * 8,)
    ln_forward[grid](x, gamma, beta, y, mean, rstd, n_rows, n_cols, 1e-5)
    return y, mean, rstd
