import torch
import triton
import triton.language as tl


@triton.jit
def _rms_rows(x_ptr, w_ptr, y_ptr, n_rows, n_cols, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.program_id(0) * BLOCK_M
    cols = tl.arange(0, BLOCK_N)
    w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0)
    for r in range(BLOCK_M):
        row = first + r
        mask = (cols < n_cols) & (row < n_rows)
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
        tl.store(y_ptr + row * n_cols + cols, x * rstd * w, mask=mask)


def run(x, weight):
    bs, n_cols = x.shape
    # amortise the weight load once there are enough rows to fill the device anyway
    block_m = 1 if bs <= 16 else 2 if bs <= 64 else 4
    y = torch.empty_like(x)
    _rms_rows[(triton.cdiv(bs, block_m),)](
        x, weight, y, bs, n_cols, 1e-6, BLOCK_M=block_m, BLOCK_N=triton.next_power_of_2(n_cols), num_warps=4
    )
    return y
