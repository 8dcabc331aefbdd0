"""Group-limited routing: sigmoid scores plus a bias, the best 2 of 4 groups, then the best 4 experts in them."""

import logging

import torch
import triton
import triton.language as tl

logger = logging.getLogger(__name__)


@triton.jit
def route_kernel(logits, bias, out_w, out_i, E: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr,
                 TOPK: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, E)
    PER: tl.constexpr = E // GROUPS
    s = tl.sigmoid(tl.load(logits + t * E + e))
    biased = s + tl.load(bias + e)
    g = tl.arange(0, GROUPS)
    in_group = (e // PER)[None, :] == g[:, None]
    group_score = tl.max(tl.where(in_group, biased[None, :], -1e9), 1)
    open_group = tl.zeros((GROUPS,), tl.int32)
    for _ in tl.static_range(TOP_GROUPS):
        best = tl.argmax(tl.where(open_group > 0, -1e9, group_score), 0)
        open_group = tl.where(g == best, 1, open_group)
    allowed = tl.sum(tl.where(in_group, open_group[:, None], 0), 0) > 0
    left = tl.where(allowed, biased, -1e9)
    chosen = e < 0
    for _ in tl.static_range(TOPK):
        i = tl.argmax(tl.where(chosen, -1e9, left), 0)
        chosen = chosen | (e == i)
    total = tl.sum(tl.where(chosen, s, 0.0), 0)
    for j in tl.static_range(TOPK):
        i = tl.argmax(left, 0)
        tl.store(out_i + t * TOPK + j, i)
        tl.store(out_w + t * TOPK + j, tl.sum(tl.where(e == i, s, 0.0), 0) / total)
        left = tl.where(e == i, -1e9, left)


def run(logits, bias):
    num_tokens, E = logits.shape
    logger.debug("routing %d tokens over %d experts", num_tokens, E)
    weights = torch.empty((num_tokens, 4), dtype=torch.float32, device=logits.device)
    ids = torch.empty((num_tokens, 4), dtype=torch.int32, device=logits.device)
    route_kernel[(num_tokens,)](logits, bias, weights, ids, E=E, GROUPS=4, TOP_GROUPS=2, TOPK=4)
    return weights, ids
