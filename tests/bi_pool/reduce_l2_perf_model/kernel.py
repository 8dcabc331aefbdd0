import torch
import triton
import triton.language as tl


def estimate_us(n_rows, n_cols, TILE, num_warps, **_):
    """Programs in flight against loop trips: a crude roofline that ranks the configs."""
    slots = 132 * max(1, 2048 // (num_warps * 32))
    waves = -(-n_rows // slots)
    trips = -(-n_cols // TILE)
    starved = max(0.0, 1.0 - n_rows * num_warps / (132 * 16))
    return waves * trips * (1.0 + 4.0 * starved * trips) + 0.1 * num_warps * n_rows / 132


@triton.autotune(
    configs=[
        triton.Config({"TILE": 256}, num_warps=1),
        triton.Config({"TILE": 1024}, num_warps=4),
        triton.Config({"TILE": 4096}, num_warps=16),
    ],
    key=["n_rows", "n_cols"],
    prune_configs_by={"perf_model": estimate_us, "top_k": 1},
)
@triton.jit
def l2_rows(x_ptr, out_ptr, n_rows, n_cols, TILE: tl.constexpr):
    r = tl.program_id(0)
    acc = tl.zeros([TILE], tl.float32)
    for i in range(0, n_cols, TILE):
        c = i + tl.arange(0, TILE)
        v = tl.load(x_ptr + r * n_cols + c, mask=c < n_cols, other=0.0)
        acc += v * v
    tl.store(out_ptr + r, tl.sqrt(tl.sum(acc, axis=0)))


def run(x):
    b, g, n = x.shape
    out = torch.empty((b, g), device=x.device, dtype=x.dtype)
    l2_rows[(b * g,)](x, out, b * g, n)
    return out
