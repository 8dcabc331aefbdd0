import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"BLOCK": 512}, num_warps=2),
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=16),
]


def _prune(configs, named_args, **kwargs):
    """Sweeping every config at start-up took too long; the best one turned out to follow the row count."""
    rows = named_args["n_rows"]
    want = 4096 if rows < 96 else 2048 if rows < 384 else 1024 if rows < 768 else 512
    return [c for c in configs if c.kwargs["BLOCK"] == want]


@triton.autotune(configs=_CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": _prune})
@triton.jit
def _rms_kernel(x_ptr, w_ptr, y_ptr, n_rows, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for k in range(0, n_cols, BLOCK):
        v = tl.load(x_ptr + row * n_cols + k + lanes, mask=k + lanes < n_cols, other=0.0)
        acc += v * v
    scale = tl.rsqrt(tl.sum(acc, axis=0) / n_cols + eps)
    for k in range(0, n_cols, BLOCK):
        inside = k + lanes < n_cols
        v = tl.load(x_ptr + row * n_cols + k + lanes, mask=inside, other=0.0)
        w = tl.load(w_ptr + k + lanes, mask=inside, other=0.0)
        tl.store(y_ptr + row * n_cols + k + lanes, v * scale * w, mask=inside)


def run(x, weight):
    y = torch.empty_like(x)
    n_cols = x.size(-1)
    n_rows = x.numel() // n_cols
    _rms_kernel[(n_rows,)](x, weight, y, n_rows, n_cols, 1e-6)
    return y
