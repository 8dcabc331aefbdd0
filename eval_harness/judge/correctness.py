"""Correctness of one graph: fresh draws, candidate first on poisoned memory, then eager, then the comparison.

Every draw has new content at newly placed buffers. One draw, secretly chosen, runs under the dispatch guard. A draw
counts only if eager itself is well within tolerance of a float64 oracle, where the graph allows that at all
(half-precision chains round at every operator, and no draw of theirs can). An output element is right if it is within
tolerance of eager or of that oracle: a pass must not be called wrong for being more exact than eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from data.graph import Graph
from data.inputs import PASSNET_INPUT_SEED, draw_inputs
from eval_harness.comparison import OutputMeta, compare_metas, first_correct_level, oracle_ok
from eval_harness.errors import ReferenceFailedError
from eval_harness.judge.buffers import InputSet, output_slots, outputs_bytes
from eval_harness.judge.integrity import choose_trace_draw, guard_violations, trace_violations
from eval_harness.judge.session import Session
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.verdict import STRICT_LEVEL, Outcome, Violation

MAX_REDRAWS = 3
Oracle = Callable[[], Sequence[torch.Tensor]]
"""Gives the graph's outputs in float64 on the present draw."""
ORACLE_CALL = -1
"""Key under which a reference keeps the oracle's outputs (candidate_process.worker)."""


class GraphFailure(Exception):
    """The candidate fails on this graph: the outcome, what to say, and what was measured before it."""

    def __init__(
        self, outcome: Outcome, message: str, violations: Sequence[Violation] = (), *, is_certain: bool = True
    ) -> None:
        """is_certain: no, if something else may have ended the process (blame.py)."""
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.violations = list(violations)
        self.is_certain = is_certain

    @classmethod
    def of_worker(cls, failure: WorkerFailure, stage: str) -> GraphFailure:
        if failure.kind == "not-plain":
            return cls.not_plain(failure.message)
        outcome = {
            "compile": Outcome.COMPILE_ERROR,
            "oom": Outcome.OUT_OF_MEMORY,
            "timeout": Outcome.TIMEOUT,
        }.get(failure.kind, Outcome.RUNTIME_ERROR)
        return cls(outcome, f"{stage}: {failure.message}", is_certain=failure.kind != "killed")

    @classmethod
    def not_plain(cls, fault: str) -> GraphFailure:
        message = f"{fault}; return plain tensors with storage of their own"
        violation = Violation(rule="behaviour.plain-tensor", layer="behaviour", message=message)
        return cls(Outcome.VIOLATION, message, [violation])


@dataclass
class Correctness:
    """What the draws showed."""

    first_correct_t: int | None = -10
    max_abs_difference: float = 0.0
    message: str = ""


def reference_metas(session: Session, graph: Graph) -> list[OutputMeta]:
    """Shapes, dtypes and strides of eager's outputs, from a draw of its own. Raises ReferenceFailedError.

    The draw stays loaded in the reference, where operators are timed on it.
    """
    buffers = InputSet(graph, 0)
    try:
        buffers.attach(session.reference, timeout_s=session.protocol.graph_timeout_s)
        buffers.write(_draw(session, graph, session.seed(), spread=False))
        session.ask_reference("load_set", **buffers.load_message(fresh=True))
        return _metas(session.ask_reference("call", set=0)["outputs"], graph)
    finally:
        buffers.close()


def check_correctness(session: Session, graph: Graph, metas: Sequence[OutputMeta], *, guarded: bool) -> Correctness:
    """All draws of the protocol. Raises GraphFailure for anything but wrong values, which lower first_correct_t."""
    protocol = session.protocol
    guard_draw = session.generator.randrange(protocol.num_draws) if guarded else None
    trace_draw = choose_trace_draw(session, guard_draw)
    result = Correctness()
    draw = redraws = 0
    with exchanged(session, graph, metas) as buffers:
        while draw < protocol.num_draws:
            seed = PASSNET_INPUT_SEED if protocol.inputs == "passnet" else session.seed()
            # a spread draw may be too much for eager itself; it is then redrawn without
            buffers.write(_draw(session, graph, seed, spread=draw % 2 == 1 and redraws == 0))
            # it runs once a draw at most
            oracle = cache(partial(oracle_outputs, session, graph, buffers)) if protocol.inputs == "robust" else None
            special = "guard" if draw == guard_draw else "trace" if draw == trace_draw else ""
            ours, our_inputs = call_candidate(session, graph, buffers, metas, special=special)
            expected, their_inputs = call_reference(session, buffers, metas)
            if not _counts(session, graph, metas, expected, oracle) and redraws < MAX_REDRAWS:
                redraws += 1
                continue
            draw += 1
            compare_inputs(graph, our_inputs, their_inputs)
            _compare_outputs(result, ours, expected, oracle)
    return result


@contextmanager
def exchanged(session: Session, graph: Graph, metas: Sequence[OutputMeta]) -> Iterator[InputSet]:
    """Buffers of one input set, attached to both workers. The float64 oracle's outputs are the largest delivered."""
    buffers = InputSet(graph, max(outputs_bytes(metas), outputs_bytes(metas, dtype="torch.float64")))
    try:
        for worker in (session.reference, session.candidate):
            buffers.attach(worker, timeout_s=session.protocol.graph_timeout_s)
        yield buffers
    finally:
        buffers.close()


def _draw(session: Session, graph: Graph, seed: int, *, spread: bool) -> dict[str, torch.Tensor]:
    mode = session.protocol.inputs
    return draw_inputs(graph, seed=seed, mode=mode, spread=spread and mode == "robust")


