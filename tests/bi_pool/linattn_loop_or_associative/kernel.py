import torch
import triton
import triton.language as tl


@triton.jit
def _compose(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2


@triton.jit
def scan_parallel(a, x, h, T: tl.constexpr, W: tl.constexpr, BW: tl.constexpr):
    b = tl.program_id(0)
    c = tl.program_id(1) * BW + tl.arange(0, BW)
    t = tl.arange(0, T)
    at = (b * T + t[:, None]) * W + c[None, :]
    _, y = tl.associative_scan((tl.load(a + at), tl.load(x + at)), 0, _compose)
    tl.store(h + at, y)


@triton.jit
def scan_serial(a, x, h, T, W: tl.constexpr):
    b = tl.program_id(0)
    c = tl.arange(0, W)
    y = tl.zeros((W,), tl.float32)
    for t in range(T):
        at = (b * T + t) * W + c
        y = tl.load(a + at) * y + tl.load(x + at)
        tl.store(h + at, y)


class GatedScan:
    parallel_rows = 16

    def __call__(self, a, x):
        B, T, W = x.shape
        h = torch.empty_like(x)
        if B < self.parallel_rows:
            scan_parallel[(B, W // 8)](a, x, h, T=T, W=W, BW=8)
        else:
            scan_serial[(B,)](a, x, h, T, W=W)
        return h


def run(a, x):
    return GatedScan()(a, x)
