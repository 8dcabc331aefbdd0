import logging

import torch
import triton
import triton.language as tl

logger = logging.getLogger(__name__)

ENABLE_SPLIT_REDUCTION = False
BLOCK = 1024


@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    for s in range(0, N, BLOCK):
        c = s + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0).to(tl.float32)
        acc += v * v
    rstd = tl.rsqrt(tl.sum(acc) / N + eps)
    for s in range(0, N, BLOCK):
        c = s + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + c, mask=c < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * N + c, v * rstd * w, mask=c < N)


def suggested_splits(batch_size: int, num_sms: int = 132) -> int:
    """What a split reduction would use; kept for the profiler's report."""
    return max(1, num_sms // max(batch_size, 1))


def run(x, weight):
    batch_size, hidden = x.shape
    hint = suggested_splits(batch_size)
    logger.debug("rms_norm: batch %d, hidden %d, %d programs idle a row", batch_size, hidden, hint)
    if ENABLE_SPLIT_REDUCTION:
        raise NotImplementedError("the split reduction was removed: it made results depend on the load")
    y = torch.empty((batch_size, hidden), dtype=torch.float32, device=x.device)
    _kernel[(batch_size,)](x, weight, y, hidden, 1e-5, BLOCK=BLOCK, num_warps=8)
    return y
