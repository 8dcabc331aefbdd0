"""Unseen shapes: does a pass that matches a graph outside the task compute it right, or say that it does not?

    variant of the graph (variants.py) -> match -> one call of candidate and eager on a fresh draw -> comparison

A silent wrong result is the original graph's failure: a rule that matches must be right or raise an error. No match and
an error are only reported. The sizes are drawn secretly anew in each evaluation, from the session's generator.

What counts as wrong is coarse, because nobody asked for these shapes: beyond the level that the graph reached in the
task, loosened by one, AND beyond what rounding in the task's own dtype explains (see `wrong_elements`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch

from data.inputs import draw_inputs
from eval_harness.comparison import LAST_COMPARED_LEVEL, first_correct_level, tolerances
from eval_harness.errors import ReferenceFailedError
from eval_harness.judge.buffers import InputSet
from eval_harness.judge.correctness import (
    GraphFailure,
    call_candidate,
    call_reference,
    compare_inputs,
    exchanged,
    oracle_outputs,
    reference_metas,
)
from eval_harness.judge.graph_loading import load_rewritten
from eval_harness.judge.session import PROBE_TIMEOUT_S, Session
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.rewriting import InvalidPatternError, rewrite
from eval_harness.tracing import TracedGraph
from eval_harness.variants import Variant, VariantSource, runs_on_cpu
from eval_harness.verdict import STRICT_LEVEL, Outcome, UnseenCheck

log = logging.getLogger(__name__)

ROUNDING_STEPS = 16
"""Units in the last place of the output's largest value that a chain of operators may differ by."""
EAGER_ERRORS = 4.0
"""So many times eager's own distance from float64 are no fault of the candidate's."""
MAX_SOURCES = 512
"""Graphs of which a judge keeps what it learnt about their variants, the latest ones."""
MAX_UNMATCHED = 2
"""Variants that no rule matches, a kind, before the search for one that is matched ends: they say nothing."""
_EPS = {"torch.float32": 2.0**-23, "torch.float16": 2.0**-10, "torch.bfloat16": 2.0**-7}

_MAY_BE_THE_CANDIDATES = frozenset({"oom", "timeout", "killed", "died"})
"""How eager fails beside a candidate that hogs the machine: nothing is learnt of the variant from it."""
_SILENT = frozenset({Outcome.WRONG_SHAPE, Outcome.WRONG_DTYPE, Outcome.WRONG_VALUES, Outcome.INPUT_MUTATED})
CURE = "take sizes and dtypes from the tensors, or raise an error for what the kernel does not serve"


def check_unseen(session: Session, traced: TracedGraph, level: int) -> list[UnseenCheck]:
    """Variants by shape and by dtype, as many of each as the protocol says. The workers hold another graph afterwards.

    level: first_correct_t of the graph itself. Raises UnseenFailure for a silent wrong result, GraphFailure for a
    violation.
    """
    known, key = session.bench.variants, traced.graph.content_hash
    source = known[key] = known.pop(key) if key in known else VariantSource(traced)
    while len(known) > MAX_SOURCES:
        del known[next(iter(known))]
    protocol = session.protocol
    done: list[UnseenCheck] = []
    try:
        for variants, wanted in (
            (source.draw_shapes(session.generator), protocol.unseen_shapes),
            (source.draw_dtypes(session.generator), protocol.unseen_dtypes),
        ):
            _check_some(session, source, variants, wanted, level, done)
    except GraphFailure as failure:
        raise UnseenFailure(failure, done) from None
    return done


class UnseenFailure(GraphFailure):
    """A silent wrong result or a violation at an unseen shape, with the checks up to it."""

    def __init__(self, failure: GraphFailure, checks: Sequence[UnseenCheck]) -> None:
        super().__init__(failure.outcome, failure.message, failure.violations)
        self.checks = list(checks)


def _check_some(
    session: Session,
    source: VariantSource,
    variants: Iterator[Variant],
    wanted: int,
    level: int,
    done: list[UnseenCheck],
) -> None:
    matched = unmatched = 0
    # asked for before a variant is drawn, which costs fake runs
    while matched < wanted and unmatched < MAX_UNMATCHED:
        variant = next(variants, None)
        if variant is None:
            return
        if session.seconds_left() <= 0:
            done.append(UnseenCheck(change=variant.text, result="not-run", message="the task's time was spent"))
            return
        check = _check_one(session, source, variant, level)
        if check is None:
            continue
        done.append(check)
        if check.result == "no-match":
            unmatched += 1
            continue
        matched += 1
        if check.result == "wrong":
            what = f"outside the task's shapes ({check.change}): {check.message}; {CURE}"
            raise GraphFailure(Outcome.WRONG_VALUES, what)


