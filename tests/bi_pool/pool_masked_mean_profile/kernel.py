import torch
import triton
import triton.language as tl
from pool_profile import PoolProfile


@triton.jit
def masked_mean(x_ptr, m_ptr, y_ptr, n_ptr, S, D: tl.constexpr, threshold, STEP: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, D)
    total = tl.zeros([D], dtype=tl.float32)
    count = 0.0
    for s0 in range(0, S, STEP):
        s = s0 + tl.arange(0, STEP)
        keep = (tl.load(m_ptr + b * S + s, mask=s < S, other=0.0) > threshold) & (s < S)
        x = tl.load(x_ptr + (b * S + s[:, None]) * D + d[None, :], mask=keep[:, None], other=0.0)
        total += tl.sum(x, axis=0)
        count += tl.sum(keep.to(tl.float32), axis=0)
    tl.store(y_ptr + b * D + d, total / tl.maximum(count, 1.0))
    tl.store(n_ptr + b, count)


def run(x, mask):
    bsz, S, D = x.shape
    y = torch.empty((bsz, D), device=x.device, dtype=torch.float32)
    n = torch.empty((bsz,), device=x.device, dtype=torch.float32)
    masked_mean[(bsz,)](x, mask, y, n, S, D, 0.3, **PoolProfile(bsz).as_kwargs())
    return y, n
