import torch
import triton
import triton.language as tl


@triton.jit
def _sum_rows(x_ptr, out_ptr, N, COMPENSATED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    err = tl.zeros([BLOCK], tl.float32)
    for i in range(0, N, BLOCK):
        c = i + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
        if COMPENSATED:
            y = v - err
            t = acc + y
            err = (t - acc) - y
            acc = t
        else:
            acc += v
    total = tl.sum(acc, axis=0)
    if COMPENSATED:
        total -= tl.sum(err, axis=0)
    tl.store(out_ptr + row, total)


def run(x):
    num_seqs, channels, n = x.shape
    # accuracy is free while the device is mostly idle
    accurate = num_seqs <= 16
    out = torch.empty((num_seqs, channels), device=x.device, dtype=torch.float32)
    _sum_rows[(num_seqs * channels,)](x, out, n, COMPENSATED=accurate, BLOCK=256, num_warps=2)
    return out
