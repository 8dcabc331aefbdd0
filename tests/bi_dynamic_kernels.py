"""Small real kernels for the tests of the dynamic validator: honest ones, and one for each way of depending on a batch.

They are module-level functions of a file of their own, so that fresh processes can load them.
"""

from __future__ import annotations

import os
from itertools import pairwise

import numba
import numpy as np
import torch
from torch import Tensor

_first_split: list[int] = []
_buffer: dict[int, Tensor] = {}
_calls = 0


@numba.njit(cache=False)
def _split_sum(x, splits, out):
    """Sums of rows [B, N], each in `splits` partial sums that are added in order; float32 throughout."""
    for row in range(x.shape[0]):
        total = np.float32(0.0)
        length = -(-x.shape[1] // splits)
        for split in range(splits):
            partial = np.float32(0.0)
            for column in range(split * length, min((split + 1) * length, x.shape[1])):
                partial += x[row, column]
            total += partial
        out[row] = total


def _sum_in(x: Tensor, splits: int) -> Tensor:
    out = torch.empty(x.shape[0])
    _split_sum(x.float().contiguous().numpy(), splits, out.numpy())
    return out


def fixed_sum(x: Tensor) -> Tensor:
    """Honest: eight splits at every batch size."""
    return _sum_in(x, 8)


def sum_split_by_batch(x: Tensor) -> Tensor:
    """Work partitioning: fewer rows, more splits."""
    return _sum_in(x, max(1, 132 // x.shape[0]))


def sum_split_above_64(x: Tensor) -> Tensor:
    """Algorithm selection: another split count from 64 rows on."""
    return _sum_in(x, 1 if x.shape[0] >= 64 else 8)


def half_sum_split_above_64(x: Tensor) -> Tensor:
    """The same, behind the rounding of a float16 result."""
    return sum_split_above_64(x).half()


def rms_norm_split_by_batch(x: Tensor, weight: Tensor) -> Tensor:
    """Work partitioning in float16: the sum of squares is positive, nothing cancels."""
    scale = torch.rsqrt(_sum_in(x.float() ** 2, 4 if x.shape[0] < 16 else 1) / x.shape[1] + 1e-6)
    return (x.float() * scale[:, None] * weight.float()).half()


def fixed_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Honest."""
    scale = torch.rsqrt(_sum_in(x.float() ** 2, 4) / x.shape[1] + 1e-6)
    return (x.float() * scale[:, None] * weight.float()).half()


def exact_max(x: Tensor) -> Tensor:
    """Harmless: the batch decides the splits, and a maximum is the same in any order."""
    splits = max(1, 64 // x.shape[0])
    return torch.stack([part.amax(1) for part in x.tensor_split(splits, dim=1)]).amax(0)


def sum_ordered_by_place(x: Tensor) -> Tensor:
    """Reduction order: a row's sum begins where its place in the batch says."""
    rolled = torch.stack([row.roll(index % 7) for index, row in enumerate(x)])
    return _sum_in(rolled, 8)


def batch_scaled(x: Tensor) -> Tensor:
    """Company: scaled by the largest element of the whole batch."""
    return (x / x.abs().max().clamp_min(1e-3)) * 3.0


def masked_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """NaN leak: rows are mixed with a mask of zeros, which is right for finite numbers only."""
    mask = torch.eye(x.shape[0], dtype=x.dtype)
    return torch.stack([(mask[row][:, None] * x).sum(0) for row in range(x.shape[0])]) * weight


def keeps_first_split(x: Tensor) -> Tensor:
    """State: the batch of the first call decides for good, as an autotuner's cache does."""
    if not _first_split:
        _first_split.append(1 if x.shape[0] >= 64 else 8)
    return _sum_in(x, _first_split[0])


def noisy_sum(x: Tensor) -> Tensor:
    """Not deterministic: another order of summation in each call."""
    global _calls
    _calls += 1
    return _sum_in(x, 1 + _calls % 5)


def reuses_its_buffer(x: Tensor) -> Tensor:
    """Honest, though every call of one size returns the same memory, and the input is written to."""
    out = _buffer.setdefault(x.shape[0], torch.empty(x.shape[0]))
    x.mul_(2.0)
    out.copy_(_sum_in(x, 8))
    return out


def counts_in_shared(x: Tensor, state: Tensor) -> Tensor:
    """Honest for a given state, which it advances: what all rows share must be put back between calls."""
    result = _sum_in(x, 8) + state
    state.add_(1.0)
    return result


def only_even_batches(x: Tensor) -> Tensor:
    """Honest, and refuses odd batches."""
    if x.shape[0] % 2:
        raise ValueError("give an even batch")
    return _sum_in(x, 8)


def only_batch_8(x: Tensor) -> Tensor:
    """Takes one size only."""
    return _sum_in(x.view(8, -1), 8)


def ragged_mean(values: Tensor, pointers: Tensor) -> Tensor:
    """Honest: mean of each ragged row [TOTAL, D] -> [B, D], row by row."""
    bounds = pointers.tolist()
    return torch.stack([values[a:b].sum(0) / max(b - a, 1) for a, b in pairwise(bounds)])


def ragged_mean_padded(values: Tensor, pointers: Tensor) -> Tensor:
    """Company: padded to the longest row, and summed in as many parts as that length asks for."""
    bounds = pointers.tolist()
    longest = max(b - a for a, b in pairwise(bounds))
    parts = 1 + longest // 16
    means = []
    for a, b in pairwise(bounds):
        padded = torch.zeros(longest, values.shape[1])
        padded[: b - a] = values[a:b]
        means.append(torch.stack([part.sum(0) for part in padded.tensor_split(parts)]).sum(0) / max(b - a, 1))
    return torch.stack(means)


def ragged_scaled(values: Tensor, pointers: Tensor) -> Tensor:
    """Honest: every ragged row scaled by its own largest element; the output is ragged too."""
    bounds = pointers.tolist()
    rows = [values[a:b] for a, b in pairwise(bounds)]
    return torch.cat([row / row.abs().max() if len(row) else row for row in rows])


def folded_sum(x: Tensor) -> Tensor:
    """Work partitioning over [B * 4, N], four heads a row."""
    return _sum_in(x, max(1, 64 // x.shape[0]))


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """torch's own: the BLAS picks its kernel by the number of rows."""
    return x @ weight


def matmul_by_row(x: Tensor, weight: Tensor) -> Tensor:
    """Honest: one vector product a row."""
    return torch.stack([row @ weight for row in x])


def seeded_by_process(x: Tensor) -> Tensor:
    """Steady within a process, other splits in the next: as an autotuner that measures noise."""
    return _sum_in(x, 1 + os.getpid() % 97)


def noisy_when_small(x: Tensor) -> Tensor:
    """Not deterministic below 64 rows only: what differs from the largest batch differs from itself too."""
    return fixed_sum(x) if x.shape[0] >= 64 else noisy_sum(x)


def second_output_varies(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A whole-batch loss, which is no row's; honest sums; and sums along dim 1 that follow the batch."""
    return x.mean(), fixed_sum(x), torch.stack([sum_split_by_batch(x)] * 2)
