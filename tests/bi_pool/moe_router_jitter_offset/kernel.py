"""Noisy top-1 gating: multiplicative jitter in [1 - eps, 1 + eps], then arg max."""

import torch
import triton
import triton.language as tl

EPS = 0.2


@triton.jit
def noisy_gate(logits, out, choice, seed_ptr, n_tokens, eps, E: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, E)
    seed = tl.load(seed_ptr)
    u = tl.rand(seed, e * n_tokens + t)
    z = tl.load(logits + t * E + e) * (1.0 + eps * (2.0 * u - 1.0))
    tl.store(out + t * E + e, z)
    tl.store(choice + t, tl.argmax(z, 0))


def run(logits, seed):
    T, E = logits.shape
    out = torch.empty_like(logits)
    choice = torch.empty((T,), dtype=torch.int32, device=logits.device)
    noisy_gate[(T,)](logits, out, choice, seed, T, EPS, E=E)
    return out, choice
