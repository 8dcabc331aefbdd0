"""Tensors between processes: sealed memory files passed by descriptor, laid out by plain data.

The judge makes every memory file, so no peer can shrink one under a reader. Files with inputs are sealed against every
writer but the judge's own mapping; files with outputs are copied by the judge before it looks at them.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

ALIGNMENT = 64
F_ADD_SEALS = 1033
_SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 0x2, 0x4, 0x10

DTYPES: dict[str, torch.dtype] = {
    str(dtype): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """Where one contiguous tensor lies in a memory file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Slot:
        shape = tuple(int(size) for size in data["shape"])
        return cls(str(data["name"]), str(data["dtype"]), shape, int(data["offset"]))


def lay_out(tensors: Sequence[tuple[str, str, Sequence[int]]], *, start: int = 0) -> tuple[list[Slot], int]:
    """Slots for (name, dtype, shape) triples one behind another, and the first free byte behind them."""
    slots, offset = [], start
    for name, dtype, shape in tensors:
        slot = Slot(name, dtype, tuple(shape), offset)
        slots.append(slot)
        offset += -(-slot.num_bytes // ALIGNMENT) * ALIGNMENT
    return slots, offset


class MemoryFile:
    """A mapped memory file. `create` on the judge's side, `attach` on the other."""

    def __init__(self, descriptor: int, size: int, *, writable: bool) -> None:
        self.descriptor = descriptor
        self.size = size
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(descriptor, max(size, 1), mmap.MAP_SHARED, protection)
        self.bytes = np.frombuffer(self._map, dtype=np.uint8)

    @classmethod
    def create(cls, size: int, *, sealed_for_others: bool) -> MemoryFile:
        """A new file of fixed size. sealed_for_others: only the mapping made here may ever write."""
        descriptor = os.memfd_create("passwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        file = cls(descriptor, size, writable=True)
        seals = _SEAL_SHRINK | _SEAL_GROW | (_SEAL_FUTURE_WRITE if sealed_for_others else 0)
        try:
            fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
        except OSError:
            # gVisor has no FUTURE_WRITE; the judge writes each draw anew and compares inputs with its own copy
            fcntl.fcntl(descriptor, F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
        return file

    @classmethod
    def attach(cls, descriptor: int, size: int, *, writable: bool) -> MemoryFile:
        return cls(descriptor, size, writable=writable)

    def close(self) -> None:
        self.bytes = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):  # a view is still alive somewhere; the mapping goes with it
            self._map.close()
        os.close(self.descriptor)

    def write(self, slot: Slot, tensor: torch.Tensor) -> None:
        """Copy a tensor's values (made contiguous, brought to the CPU) into a slot."""
        source = torch.Tensor.detach(tensor)  # unbound: whatever else has a detach is refused
        if source.device.type != "cpu":
            source = source.cpu()
        raw = byte_view(source.contiguous())
        np.copyto(self.bytes[slot.offset : slot.offset + slot.num_bytes], raw)

    def read(self, slot: Slot) -> torch.Tensor:
        """A private copy of a slot as a contiguous CPU tensor."""
        if slot.offset < 0 or slot.offset + slot.num_bytes > self.size:
            raise ValueError(f"slot {slot.name} lies outside its memory file")
        return typed_view(self.bytes[slot.offset : slot.offset + slot.num_bytes].copy(), slot)

    def read_into(self, slot: Slot, tensor: torch.Tensor) -> None:
        """Copy a slot into an existing contiguous tensor, on whatever device it is."""
        source = self.bytes[slot.offset : slot.offset + slot.num_bytes]
        if tensor.device.type == "cpu":
            np.copyto(byte_view(tensor), source)
        else:
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(source.copy()))


def typed_view(raw: np.ndarray, slot: Slot) -> torch.Tensor:
    """Bytes as a tensor of the slot's dtype and shape, sharing memory."""
    if slot.num_bytes == 0:
        return torch.empty(slot.shape, dtype=DTYPES[slot.dtype])
    return torch.from_numpy(raw).view(DTYPES[slot.dtype]).reshape(slot.shape)


def byte_view(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a contiguous CPU tensor as a numpy view of shape [num_bytes]."""
    if tensor.numel() == 0:
        return np.empty(0, np.uint8)
    return tensor.reshape(-1).view(torch.uint8).numpy()
