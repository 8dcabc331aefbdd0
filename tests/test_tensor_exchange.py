"""Memory files: exact bits through, fixed size, and no writer but the judge for inputs."""

from __future__ import annotations

import mmap
import os

import pytest
import torch

from eval_harness.tensor_exchange import DTYPES, MemoryFile, Slot, lay_out

SHAPES = [(), (0,), (3,), (2, 5), (4, 1, 7)]


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_and_shape_keeps_its_bits(dtype):
    tensors = [torch.randint(0, 2, shape).to(DTYPES[dtype]) for shape in SHAPES]
    slots, size = lay_out([(f"t{i}", dtype, tuple(t.shape)) for i, t in enumerate(tensors)])
    file = MemoryFile.create(size, sealed_for_others=False)
    other = MemoryFile.attach(os.dup(file.descriptor), size, writable=False)
    for slot, tensor in zip(slots, tensors, strict=True):
        file.write(slot, tensor)
    for slot, tensor in zip(slots, tensors, strict=True):
        assert torch.equal(other.read(slot), tensor)
        target = torch.empty(slot.shape, dtype=DTYPES[dtype])
        other.read_into(slot, target)
        assert torch.equal(target, tensor)
        assert Slot.from_json(slot.to_json()) == slot


def test_a_non_contiguous_tensor_travels_by_value():
    tensor = torch.arange(12.0).reshape(3, 4).t()
    (slot,), size = lay_out([("t", "torch.float32", tuple(tensor.shape))])
    file = MemoryFile.create(size, sealed_for_others=False)
    file.write(slot, tensor)
    assert torch.equal(file.read(slot), tensor)


def test_what_was_read_does_not_change_when_the_peer_writes_again():
    (slot,), size = lay_out([("t", "torch.float32", (4,))])
    file = MemoryFile.create(size, sealed_for_others=False)
    file.write(slot, torch.ones(4))
    read = file.read(slot)
    file.write(slot, torch.zeros(4))
    assert torch.equal(read, torch.ones(4))


def test_nobody_can_shrink_a_file_under_its_reader():
    file = MemoryFile.create(4096, sealed_for_others=False)
    with pytest.raises(PermissionError):
        os.ftruncate(file.descriptor, 0)


def test_others_cannot_map_an_inputs_file_for_writing():
    file = MemoryFile.create(4096, sealed_for_others=True)
    with pytest.raises(PermissionError):
        mmap.mmap(file.descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    reopened = os.open(f"/proc/self/fd/{file.descriptor}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.write(reopened, b"x")
    os.close(reopened)
    file.bytes[0] = 7  # the judge's own mapping still writes
    assert file.bytes[0] == 7


def test_a_slot_outside_its_file_is_refused():
    file = MemoryFile.create(64, sealed_for_others=False)
    with pytest.raises(ValueError, match="outside"):
        file.read(Slot("t", "torch.float32", (64,), 0))
