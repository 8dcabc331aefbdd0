"""Which memory holds nothing but torch's copies of a call's arguments: casts and copies that are the whole work.

A copy is followed from the arguments, through further copies, to the outputs, and compared with what it was when torch
made it: memory that a kernel wrote later is no longer one. Not followed: copies into a part of some memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch


class CopyLedger:
    """What was copied during one call."""

    def __init__(self, arguments: Iterable[object]) -> None:
        self._given = {_address(tensor) for tensor in _tensors(arguments)}
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Address of the storage -> (the copy, kept alive so that nothing else gets the address; its content then)."""

    def copied(self, source: object, target: object) -> None:
        """torch has just copied or cast source into target."""
        if not (isinstance(source, torch.Tensor) and isinstance(target, torch.Tensor)):
            return
        if not self._is_copy(source) or _address(target) in self._given:
            self._copies.pop(_address(target), None)
            return
        if target.numel() * target.element_size() == target.untyped_storage().nbytes():
            self._copies[_address(target)] = (target, target.detach().clone())

    def _is_copy(self, tensor: torch.Tensor) -> bool:
        address = _address(tensor)
        if address in self._given:
            return True
        kept = self._copies.get(address)
        return kept is not None and torch.equal(_bytes(kept[0]), _bytes(kept[1]))

    def only_copies(self, outputs: object) -> bool:
        """Whether every output is an argument or an untouched copy of one, and at least one is a copy."""
        tensors = [tensor for tensor in _tensors([outputs]) if tensor.numel()]
        copies = [tensor for tensor in tensors if _address(tensor) not in self._given]
        return bool(copies) and all(self._is_copy(tensor) for tensor in tensors)


def _tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type != "meta":
            yield value
        elif type(value) in (tuple, list):
            yield from _tensors(value)  # type: ignore[arg-type]


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The content bit by bit, NaN equal to itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
