import torch
import triton
import triton.language as tl

# measured on H100: few rows want wide programs, many rows want narrow ones
_WARPS = ((64, 16), (256, 8), (768, 4))


@triton.jit
def rms_fwd(X, W, Y, RSTD, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < N
    x = tl.load(X + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    var = tl.sum(x * x, axis=0) / N
    rstd = 1.0 / tl.sqrt(var + eps)
    tl.store(RSTD + row, rstd)
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y + row * stride + cols, x * rstd * w, mask=mask)


def _pick_warps(n_rows):
    for limit, warps in _WARPS:
        if n_rows <= limit:
            return warps
    return 2


def run(x, weight):
    shape = x.shape
    x2d = x.reshape(-1, shape[-1])
    M, N = x2d.shape
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    rstd = torch.empty(M, dtype=torch.float32, device=x.device)
    rms_fwd[(M,)](x2d, weight, y, rstd, N, N, 1e-6, BLOCK_SIZE=triton.next_power_of_2(N), num_warps=_pick_warps(M))
    return y.view(shape), rstd.view(shape[:-1])
