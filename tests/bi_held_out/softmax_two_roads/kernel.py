import torch
import triton
import triton.language as tl


@triton.jit
def resident_softmax(dst, src, n, W: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, W)
    z = tl.load(src + r * n + i, mask=i < n, other=-float("inf"))
    z = tl.exp(z - tl.max(z, 0))
    tl.store(dst + r * n + i, z / tl.sum(z, 0), mask=i < n)


@triton.jit
def streaming_softmax(dst, src, n, W: tl.constexpr):
    r = tl.program_id(0)
    peak = -float("inf")
    mass = 0.0
    for o in range(0, n, W):
        i = o + tl.arange(0, W)
        z = tl.load(src + r * n + i, mask=i < n, other=-float("inf"))
        p2 = tl.maximum(peak, tl.max(z, 0))
        mass = mass * tl.exp(peak - p2) + tl.sum(tl.exp(z - p2), 0)
        peak = p2
    for o in range(0, n, W):
        i = o + tl.arange(0, W)
        z = tl.load(src + r * n + i, mask=i < n, other=-float("inf"))
        tl.store(dst + r * n + i, tl.exp(z - peak) / mass, mask=i < n)


def _resident(src, dst):
    n = src.shape[-1]
    resident_softmax[(src.shape[0],)](dst, src, n, W=triton.next_power_of_2(n), num_warps=8)


def _streaming(src, dst):
    streaming_softmax[(src.shape[0],)](dst, src, src.shape[-1], W=1024, num_warps=4)


ROADS = {"resident": _resident, "streaming": _streaming}


def pick(shape):
    """Registers are the limit once every processor holds several rows."""
    rows, cols = shape
    footprint = rows * cols * 4
    return "streaming" if footprint > (1 << 20) else "resident"


def run(scores):
    src = scores.contiguous()
    dst = torch.empty_like(src)
    ROADS[pick(src.shape)](src, dst)
    return dst
