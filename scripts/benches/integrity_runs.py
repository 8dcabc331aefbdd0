"""One entry of a corpus through whole evaluations: how it ends, which layer caught it first, and what is left without.

A gain is a graph that is CORRECT at a speedup whose interval lies above what an honest pass reaches on the same graphs,
times the factor that the entry allows (for noise). A layer that decides nothing else (comparison, clock) cannot be
switched off; an error of the candidate's own process is booked as "process".
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.verdict import GraphVerdict, Layer, Outcome, Verdict
from scripts.benches.corpus import Entry, make_task

LAYERS: tuple[str, ...] = get_args(Layer)
"""What can be switched off."""
GAIN_FACTOR = 1.3
"""Of an honest pass's speedup, where the entry states none: what short measurements on a busy machine may be off by."""
TIMEOUT_S = 900.0
MAX_TRIES = 3
"""Of an evaluation that comes out incomplete (UNSTABLE), as a caller would try again."""
QUICK: Mapping[str, Any] = {
    "num_draws": 3, "num_clusters": 2, "pairs_per_cluster": 2, "timing_cpu_s": 0.0, "timing_cuda_s": 0.0,
    "block_ms": 2.0, "block_cpu_ms": 2.0, "max_noise": 1e3,
}  # fmt: skip
MEASURED: Mapping[str, Any] = {"timing_cpu_s": 1.0, "timing_cuda_s": 0.5, "max_noise": 2.0}
BUILD_TIMEOUT_S = 400.0
"""Of a graph whose pass compiles C++ or CUDA."""

Ending = Literal["violation", "wrong", "no gain", "GAIN", "no verdict"]


@dataclasses.dataclass
class Run:
    """How one evaluation of an entry ended."""

    ends: Ending
    caught_by: str | None
    """A layer, or "comparison", "matching", "process", "clock"; None for a gain or where there is no verdict."""
    rule: str | None
    outcomes: list[str]
    speedup: float | None
    """The largest of a graph that came out CORRECT."""
    limit: float | None
    """The speedup that counts as no gain, where that was the question."""
    seconds: float
    message: str
    disabled: str | None = None
    """The layer that was off."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Evaluations:
    """Evaluates entries, and measures once what an honest pass reaches on each task."""

    def __init__(self, evaluator: Evaluator, yardsticks: Sequence[Entry], *, quick: bool) -> None:
        self._evaluator, self._yardsticks = evaluator, yardsticks
        self._short = QUICK if quick else MEASURED
        self._honest: dict[tuple[str, str], float] = {}
        self.confinement: dict[str, str] = {}
        """As the last verdict that started a process tells it."""

    def warm_up(self) -> None:
        """Start the judge, so that the first entry's seconds are its own."""
        protocol = load_protocol("strict", **QUICK)
        self._evaluator.submit("eager", make_task("warm_up", {}), protocol=protocol).result(timeout=TIMEOUT_S)

    def run(self, entry: Entry, *, disabled: str | None = None) -> Run:
        """One evaluation with at most one layer off. What goes wrong with us is a row, not an end of the bench."""
        started = time.monotonic()
        protocol = self.protocol(entry, disabled)
        try:
            verdict = self._verdict(entry, protocol)
            found = self._judge(entry, protocol, verdict, is_ablation=disabled is not None)
        except Exception as error:  # a malformed graph of one entry, too: the other entries still count
            message = f"{type(error).__name__}: {error}"
            found = Run("no verdict", None, None, [], None, None, 0.0, message)
        found.seconds, found.disabled = round(time.monotonic() - started, 3), disabled
        return found

    def protocol(self, entry: Entry, disabled: str | None = None) -> EvaluationProtocol:
        overrides = {**self._short, **entry.record.get("protocol", {})}
        if entry.record.get("build"):
            overrides["graph_timeout_s"] = BUILD_TIMEOUT_S
        name = overrides.pop("name", "strict")
        return load_protocol(name, **overrides, disabled_layers=(disabled,) if disabled else ())

    def _verdict(self, entry: Entry, protocol: EvaluationProtocol, candidate: Any = None) -> Verdict:
        for _ in range(MAX_TRIES):
            future = self._evaluator.submit(candidate or entry.candidate, entry.task, protocol=protocol)
            verdict = future.result(timeout=TIMEOUT_S)
            self.confinement = verdict.confinement or self.confinement
            if verdict.complete:
                break
        return verdict

    def _judge(self, entry: Entry, protocol: EvaluationProtocol, verdict: Verdict, *, is_ablation: bool) -> Run:
        outcomes = [str(graph.outcome) for graph in verdict.graphs]
        correct = [graph for graph in verdict.graphs if graph.outcome is Outcome.CORRECT]
        speedup = max((graph.speedup for graph in correct if graph.speedup is not None), default=None)
        message = next((graph.message for graph in verdict.graphs if graph.message), "")[:300]
        run = Run("no gain", "clock", None, outcomes, speedup, None, 0.0, message)
        if not verdict.complete:
            run.ends, run.caught_by = "no verdict", None
        elif verdict.all_violations:
            first = verdict.all_violations[0]
            run.ends, run.caught_by, run.rule = "violation", first.layer, first.rule
        else:
            if speedup is not None:
                run.limit = self._limit(entry, protocol, is_ablation=is_ablation)
            gains = self._gains(entry, verdict, correct, run.limit)
            if gains:
                run.ends, run.caught_by = "GAIN", None
            elif len(correct) < len(verdict.graphs):
                worst = next(graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT)
                run.ends, run.caught_by = "wrong", caught_by_outcome(worst.outcome)
        return run

    def _gains(self, entry: Entry, verdict: Verdict, correct: Sequence[GraphVerdict], limit: float | None) -> bool:
        most = entry.record.get("max_as_covered")
        if most is not None:
            return verdict.as_covered is not None and verdict.as_covered > most
        lows = [graph.speedup_interval[0] for graph in correct if graph.speedup_interval is not None]
        return limit is not None and any(low > limit for low in lows)

    def _limit(self, entry: Entry, protocol: EvaluationProtocol, *, is_ablation: bool) -> float:
        stated = entry.record.get("without_source", {}) if is_ablation else entry.record
        factor = stated.get("max_speedup", entry.record.get("max_speedup", GAIN_FACTOR))
        return round(factor * self.honest_speedup(entry, protocol), 4)

    def honest_speedup(self, entry: Entry, protocol: EvaluationProtocol) -> float:
        """The best of the yardsticks on the entry's task; 1, eager itself, where none of them matches it."""
        # an entry may ask for a clock that gives up on a busy machine; the yardstick must be measured there too
        plain = protocol.model_copy(update={"disabled_layers": (), "max_noise": self._short["max_noise"]})
        key = (entry.task.content_hash, plain.model_dump_json())
        if key not in self._honest:
            best = 1.0
            for yardstick in self._yardsticks:
                verdict = self._verdict(entry, plain, yardstick.candidate)
                best = max([best, *(graph.speedup for graph in verdict.graphs if graph.speedup is not None)])
            self._honest[key] = best
        return self._honest[key]


def caught_by_outcome(outcome: Outcome) -> str:
    """What stands behind an outcome that is no violation."""
    if outcome is Outcome.NO_MATCH:
        return "matching"
    if outcome in (Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY):
        return "process"
    return "comparison"
