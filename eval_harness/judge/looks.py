"""What the judge looks at in timed blocks: outputs, inputs and one guarded call, all chosen after "done".

Only parts travel: of a large tensor one secretly placed run of elements. Correctness draws have compared all of it;
here the question is whether a call did its work at all, and a call that skipped any share of it is found by that share
of looks.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from eval_harness.comparison import OutputMeta, first_correct_level
from eval_harness.errors import ReferenceFailedError
from eval_harness.judge.background import BackgroundWork
from eval_harness.judge.buffers import InputWindows, outputs_bytes
from eval_harness.judge.correctness import ORACLE_CALL, GraphFailure, compare_inputs, refuse
from eval_harness.judge.integrity import guard_violations
from eval_harness.judge.session import Session
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.tensor_exchange import Slot, lay_out
from eval_harness.verdict import STRICT_LEVEL, Outcome

DELIVERY_BYTES = 8 << 20
"""Outputs of a block that are delivered at most when all are asked for."""
PART_ELEMENTS = 1 << 18
"""Of one tensor, at most this many neighbouring elements are delivered."""
COMPARED_CALLS = 3
"""Comparing costs more than delivering: a few calls of those delivered are enough, none knows which."""


class UnstableError(Exception):
    """Eager itself does not hold still: nothing can be said of this graph now."""


@dataclass
class Findings:
    """What the looks have shown so far."""

    first_correct_t: int = -10
    message: str = ""
    """The worst output that was looked at, if it is beyond the strict level."""
    deliveries_s: list[tuple[float, float]] = field(default_factory=list)
    """Candidate's and reference's seconds a call for delivering, where a whole block was asked for."""


class Pair:
    """The two workers that are timed, and whose failure is whose."""

    def __init__(self, candidate: Worker, reference: Worker, timeout_s: float) -> None:
        self.candidate, self.reference, self.timeout_s = candidate, reference, timeout_s
        self.background: dict[Worker, BackgroundWork] = {}
        """What each does while it is not asked; both are watched, so that it costs both the same."""

    @property
    def both(self) -> tuple[Worker, Worker]:
        return self.candidate, self.reference

    def ask(self, worker: Worker, op: str, **fields: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.guarding(worker, partial(worker.ask, op, timeout_s=self.timeout_s, **fields), op)
        return answer

    def guarding(self, worker: Worker, action: Callable[[], Any], op: str = "") -> Any:
        """A failing candidate is its own; whose a failing reference is, blame.py finds out."""
        watch = self.background.get(worker)
        try:
            if watch is not None:
                watch.asked(op)
            return action()
        except WorkerFailure as failure:
            if worker is self.reference:
                message = f"eager failed while it was timed: {failure.message}"
                raise ReferenceFailedError(message, failure.kind) from None
            raise GraphFailure.of_worker(failure, "timed calls") from None
        finally:
            if watch is not None:
                watch.answered()


class Looks:
    """Looks at the block that both workers ran last."""

    def __init__(
        self, session: Session, pair: Pair, windows: InputWindows, metas: Sequence[OutputMeta], *, level: int
    ) -> None:
        """level: first_correct_t of the draws before; what is within it needs no second thought."""
        self._generator: random.Random = session.generator
        self._pair, self._windows, self._metas = pair, windows, list(metas)
        self._graph = windows.graph
        self._level = max(level, STRICT_LEVEL)
        self._uses_oracle = session.protocol.inputs == "robust"
        self.findings = Findings()

    @staticmethod
    def exchange_bytes(metas: Sequence[OutputMeta], num_arguments: int) -> int:
        """Size of the file through which parts travel."""
        widest = PART_ELEMENTS * 16 + 64
        return max(DELIVERY_BYTES, len(metas) * widest, num_arguments * widest) + (1 << 16)

    def at_outputs(self, order: Sequence[int], *, in_full: bool) -> None:
        """Have one call's outputs, or the whole block's, delivered by both sides, and compare some of them.

        order: which input set each call of the block ran.
        """
        num_calls = len(order)
        one_call = min(outputs_bytes(self._metas), len(self._metas) * PART_ELEMENTS * 16)
        count = min(num_calls, max(1, DELIVERY_BYTES // max(one_call, 1))) if in_full else 1
        positions = self._generator.sample(range(num_calls), count)
        items = self._parts(positions)
        seconds = []
        for worker in self._pair.both:
            start = time.perf_counter()
            self._pair.ask(worker, "deliver", items=items)
            seconds.append(time.perf_counter() - start)
        if in_full:
            self.findings.deliveries_s.append((seconds[0] / count, seconds[1] / count))
        chosen = set(self._generator.sample(positions, min(count, COMPARED_CALLS)))
        looked_at = [item for item in items if item["call"] in chosen]
        # all are read before any is compared: the oracle is delivered over them
        delivered = [[self._read(worker, item) for worker in self._pair.both] for item in looked_at]
        for item, (mine, right) in zip(looked_at, delivered, strict=True):
            self._compare(item, order[item["call"]], mine, right)

    def _parts(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """A deliver request's items: of every output of the calls at positions one run of elements."""
        items: list[dict[str, Any]] = []
        offset = 0
        counts = [min(math.prod(meta.shape), PART_ELEMENTS) for meta in self._metas]
        triples = [(str(i), meta.dtype, (counts[i],)) for i, meta in enumerate(self._metas)]
        for position in positions:
            slots, offset = lay_out(triples, start=offset)
            for index, (slot, meta, count) in enumerate(zip(slots, self._metas, counts, strict=True)):
                start = self._generator.randrange(math.prod(meta.shape) - count + 1)
                whole = {"shape": list(meta.shape), "start": start}
                items.append({"call": position, "output": index, "slot": slot.to_json(), **whole})
        return items

    def _read(self, worker: Worker, item: dict[str, Any]) -> torch.Tensor:
        return self._windows.read_output(worker, Slot.from_json(item["slot"]))

    def _compare(self, item: dict[str, Any], input_set: int, mine: torch.Tensor, right: torch.Tensor) -> None:
        level, _, message = first_correct_level(mine, right)
        if self._uses_oracle and right.is_floating_point() and (level is None or level > self._level):
            level, _, message = first_correct_level(mine, right, self._oracle(item, input_set))
        if level is None:
            raise GraphFailure(Outcome.WRONG_VALUES, f"in timed calls: {message}")
        if level > self.findings.first_correct_t:
            self.findings.first_correct_t, self.findings.message = level, message

    def _oracle(self, item: dict[str, Any], input_set: int) -> torch.Tensor:
        """The same run of elements in float64."""
        described = self._pair.ask(self._pair.reference, "oracle", set=input_set)["outputs"][item["output"]]
        (slot,), _ = lay_out([("oracle", described["dtype"], item["slot"]["shape"])])
        part = {"call": ORACLE_CALL, "output": item["output"], "slot": slot.to_json()}
        self._pair.ask(self._pair.reference, "deliver", items=[part | {"shape": item["shape"], "start": item["start"]}])
        return self._windows.read_output(self._pair.reference, slot)

    def at_inputs(self, order: Sequence[int]) -> None:
        """One of the sets that the block ran: as the reference left it."""
        specs = [self._graph.specs[name] for name in self._graph.arguments]
        counts = [min(spec.num_elements, PART_ELEMENTS) for spec in specs]
        slots, _ = lay_out([(spec.name, spec.dtype, (count,)) for spec, count in zip(specs, counts, strict=True)])
        fields: dict[str, Any] = {
            "set": self._generator.choice(order),
            "slots": [slot.to_json() for slot in slots],
            "starts": [
                self._generator.randrange(spec.num_elements - count + 1)
                for spec, count in zip(specs, counts, strict=True)
            ],
        }
        for worker in self._pair.both:
            self._pair.ask(worker, "deliver_inputs", **fields)
        ours, theirs = ([self._windows.read_bytes(worker, slot) for slot in slots] for worker in self._pair.both)
        compare_inputs(self._graph, ours, theirs)

    def at_guarded_call(self, num_calls: int) -> None:
        """One call of the candidate under the guard, on content that no block runs; nothing else tells it from a timed
        call."""
        fields: dict[str, Any] = {"set": self._generator.randrange(num_calls), "special": "guard", "poison_bytes": []}
        refuse(guard_violations(self._pair.ask(self._pair.candidate, "call", **fields)["guard"]))
