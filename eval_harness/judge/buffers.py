"""Memory files of one graph on the judge's side: input sets for both workers, and each worker's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from data.graph import Graph
from eval_harness.comparison import OutputMeta
from eval_harness.judge.workers import Worker
from eval_harness.tensor_exchange import MemoryFile, Slot, lay_out, typed_view


class Buffers:
    """num_sets input sets in one file that both workers map, and one outputs file a worker.

    Each set holds one tensor an argument of forward, contiguous, in forward's order.
    """

    def __init__(self, graph: Graph, num_sets: int, outputs_bytes: int) -> None:
        triples = [(name, graph.specs[name].dtype, graph.specs[name].shape) for name in graph.arguments]
        self.slots, self.set_stride = lay_out(triples)
        self.num_sets = num_sets
        self._inputs = MemoryFile.create(self.set_stride * num_sets, sealed_for_others=True)
        self._outputs_bytes = max(outputs_bytes, self.set_stride)
        self._outputs: dict[int, MemoryFile] = {}
        self.views = [self._views_of_set(index) for index in range(num_sets)]

    def attach(self, worker: Worker, *, timeout_s: float) -> None:
        """Hand both files to a worker."""
        old = self._outputs.pop(worker.pid, None)
        if old is not None:
            old.close()
        outputs = self._outputs[worker.pid] = MemoryFile.create(self._outputs_bytes, sealed_for_others=False)
        worker.ask(
            "attach",
            timeout_s=timeout_s,
            descriptors=(self._inputs.descriptor, outputs.descriptor),
            inputs_size=self._inputs.size,
            outputs_size=outputs.size,
        )

    def write(self, inputs: dict[str, torch.Tensor], index: int = 0) -> None:
        for name, tensor in inputs.items():
            self.views[index][name].copy_(tensor)

    def load_message(self, *, fresh: bool) -> dict[str, Any]:
        """Fields of a load_sets request."""
        return {
            "slots": [slot.to_json() for slot in self.slots],
            "set_stride": self.set_stride,
            "count": self.num_sets,
            "fresh": fresh,
        }

    def read_output(self, worker: Worker, slot: Slot) -> torch.Tensor:
        """A private copy of what a worker delivered."""
        return self._outputs[worker.pid].read(slot)

    def input_slots(self) -> list[dict[str, Any]]:
        return [slot.to_json() for slot in self.slots]

    def read_inputs(self, worker: Worker) -> list[np.ndarray]:
        """Private copies of the bytes of the inputs that a worker delivered back."""
        file = self._outputs[worker.pid]
        return [file.bytes[slot.offset : slot.offset + slot.num_bytes].copy() for slot in self.slots]

    def close(self) -> None:
        self.views = []
        self._inputs.close()
        for file in self._outputs.values():
            file.close()

    def _views_of_set(self, index: int) -> dict[str, torch.Tensor]:
        views = {}
        for slot in self.slots:
            start = slot.offset + index * self.set_stride
            views[slot.name] = typed_view(self._inputs.bytes[start : start + slot.num_bytes], slot)
        return views


def output_slots(
    metas: Sequence[OutputMeta], positions: Sequence[int]
) -> tuple[list[dict[str, Any]], list[list[Slot]]]:
    """A deliver request's items for all outputs of the calls at positions, and the slots by call and output."""
    items: list[dict[str, Any]] = []
    by_call: list[list[Slot]] = []
    offset = 0
    for position in positions:
        slots, offset = lay_out([(str(i), meta.dtype, meta.shape) for i, meta in enumerate(metas)], start=offset)
        by_call.append(slots)
        items += [{"call": position, "output": i, "slot": slot.to_json()} for i, slot in enumerate(slots)]
    return items, by_call


def outputs_bytes(metas: Sequence[OutputMeta], *, dtype: str | None = None) -> int:
    """Bytes that one call's outputs take in an outputs file."""
    return lay_out([(str(i), dtype or meta.dtype, meta.shape) for i, meta in enumerate(metas)])[1]
