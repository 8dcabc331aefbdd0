import torch
import triton
import triton.language as tl


@triton.jit
def _masked_mean_kernel(x_ptr, m_ptr, y_ptr, bsz, S, D: tl.constexpr, STEP: tl.constexpr):
    b = tl.program_id(0)
    if b >= bsz:
        return
    d = tl.arange(0, D)
    num = tl.zeros([D], tl.float32)
    den = 0.0
    for s0 in range(0, S, STEP):
        s = s0 + tl.arange(0, STEP)
        keep = tl.load(m_ptr + b * S + s, mask=s < S, other=0.0) > 0.5
        x = tl.load(x_ptr + (b * S + s[:, None]) * D + d[None, :], mask=keep[:, None], other=0.0)
        num += tl.sum(x.to(tl.float32), axis=0)
        den += tl.sum(keep.to(tl.float32), axis=0)
    tl.store(y_ptr + b * D + d, num / tl.maximum(den, 1.0))


def run(x, mask):
    bsz, S, D = x.shape
    bucket = triton.next_power_of_2(bsz)
    y = torch.empty((bsz, D), device=x.device, dtype=torch.float32)
    _masked_mean_kernel[(bucket,)](x, mask, y, bsz, S, D=D, STEP=32, num_warps=4)
    return y
