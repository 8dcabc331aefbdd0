"""Memory files of one graph on the judge's side: inputs for both workers, and each worker's outputs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from data.graph import Graph
from data.inputs import InputPool
from eval_harness.comparison import OutputMeta
from eval_harness.judge.workers import Worker
from eval_harness.tensor_exchange import MemoryFile, Slot, lay_out


class Exchange:
    """One inputs file that both workers map, written by the judge alone, and one outputs file a worker."""

    def __init__(self, inputs_bytes: int, outputs_bytes: int) -> None:
        self.inputs = MemoryFile.create(inputs_bytes, sealed_for_others=True)
        self._outputs_bytes = outputs_bytes
        self._outputs: dict[int, MemoryFile] = {}

    def attach(self, worker: Worker, *, timeout_s: float) -> None:
        """Hand both files to a worker."""
        old = self._outputs.pop(worker.pid, None)
        if old is not None:
            old.close()
        outputs = self._outputs[worker.pid] = MemoryFile.create(self._outputs_bytes, sealed_for_others=False)
        worker.ask(
            "attach",
            timeout_s=timeout_s,
            descriptors=(self.inputs.descriptor, outputs.descriptor),
            inputs_size=self.inputs.size,
            outputs_size=outputs.size,
        )

    def read_output(self, worker: Worker, slot: Slot) -> torch.Tensor:
        """A private copy of what a worker delivered."""
        return self._outputs[worker.pid].read(slot)

    def read_bytes(self, worker: Worker, slot: Slot) -> np.ndarray:
        """The same as bytes."""
        return self._outputs[worker.pid].bytes[slot.offset : slot.offset + slot.num_bytes].copy()

    def close(self) -> None:
        self.inputs.close()
        for file in self._outputs.values():
            file.close()


class InputSet(Exchange):
    """One set of inputs, a tensor an argument of forward, contiguous, in forward's order."""

    def __init__(self, graph: Graph, outputs_bytes: int) -> None:
        triples = [(name, graph.specs[name].dtype, graph.specs[name].shape) for name in graph.arguments]
        self.slots, size = lay_out(triples)
        super().__init__(size, max(outputs_bytes, size))

    def write(self, inputs: dict[str, torch.Tensor]) -> None:
        for slot in self.slots:
            self.inputs.write(slot, inputs[slot.name])

    def load_message(self, *, fresh: bool) -> dict[str, Any]:
        """Fields of a load_set request."""
        return {"slots": self.input_slots(), "fresh": fresh}

    def input_slots(self) -> list[dict[str, Any]]:
        return [slot.to_json() for slot in self.slots]

    def read_inputs(self, worker: Worker) -> list[np.ndarray]:
        """Bytes of the inputs that a worker delivered back."""
        return [self.read_bytes(worker, slot) for slot in self.slots]


class InputWindows(Exchange):
    """Pools of values from which each input set is a window: fresh content at the cost of a copy where it is used.

    Workers hold the pools; where the windows of a block begin they learn only when the block is loaded.
    """

    def __init__(self, graph: Graph, pool: InputPool, outputs_bytes: int) -> None:
        triples = [(name, str(values.dtype), values.shape) for name, values in pool.pools.items()]
        self.slots, size = lay_out(triples)
        super().__init__(size, outputs_bytes)
        for slot in self.slots:
            self.inputs.write(slot, pool.pools[slot.name])
        self.graph = graph
        self._pool = pool
        self._shapes = [list(graph.specs[name].shape) for name in graph.arguments]

    def pool_message(self) -> dict[str, Any]:
        """Fields of a load_pool request."""
        return {"slots": [slot.to_json() for slot in self.slots], "shapes": self._shapes}

    def windows_message(self, num_sets: int, generator: random.Random, *, fresh: bool) -> dict[str, Any]:
        """Fields of a load_windows request: secret offsets for every set and argument."""
        return {"offsets": [self._pool.draw_offsets(generator) for _ in range(num_sets)], "fresh": fresh}


def output_slots(metas: Sequence[OutputMeta], call: int) -> tuple[list[dict[str, Any]], list[Slot]]:
    """A deliver request's items for all outputs of a call, and their slots."""
    slots, _ = lay_out([(str(i), meta.dtype, meta.shape) for i, meta in enumerate(metas)])
    items = [
        {"call": call, "output": i, "slot": slot.to_json(), "shape": list(slot.shape), "start": 0}
        for i, slot in enumerate(slots)
    ]
    return items, slots


def outputs_bytes(metas: Sequence[OutputMeta], *, dtype: str | None = None) -> int:
    """Bytes that one call's outputs take in an outputs file."""
    return lay_out([(str(i), dtype or meta.dtype, meta.shape) for i, meta in enumerate(metas)])[1]
