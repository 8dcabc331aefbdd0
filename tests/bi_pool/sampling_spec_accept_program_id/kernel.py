"""Rejection step of speculative decoding: how many of the draft tokens are accepted."""

import torch
import triton
import triton.language as tl


@triton.jit
def accept_kernel(p_ptr, q_ptr, n_ptr, u_ptr, seed, K: tl.constexpr):
    pid = tl.program_id(0)
    k = tl.arange(0, K)
    offset = pid * K + k
    u = tl.rand(seed, offset)
    p = tl.load(p_ptr + offset)
    q = tl.load(q_ptr + offset)
    rejected = u * q > p
    first = tl.min(tl.where(rejected, k, K), axis=0)
    tl.store(n_ptr + pid, first)
    tl.store(u_ptr + offset, u)


def run(target_probs, draft_probs):
    bsz, k = target_probs.shape
    accepted = torch.empty(bsz, device=target_probs.device, dtype=torch.int32)
    uniforms = torch.empty_like(target_probs)
    accept_kernel[(bsz,)](target_probs, draft_probs, accepted, uniforms, 99, K=k, num_warps=1)
    return accepted, uniforms
