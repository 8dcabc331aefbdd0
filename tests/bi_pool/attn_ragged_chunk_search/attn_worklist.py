"""Host-side plan of a ragged decode."""

from dataclasses import dataclass

import torch

GRANULE = 32


@dataclass
class Worklist:
    items: torch.Tensor
    offsets: torch.Tensor
    num_items: int
    chunk: int


def _count(lengths, chunk):
    return sum((n + chunk - 1) // chunk for n in lengths)


def _smallest_chunk(lengths, max_items):
    lo, hi = 1, max(1, -(-max(lengths) // GRANULE))
    while lo < hi:
        mid = (lo + hi) // 2
        if _count(lengths, mid * GRANULE) <= max_items:
            hi = mid
        else:
            lo = mid + 1
    return lo * GRANULE


def build_worklist(indptr, max_items, device):
    lengths = [b - a for a, b in zip(indptr, indptr[1:])]
    chunk = _smallest_chunk(lengths, max_items)
    items, offsets = [], [0]
    for row, n in enumerate(lengths):
        pieces = (n + chunk - 1) // chunk
        items.extend((row, c) for c in range(pieces))
        offsets.append(len(items))
    flat = torch.tensor([x for item in items for x in item], dtype=torch.int32).to(device)
    return Worklist(flat, torch.tensor(offsets, dtype=torch.int32).to(device), len(items), chunk)
