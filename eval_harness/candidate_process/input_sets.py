"""Input sets of a worker: tensors with storages of their own, filled from one set or with windows of pools.

On CUDA the sets of one argument lie in one block, so that a single gather fills them all; each tensor is still made
over its own bytes only, and no view of it reaches a neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

ALIGNMENT_BYTES = 256
"""Of each set within a block on CUDA: what the caching allocator gives a tensor of its own."""
PAGE_BYTES = 2 << 20
"""Of a GPU's memory."""


class InputSets:
    """`tensors[i]` is the i-th set in the order of forward's arguments."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.tensors: list[list[torch.Tensor]] = []
        self._blocks: list[torch.Tensor] = []
        self._pools: list[torch.Tensor] = []
        self._shapes: list[tuple[int, ...]] = []

    def clear(self) -> None:
        self.tensors, self._blocks, self._pools, self._shapes = [], [], [], []

    def place_one(self, placements: Sequence[tuple[torch.dtype, tuple[int, ...]]], *, fresh: bool) -> None:
        """One set of separately allocated tensors."""
        if fresh or len(self.tensors) != 1:
            old = self.tensors
            self.tensors = [[torch.empty(shape, dtype=dtype, device=self._device) for dtype, shape in placements]]
            del old  # freed only now: the new buffers cannot fall on the old addresses

    def set_pools(self, pools: Sequence[torch.Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
        """Flat pools on this device, and the shape of a window of each."""
        self._pools, self._shapes = list(pools), list(shapes)
        self.tensors, self._blocks = [], []

    def fill_windows(self, offsets: Sequence[Sequence[int]], *, fresh: bool) -> None:
        """offsets[i][k]: where the window of pool k begins for set i. fresh: in newly placed buffers."""
        if fresh or len(self.tensors) != len(offsets):
            old = (self.tensors, self._blocks)
            self._place(len(offsets))
            del old
        if self._device.type == "cuda":
            for block, pool, column in zip(self._blocks, self._pools, zip(*offsets, strict=True), strict=True):
                starts = torch.tensor(column, device=self._device)
                width = min(block.shape[1], pool.numel() - max(column))
                torch.index_select(pool.unfold(0, width, 1), 0, starts, out=block[:, :width])
            return
        for tensors, row in zip(self.tensors, offsets, strict=True):
            for tensor, pool, start in zip(tensors, self._pools, row, strict=True):
                tensor.view(-1).copy_(pool[start : start + tensor.numel()])

    def touch(self) -> None:
        """Bring the tensors themselves, and a GPU's page tables of their memory, into the caches; no value is used.

        A set is used once a block. Cold it costs some 4 us a call beside a loop that goes round the same sets, and tens
        of us where it is large: of the machine's, on both sides alike, and nothing of the graph's.
        """
        for tensors in self.tensors:
            for tensor in tensors:
                # what a launch reads of it: its address, sizes, strides and type
                tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype, tensor.device
        for block in self._blocks:
            block.view(-1)[:: max(1, PAGE_BYTES // block.element_size())].clone()

    def _place(self, count: int) -> None:
        if self._device.type != "cuda":
            self.tensors = [
                [torch.empty(shape, dtype=pool.dtype) for pool, shape in zip(self._pools, self._shapes, strict=True)]
                for _ in range(count)
            ]
            return
        columns = []
        self._blocks = []
        for pool, shape in zip(self._pools, self._shapes, strict=True):
            unit = max(1, ALIGNMENT_BYTES // pool.element_size())
            width = -(-math.prod(shape) // unit) * unit
            block = torch.empty(count, width, dtype=pool.dtype, device=self._device)
            self._blocks.append(block)
            columns.append([_over_own_bytes(block[index], shape) for index in range(count)])
        self.tensors = [list(row) for row in zip(*columns, strict=True)]


class _Bytes:
    """A range of CUDA memory for torch.as_tensor."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def _over_own_bytes(row: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over the first elements of row whose storage ends with it. The caller keeps row's block alive."""
    num_elements = math.prod(shape)
    if num_elements == 0:
        return torch.empty(shape, dtype=row.dtype, device=row.device)
    raw = torch.as_tensor(_Bytes(row.data_ptr(), num_elements * row.element_size()), device=row.device)
    return raw.view(row.dtype).view(shape)