def _check_one(session: Session, source: VariantSource, variant: Variant, level: int) -> UnseenCheck | None:
    """None: eager itself does not run the variant. Raises GraphFailure for a violation."""
    check = UnseenCheck(change=variant.text, result="correct")
    try:
        rewritten = rewrite(variant.traced, session.rules)
    except InvalidPatternError as error:
        return check.model_copy(update={"result": "no-match", "message": str(error)})
    if not rewritten.num_matches or rewritten.violations:
        return check.model_copy(update={"result": "no-match"})
    if session.bench.device != "cpu" and not runs_on_cpu(variant):
        source.refuse(variant)
        return None
    worker = session.candidate
    try:
        load_rewritten(session, variant.traced, rewritten)
        message = _difference(session, variant, source.traced, level)
    except ReferenceFailedError as error:
        log.info("%s: no variant: %s", variant.text, error)
        if error.kind not in _MAY_BE_THE_CANDIDATES:
            source.refuse(variant)
        _drop_both(session, worker)
        return None
    except GraphFailure as failure:
        if failure.violations:
            raise
        result = "wrong" if failure.outcome in _SILENT else "refused" if _is_well(worker) else "lost"
        return check.model_copy(update={"result": result, "message": f"{failure.outcome}: {failure.message}"[:500]})
    return check.model_copy(update={"result": "wrong", "message": message} if message else {})


def _difference(session: Session, variant: Variant, original: TracedGraph, level: int) -> str:
    """What is wrong with one call; empty if nothing is. Raises GraphFailure, ReferenceFailedError."""
    graph = variant.graph
    metas = reference_metas(session, graph)
    suspects: dict[int, str] = {}
    with exchanged(session, graph, metas) as buffers:
        buffers.write(draw_inputs(graph, seed=session.seed(), mode=session.protocol.inputs))
        ours, our_inputs = call_candidate(session, graph, buffers, metas)
        expected, their_inputs = call_reference(session, buffers, metas)
        compare_inputs(graph, our_inputs, their_inputs)
        allowed = min(max(level, STRICT_LEVEL) + 1, LAST_COMPARED_LEVEL)
        for index, (mine, right) in enumerate(zip(ours, expected, strict=True)):
            found, _, message = first_correct_level(mine, right)
            if found is None or found > allowed:
                suspects[index] = message
        if not suspects:
            return ""
        exact = _oracle(session, variant, buffers, expected)
    eps = max(_epsilon(original), _epsilon(variant.traced))
    for index in suspects:
        if not expected[index].is_floating_point():
            # rounding in another dtype moves comparisons and indices
            if variant.is_dtype:
                continue
            return f"output {index}: {suspects[index]}"
        wrong = wrong_elements(ours[index], expected[index], exact[index], level=allowed, eps=eps)
        if count := int(wrong.sum()):
            position = int(wrong.flatten().nonzero()[0])
            got, want = (float(values[index].flatten()[position]) for values in (ours, expected))
            of = f"output {index}: " if len(expected) > 1 else ""
            return f"{of}{count} of {wrong.numel()} elements are wrong, such as {got:.6g} where eager has {want:.6g}"
    return ""


def wrong_elements(
    ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, *, level: int, eps: float
) -> torch.Tensor:
    """Mask of elements that no rounding explains.

    An element may differ from eager by the tolerance of `level`, plus ROUNDING_STEPS * eps of the output's largest
    value, plus EAGER_ERRORS times eager's largest distance from float64 (`exact`). Where eager or float64 is not finite
    (float16 overflows), nothing is said; anywhere else ours must be finite.
    """
    mine, right, true = ours.double(), eager.double(), exact.double()
    judged = torch.isfinite(right) & torch.isfinite(true)
    magnitude = torch.where(judged, right.abs(), 0.0)
    atol, rtol = tolerances(str(eager.dtype), level)
    scale = float(magnitude.max()) if magnitude.numel() else 0.0
    error = float(torch.where(judged, (right - true).abs(), 0.0).max()) if magnitude.numel() else 0.0
    allowed = atol + rtol * magnitude + ROUNDING_STEPS * eps * scale + EAGER_ERRORS * error
    difference = torch.where(torch.isfinite(mine), (mine - right).abs(), torch.inf)
    return judged & (difference > allowed)


def _oracle(
    session: Session, variant: Variant, buffers: InputSet, expected: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """float64's outputs; eager's own where the graph does not run in float64."""
    try:
        return oracle_outputs(session, variant.graph, buffers)
    except ReferenceFailedError:
        session.reference.kill()
        return expected


def _epsilon(traced: TracedGraph) -> float:
    """Of the coarsest float dtype among the arguments."""
    return max((_EPS.get(spec.dtype, 2.0**-52) for spec in traced.graph.specs.values()), default=2.0**-52)


def _is_well(worker: Worker) -> bool:
    """Whether the candidate's process is worth going on with; if not, it is ended and the next use forks a fresh one.

    A device fault stays with its process.
    """
    try:
        if worker.alive and worker.ask("probe", timeout_s=PROBE_TIMEOUT_S)["healthy"]:
            return True
    except (WorkerFailure, KeyError):
        pass
    worker.kill()
    return False


def _drop_both(session: Session, worker: Worker) -> None:
    """After a variant on which eager failed, perhaps with a device fault; either may hold it, or may have caused it."""
    if session.bench.device != "cpu":
        worker.kill()
        session.reference.kill()
