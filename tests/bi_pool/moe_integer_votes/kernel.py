"""Votes of a sequence's token hashes for each of 8 experts."""

import torch
import triton
import triton.language as tl


@triton.jit
def vote_kernel(tokens, table, votes, L, span, E: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    for i0 in range(part * span, tl.minimum((part + 1) * span, L), BLOCK):
        i = i0 + tl.arange(0, BLOCK)
        expert = tl.load(table + tl.load(tokens + row * L + i))
        for e in tl.static_range(E):
            tl.atomic_add(votes + row * E + e, tl.sum((expert == e).to(tl.int32), 0))


def run(tokens, table):
    bsz, L = tokens.shape
    num_splits = max(1, 16 // triton.cdiv(bsz, 8))
    span = triton.cdiv(L // 32, num_splits) * 32
    votes = torch.zeros((bsz, 8), dtype=torch.int32, device=tokens.device)
    vote_kernel[(bsz, num_splits)](tokens, table, votes, L, span, E=8, BLOCK=32)
    return votes
