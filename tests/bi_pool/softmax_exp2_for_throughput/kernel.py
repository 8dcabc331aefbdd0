import math

import torch
import triton
import triton.language as tl

LOG2E = math.log2(math.e)


@triton.jit
def _scaled_softmax(s_ptr, p_ptr, n, scale, USE_EXP2: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    s = tl.load(s_ptr + pid * n + cols, mask=cols < n, other=-float("inf")).to(tl.float32)
    if USE_EXP2:
        # scale already carries log2(e)
        z = s * scale
        p = tl.exp2(z - tl.max(z, axis=0))
    else:
        p = tl.exp((s - tl.max(s, axis=0)) * scale)
    tl.store(p_ptr + pid * n + cols, p / tl.sum(p, axis=0), mask=cols < n)


def run(scores):
    batch, heads, n = scores.shape
    scale = 0.125
    use_exp2 = batch >= 40
    if use_exp2:
        scale = scale * LOG2E
    probs = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    _scaled_softmax[(batch * heads,)](
        scores, probs, n, scale, USE_EXP2=use_exp2, BLOCK=triton.next_power_of_2(n), num_warps=4
    )
    return probs
