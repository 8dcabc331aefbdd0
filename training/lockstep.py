"""Ranks that must do something together agree whether they do it. A no-op where torch.distributed is not in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


def any_rank(flags: Sequence[bool], group: Any = None) -> list[bool]:
    """For each flag, whether any rank of the group has it set. Collective: every rank of the group must call it."""
    if not (dist.is_available() and dist.is_initialized()):
        return list(flags)
    device = "cuda" if "nccl" in dist.get_backend(group) else "cpu"
    votes = torch.tensor(list(map(int, flags)), dtype=torch.int32, device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=group)
    return [bool(vote) for vote in votes.tolist()]