def call_candidate(
    session: Session, graph: Graph, buffers: InputSet, metas: Sequence[OutputMeta], *, special: str = ""
) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    """One call on what the buffers hold: its outputs, and its inputs afterwards. Raises GraphFailure.

    special: "guard" for a call under the dispatch guard, "trace" for one under the profiler.
    """
    timeout_s = min(session.protocol.graph_timeout_s, max(session.seconds_left(), 1.0))
    worker = session.candidate
    try:
        worker.ask("load_set", timeout_s=timeout_s, **buffers.load_message(fresh=True))
        sizes = [outputs_bytes([meta]) for meta in metas]
        answer = worker.ask("call", timeout_s=timeout_s, set=0, poison_bytes=sizes, special=special)
        _check_outputs(answer["outputs"], metas, graph, plain=session.protocol.checks("behaviour"))
        if special == "guard":
            refuse(guard_violations(answer["guard"]))
        elif special == "trace":
            refuse(trace_violations(session, answer["trace"], metas))
        return _collect(worker, buffers, metas, timeout_s)
    except WorkerFailure as failure:
        raise GraphFailure.of_worker(failure, "running the rewritten graph") from None


def call_reference(
    session: Session, buffers: InputSet, metas: Sequence[OutputMeta]
) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    """The same of eager. Raises ReferenceFailedError."""
    session.ask_reference("load_set", **buffers.load_message(fresh=True))
    session.ask_reference("call", set=0)
    return _collect(session.reference, buffers, metas, session.protocol.graph_timeout_s)


def _collect(
    worker: Worker, buffers: InputSet, metas: Sequence[OutputMeta], timeout_s: float
) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    items, slots = output_slots(metas, 0)
    worker.ask("deliver", timeout_s=timeout_s, items=items)
    outputs = [buffers.read_output(worker, slot) for slot in slots]
    starts = [0] * len(buffers.slots)
    worker.ask("deliver_inputs", timeout_s=timeout_s, set=0, slots=buffers.input_slots(), starts=starts)
    return outputs, buffers.read_inputs(worker)


def _counts(
    session: Session,
    graph: Graph,
    metas: Sequence[OutputMeta],
    expected: Sequence[torch.Tensor],
    oracle: Oracle | None,
) -> bool:
    """Whether this draw may judge anybody. Settles once a graph whether the oracle can be met at all."""
    if oracle is None or not any(output.is_floating_point() for output in expected):
        return True
    fits = session.bench.oracle_fits
    if fits.get(graph.content_hash) is False:
        return True
    is_met = all(
        oracle_ok(eager, exact, meta.dtype)
        for eager, exact, meta in zip(expected, oracle(), metas, strict=True)
        if eager.is_floating_point()
    )
    if is_met:
        fits[graph.content_hash] = True
    elif graph.content_hash not in fits:
        fits[graph.content_hash] = False
        return True
    return is_met


def oracle_outputs(session: Session, graph: Graph, buffers: InputSet) -> list[torch.Tensor]:
    """The graph in float64 on what the buffers hold. Raises ReferenceFailedError."""
    session.ask_reference("load_set", **buffers.load_message(fresh=False))
    described = session.ask_reference("oracle", set=0)["outputs"]
    items, slots = output_slots(_metas(described, graph), ORACLE_CALL)
    session.ask_reference("deliver", items=items)
    return [buffers.read_output(session.reference, slot) for slot in slots]


def _metas(described: Sequence[dict[str, Any]], graph: Graph) -> list[OutputMeta]:
    metas = []
    for index, output in enumerate(described):
        if "literal" in output:
            raise ReferenceFailedError(
                f"{graph.name}: output {index} of the graph is a {output['type']}, not a tensor; leave this graph out"
            )
        metas.append(
            OutputMeta(tuple(output["shape"]), output["dtype"], tuple(output["stride"]), str(output["device"]))
        )
    return metas


def _check_outputs(
    described: Sequence[dict[str, Any]], metas: Sequence[OutputMeta], graph: Graph, *, plain: bool
) -> None:
    ours = []
    for index, output in enumerate(described):
        if "literal" in output:
            raise GraphFailure(Outcome.WRONG_SHAPE, f"output {index} is a {output['type']}, not a tensor")
        if plain and output.get("fault"):
            raise GraphFailure.not_plain(f"output {index}: {output['fault']}")
        ours.append(OutputMeta(tuple(output["shape"]), output["dtype"], tuple(output["stride"]), output["device"]))
    outcome, message = compare_metas(ours, metas)
    if outcome is not None:
        raise GraphFailure(outcome, message)


def refuse(violations: Sequence[Violation]) -> None:
    """Raises GraphFailure if there are any."""
    if violations:
        raise GraphFailure(Outcome.VIOLATION, violations[0].message, violations)


def compare_inputs(graph: Graph, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
    for name, mine, expected in zip(graph.arguments, ours, theirs, strict=True):
        if not np.array_equal(mine, expected):
            raise GraphFailure(
                Outcome.INPUT_MUTATED,
                f"the call changed its input {name}; write results to new tensors (torch.empty_like) only",
            )


def _compare_outputs(
    result: Correctness,
    ours: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    oracle: Oracle | None,
) -> None:
    """Against eager; where that is beyond the strict level, an element that is near the oracle counts as well."""
    for index, (mine, right) in enumerate(zip(ours, expected, strict=True)):
        level, difference, message = first_correct_level(mine, right)
        if oracle is not None and right.is_floating_point() and (level is None or level > STRICT_LEVEL):
            level, _, message = first_correct_level(mine, right, oracle()[index])
        result.max_abs_difference = max(result.max_abs_difference, difference)
        if level is None or (result.first_correct_t is not None and level > result.first_correct_t):
            result.first_correct_t = level
        if message and not result.message:
            result.message = message if len(ours) == 1 else f"output {index}: {message}"
