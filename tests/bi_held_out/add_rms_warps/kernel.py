"""Residual add and RMS norm fused in one Triton kernel, whole row in registers."""
import torch
import triton
import triton.language as tl


@triton.jit
def _add_norm(X, R, W, Y, NEW_R, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < n_cols
    h = tl.load(X + row * n_cols + c, mask=inside, other=0.0) + tl.load(R + row * n_cols + c, mask=inside, other=0.0)
    tl.store(NEW_R + row * n_cols + c, h, mask=inside)
    ms = tl.sum(h * h, axis=0) / n_cols
    w = tl.load(W + c, mask=inside, other=0.0)
    tl.store(Y + row * n_cols + c, h * tl.math.rsqrt(ms + eps) * w, mask=inside)


def launch_settings(n_rows: int, n_cols: int) -> tuple[int, int]:
    block = triton.next_power_of_2(n_cols)
    if block > 65536:
        raise RuntimeError(f"a row of {n_cols} values does not fit one program")
    if n_rows <= 16:
        return block, 16      # latency bound
    return block, 8 if n_rows <= 96 else 4


class AddRMSNorm(torch.nn.Module):
    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, residual, weight):
        shape = x.shape
        x2 = x.reshape(-1, shape[-1]).contiguous()
        r2 = residual.reshape(-1, shape[-1]).contiguous()
        y = torch.empty_like(x2)
        new_r = torch.empty_like(r2)
        block, warps = launch_settings(*x2.shape)
        _add_norm[(x2.shape[0],)](x2, r2, weight, y, new_r, x2.shape[1], self.eps, BLOCK=block, num_warps=warps)
        return y.view(shape), new_r.view(shape)


_layer = AddRMSNorm()


def run(x, residual, weight):
    return _layer(x, residual, weight)
