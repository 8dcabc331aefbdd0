"""Survivors again in fresh processes: sizes falling, then sizes rising.

The falling process begins with the batch that the warm process began with, so it must reproduce it; if it does not,
bits change from process to process and no batch is to blame. The rising one begins with a single row: what was decided
at the first call, tuned for the first batch or kept in a cache shows as other bits for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.batch_invariance.bits import differ
from eval_harness.batch_invariance.contexts import Context, Placement
from eval_harness.batch_invariance.runner import CallError
from eval_harness.batch_invariance.trials import Mismatch, Trials
from eval_harness.errors import HarnessError

SIZES = (1, 8, 17, 33, 65, 129)
"""Besides the largest."""
ORDERS = ("falling", "rising")


@dataclass(frozen=True)
class Confirmation:
    """What the fresh processes gave."""

    note: str
    """One line for the result's message."""
    is_complete: bool = False
    """Whether both orders ran to the end."""
    order: str = ""
    """The one that showed the difference."""
    mismatch: Mismatch | None = None
    repeats: bool = False
    """Whether another process in the same order gave the same bits again, and the first batch agreed."""


def confirm_fresh(trials: Trials, contexts: Sequence[Context], *, is_fixed: bool) -> Confirmation:
    """Run plain batches of several sizes in two fresh processes and compare with the warm process's bits."""
    chosen = _choose(contexts, is_fixed)
    for order in ORDERS:
        in_order = sorted(chosen, key=lambda context: context.size, reverse=order == "falling")
        try:
            found = _run_order(trials, in_order)
        except (CallError, HarnessError) as error:
            return Confirmation(f"not confirmed: the fresh process with sizes {order}: {error}")
        if found is None:
            return Confirmation("not confirmed: the kernel cannot be loaded anew (give the file that defines it)")
        if isinstance(found, Mismatch):
            return _look_again(trials, in_order, order, found)
    return Confirmation("confirmed in fresh processes, sizes rising and falling", is_complete=True)


def _choose(contexts: Sequence[Context], is_fixed: bool) -> list[Context]:
    if is_fixed:
        return [c for c in contexts if c.is_plain or c.placement is Placement.REVERSED]
    plain: dict[int, Context] = {}
    for context in contexts:
        if context.is_plain:
            plain.setdefault(context.size, context)
    largest = max(plain)
    nearest = {min(plain, key=lambda size: abs(size - wanted)) for wanted in SIZES}
    return [plain[size] for size in sorted(nearest | {largest})]


def _run_order(trials: Trials, contexts: Sequence[Context]) -> Mismatch | bool | None:
    """The first difference, False if there is none, None where there is no fresh runner. Raises CallError."""
    runner = trials.runner.fresh()
    if runner is None:
        return None
    num_run = 0
    last_error: CallError | None = None
    try:
        for context in contexts:
            try:
                outputs = trials.call(context, runner)
            except CallError as error:
                if error.is_fatal:
                    raise
                last_error = error
                continue
            num_run += 1
            if bool(trials.flag(context, outputs)):
                return trials.mismatch(context, outputs)
    finally:
        runner.close()
    if num_run == 0 and last_error is not None:
        raise last_error
    return False


def _look_again(trials: Trials, contexts: Sequence[Context], order: str, found: Mismatch) -> Confirmation:
    """Another process in the same order: batches are to blame only if it gives the same bits again."""
    is_first_batch = order == "falling" and found.context == contexts[0]
    try:
        again = None if is_first_batch else _run_order(trials, contexts)
    except (CallError, HarnessError):
        again = None
    repeats = isinstance(again, Mismatch) and again.context == found.context and not bool(differ(again.got, found.got))
    note = (
        "another process in that order gives the same bits again: what the kernel decided for its first batches "
        "decides the bits of later ones"
        if repeats
        else "bits change from process to process"
    )
    return Confirmation(note, order=order, mismatch=found, repeats=repeats)
