"""One validation, from the first call to the verdict.

reference batch, twice (determinism) -> contexts in this process until one differs (the timed gate)
-> a difference is seen again before it counts, and explained -> survivors again in fresh processes
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any

from eval_harness.batch_invariance.bits import differ
from eval_harness.batch_invariance.confirmation import confirm_fresh
from eval_harness.batch_invariance.contexts import BatchLimits, Context, ContextPolicy, PoolShape, plan_contexts
from eval_harness.batch_invariance.dynamic_result import Difference, DynamicOutcome, DynamicResult
from eval_harness.batch_invariance.explanation import explain
from eval_harness.batch_invariance.feedback import render_feedback
from eval_harness.batch_invariance.runner import CallError, is_device_lost, one_line
from eval_harness.batch_invariance.trials import Mismatch, Tally, Timing, Trials

MIN_CONTEXTS = 3
"""Contexts beside the reference that must have been compared for a row to count as invariant."""
WARM_UPS = 3
"""Passes before those that are timed, where repeats are asked for (BIEvolve: 3 warm-ups, 10 repetitions)."""


@dataclass
class Validation:
    """One validation, from the first call to the verdict."""

    trials: Trials
    policy: ContextPolicy
    limits: BatchLimits
    base: int
    family: str | None
    timing: Timing = field(default_factory=Timing)

    def run(self, confirm: bool, repeats: int) -> DynamicResult:
        try:
            contexts = self._begin()
            result, tally = self._warm(contexts)
            if repeats and result.outcome in (DynamicOutcome.INVARIANT, DynamicOutcome.VARIANT):
                result = replace(result, warm_ms=self._time(contexts, tally, repeats))
        except CallError as error:
            return replace(self._not_applicable(str(error)), is_lost=error.is_fatal)
        except RuntimeError as error:  # a fault of the device shows at whatever waits for it next
            if not is_device_lost(error):
                raise
            return replace(self._not_applicable(one_line(error)), is_lost=True)
        if confirm and result.outcome is DynamicOutcome.INVARIANT:
            result = self._confirm(result, contexts)
        return result

    def _begin(self) -> list[Context]:
        """Warm up on the largest batch that the kernel takes, and plan. Raises CallError where it takes none."""
        trials, pool = self.trials, self.trials.pool
        first_error: CallError | None = None
        for size in self._reference_sizes():
            shape = PoolShape(size, min(self.base, size), pool.fillers, 4, 1 << 20)
            reference = plan_contexts(self.policy, shape, self.limits)[0]
            try:
                outputs = trials.call(reference)
                trials.wait()
            except CallError as error:
                if error.is_fatal:
                    raise
                first_error = first_error or error
                continue
            if not outputs:
                raise CallError("no output has a batch axis")
            if trials.shared_changed():
                trials.restore_shared()
            narrowest = min((rows.tensor for rows in outputs), key=lambda t: (t.element_size(), t.numel()))
            shape = replace(
                shape,
                output_bytes=narrowest.element_size(),
                row_elements=max(narrowest.numel() // size, 1),
                by_length=tuple(row for row in pool.by_length if row < size),
            )
            return plan_contexts(self.policy, shape, self.limits)
        raise first_error or CallError("no batch size is within its limits")

    def _reference_sizes(self) -> list[int]:
        count = self.trials.pool.num_needles
        smaller = [size for size in sorted(self.policy.sizes, reverse=True) if size < count]
        sizes = [self.limits.nearest(size, count) for size in (count, self.policy.reference_size, *smaller, self.base)]
        return list(dict.fromkeys(size for size in sizes if size is not None))

    def _warm(self, contexts: list[Context]) -> tuple[DynamicResult, Tally]:
        """The pass in this process, once more with copies if the kernel turns out to write to shared inputs."""
        found = self._pass(contexts)
        if not found[0].is_lost and self.trials.shared_changed():
            self.trials.restore_shared()
            self.timing = Timing()
            found = self._pass(contexts)
        return found

    def _pass(self, contexts: list[Context]) -> tuple[DynamicResult, Tally]:
        reference, rest = contexts[0], contexts[1:]
        again = self._run_reference(reference)
        tally = Tally()
        if again:
            message = f"the same inputs give other bits in a second call ({reference})"
            return self._not_deterministic(message, tally), tally
        tally = self.trials.run_pass(rest, self.timing, budget_s=self.policy.budget_s)
        if tally.lost is not None:
            message = f"the kernel broke the device or its process: {tally.lost}"
            return replace(self._not_applicable(message, tally), is_lost=True), tally
        if tally.differs is not None:
            return self._variant(tally, rest), tally
        return self._survived(reference, tally), tally

    def _run_reference(self, reference: Context) -> bool:
        """Make the reference, and say whether a second call gives other bits."""
        trials = self.trials
        inputs = [trials.inputs(reference) for _ in range(2)]
        trials.wait()
        begun = time.perf_counter()
        trials.set_reference(reference, trials.call(reference, inputs=inputs[0]))
        differs = bool(trials.flag(reference, trials.call(reference, inputs=inputs[1])))
        self.timing.run_ms += (time.perf_counter() - begun) * 1e3
        return differs

    def _variant(self, tally: Tally, contexts: list[Context]) -> DynamicResult:
        """A difference counts if both batches repeat their own bits."""
        trials, context, reference = self.trials, tally.differs, self.trials.reference_context
        assert context is not None and reference is not None
        begun = time.perf_counter()
        first = trials.mismatch(context, trials.call(context))
        second = trials.mismatch(context, trials.call(context)) if first is not None else None
        ours_again = trials.flag(reference, trials.call(reference))
        repeats = second is not None and first is not None and _same(first, second) and not bool(ours_again)
        self.timing.run_ms += (time.perf_counter() - begun) * 1e3
        if first is None or not repeats:
            return self._not_deterministic(f"the same inputs give other bits from call to call ({context})", tally)
        difference = Difference.of(first, reference, trials.pool)
        explanation = explain(trials, first, contexts, self.limits)
        feedback = render_feedback(difference, explanation, self.family)
        return DynamicResult(
            DynamicOutcome.VARIANT,
            context,
            difference=difference,
            explanation=explanation,
            message=difference.summary(),
            feedback=feedback,
            **self._counts(tally),
        )

    def _survived(self, reference: Context, tally: Tally) -> DynamicResult:
        sizes = {reference.size, *(context.size for context in tally.compared)}
        late = f"; {tally.num_dropped} not tried in {self.policy.budget_s:g} s" if tally.num_dropped else ""
        refused = late + f"; it refused {len(tally.refused)}, first: {tally.refused[0][1]}" if tally.refused else late
        if len(tally.compared) < MIN_CONTEXTS or (self.policy.sizes and len(sizes) < 2):
            message = f"only {len(tally.compared)} batches beside the largest ({reference}) could be run{refused}"
            return self._not_applicable(message, tally)
        sizes_text = (
            f"batches of {min(sizes)} to {max(sizes)} rows"
            if self.policy.sizes
            else f"batch {reference.size} only, which is fixed: composition and position"
        )
        message = f"the same bits in {len(tally.compared) + 1} batches: {sizes_text}{refused}"
        return DynamicResult(DynamicOutcome.INVARIANT, None, message=message, **self._counts(tally))

    def _confirm(self, result: DynamicResult, contexts: list[Context]) -> DynamicResult:
        """Fresh processes, sizes rising and falling. What they need is timed apart."""
        begun = time.perf_counter()
        found = confirm_fresh(self.trials, contexts, is_fixed=not self.policy.sizes)
        confirm_ms = (time.perf_counter() - begun) * 1e3
        result = replace(result, confirm_ms=confirm_ms, confirmed=found.is_complete and found.mismatch is None)
        if found.mismatch is None:
            return replace(result, message=f"{result.message}; {found.note}")
        reference = self.trials.reference_context
        assert reference is not None
        difference = Difference.of(found.mismatch, reference, self.trials.pool, process=found.order)
        outcome = DynamicOutcome.VARIANT if found.repeats else DynamicOutcome.NOT_DETERMINISTIC
        return replace(
            result,
            outcome=outcome,
            witness=found.mismatch.context,
            difference=difference,
            message=f"{difference.summary()}; {found.note}",
            feedback=render_feedback(difference, None, self.family),
        )

    def _time(self, contexts: list[Context], tally: Tally, repeats: int) -> float:
        """Median milliseconds of the same contexts, launched and compared anew."""
        rest = [context for context in contexts[1:] if context in set(tally.compared)]
        measured = []
        for _ in range(WARM_UPS + repeats):
            self.timing = Timing()
            self._run_reference(contexts[0])
            again = self.trials.run_pass(rest, self.timing)
            if again.differs is not None:
                self._run_twice(again.differs)
            measured.append(self.timing.run_ms)
        return statistics.median(measured[WARM_UPS:])

    def _run_twice(self, context: Context) -> None:
        """What seeing a difference again costs."""
        begun = time.perf_counter()
        reference = self.trials.reference_context
        assert reference is not None
        for again in (context, context, reference):
            bool(self.trials.flag(again, self.trials.call(again)))
        self.timing.run_ms += (time.perf_counter() - begun) * 1e3

    def _not_deterministic(self, message: str, tally: Tally) -> DynamicResult:
        feedback = (
            f"Not deterministic: {message}. A row cannot be batch-invariant before it is repeatable. Look for atomic "
            "adds of floats, for races between programs that write the same place, for memory that is read before it "
            "is written, and for random numbers without a fixed seed and offset."
        )
        return DynamicResult(
            DynamicOutcome.NOT_DETERMINISTIC, tally.differs, message=message, feedback=feedback, **self._counts(tally)
        )

    def _not_applicable(self, reason: str, tally: Tally | None = None) -> DynamicResult:
        return DynamicResult(DynamicOutcome.NOT_APPLICABLE, None, message=reason, **self._counts(tally or Tally()))

    def _counts(self, tally: Tally) -> dict[str, Any]:
        return {
            "num_contexts": len(tally.compared) + 1 if self.trials.reference else 0,
            "num_skipped": len(tally.refused) + tally.num_dropped,
            "warm_ms": self.timing.run_ms,
            "build_ms": self.timing.build_ms,
        }


def _same(first: Mismatch, second: Mismatch) -> bool:
    return first.output == second.output and not bool(differ(first.got, second.got))
