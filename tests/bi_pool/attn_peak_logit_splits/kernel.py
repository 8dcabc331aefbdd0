"""Peak attention logit of each head, as used to pick blocks and to clip logits."""

import torch
import triton
import triton.language as tl


@triton.jit
def peak_kernel(q, k, peak, S, span, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    sp = tl.program_id(2)
    d = tl.arange(0, D)
    qv = tl.load(q + (b * H + h) * D + d).to(tl.float32)
    best = float("-inf")
    for s0 in range(sp * span, tl.minimum((sp + 1) * span, S), BN):
        s = s0 + tl.arange(0, BN)
        kt = tl.load(k + (b * S + s[:, None]) * D + d[None, :], mask=(s < S)[:, None], other=0.0).to(tl.float32)
        x = tl.where(s < S, tl.sum(kt * qv[None, :], 1), float("-inf"))
        best = tl.maximum(best, tl.max(x, 0))
    tl.atomic_max(peak + b * H + h, best)


def run(q, k):
    bsz, H, D = q.shape
    S = k.shape[1]
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    kv_splits = max(1, min(8, sms // (bsz * H)))
    span = triton.cdiv(S // 32, kv_splits) * 32
    peak = torch.full((bsz, H), float("-inf"), dtype=torch.float32, device=q.device)
    peak_kernel[(bsz, H, kv_splits)](q, k, peak, S, span, H=H, D=D, BN=32)
    return peak
