"""log-sum-exp over the last axis, split for small grids."""

import torch
import triton
import triton.language as tl


@triton.jit
def lse_split(x, ml, n, per_split, splits, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = pid // splits
    split = pid % splits
    peak = -float("inf")
    total = 0.0
    for i in range(0, per_split, BLOCK):
        k = i + tl.arange(0, BLOCK)
        ok = (k < per_split) & (split * per_split + k < n)
        v = tl.load(x + row * n + split * per_split + k, mask=ok, other=-float("inf")).to(tl.float32)
        top = tl.maximum(peak, tl.max(v, axis=0))
        total = total * tl.exp(peak - top) + tl.sum(tl.exp(v - top), axis=0)
        peak = top
    tl.store(ml + 2 * pid, peak)
    tl.store(ml + 2 * pid + 1, total)


@triton.jit
def lse_merge(ml, out, norm, splits, P2: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, P2)
    m = tl.load(ml + 2 * (row * splits + k), mask=k < splits, other=-float("inf"))
    s = tl.load(ml + 2 * (row * splits + k) + 1, mask=k < splits, other=0.0)
    top = tl.max(m, axis=0)
    z = tl.sum(s * tl.exp(m - top), axis=0)
    tl.store(norm + row, z)
    tl.store(out + row, top + tl.log(z))


def run(x):
    n = x.shape[-1]
    rows = x.numel() // n
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    splits = 1
    while rows * splits < sm_count and splits < 16:
        splits *= 2
    scratch = torch.empty(rows * splits * 2, device=x.device, dtype=torch.float32)
    out = torch.empty(x.shape[:-1], device=x.device, dtype=torch.float32)
    norm = torch.empty_like(out)
    lse_split[(rows * splits,)](x, scratch, n, triton.cdiv(n, splits), splits, BLOCK=512)
    lse_merge[(rows,)](scratch, out, norm, splits, P2=splits)
    return out, norm
