"""QK-norm of grouped-query attention: RMSNorm over head_dim of every query and key head, one launch for both."""

import torch
import triton
import triton.language as tl


@triton.jit
def _normalise_head(src, w_ptr, dst, D: tl.constexpr, eps):
    d = tl.arange(0, D)
    v = tl.load(src + d).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / D + eps)
    tl.store(dst + d, v * scale * tl.load(w_ptr + d).to(tl.float32))


@triton.jit
def qk_norm(q_ptr, k_ptr, wq_ptr, wk_ptr, qo_ptr, ko_ptr, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, eps):
    token = tl.program_id(0)
    head = tl.program_id(1)
    if head < HQ:
        at = (token * HQ + head) * D
        _normalise_head(q_ptr + at, wq_ptr, qo_ptr + at, D, eps)
    else:
        at = (token * HK + head - HQ) * D
        _normalise_head(k_ptr + at, wk_ptr, ko_ptr + at, D, eps)


def run(q, k, wq, wk):
    total_q, hq, d = q.shape
    hk = k.shape[1]
    qo = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    ko = torch.empty(k.shape, dtype=torch.float32, device=k.device)
    qk_norm[(total_q, hq + hk)](q, k, wq, wk, qo, ko, HQ=hq, HK=hk, D=d, eps=1e-6, num_warps=1)
    return qo, ko
