"""Which graphs of a large task are timed, and what the result says of the others. Pure functions.

A time budget times a few graphs: the graphs that may be timed are cut into strata of like size, and one of each is
drawn secretly. The drawn graph stands for its stratum: what goes wrong with it while it is timed holds for the others
there, or a pass that cheats in timed calls would lose the drawn graphs only. Speedups are filled in by scores.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eval_harness.verdict import STRICT_LEVEL, GraphVerdict, Outcome

TIMED_LEVEL = 1
"""A graph that is first correct at or below this tolerance level is timed."""


def may_be_timed(verdict: GraphVerdict) -> bool:
    """Whether its correctness allows it."""
    return verdict.first_correct_t is not None and verdict.first_correct_t <= TIMED_LEVEL


def size_strata(indices: Sequence[int], size: Callable[[int], int], most: int) -> list[list[int]]:
    """The indices in at most `most` groups of like size, of nearly equal length, none empty."""
    ordered = sorted(indices, key=size)
    count = min(most, len(ordered))
    bounds = [round(i * len(ordered) / count) for i in range(count + 1)] if count else [0]
    return [ordered[bounds[i] : bounds[i + 1]] for i in range(count)]


def not_timed(verdict: GraphVerdict, why: str) -> GraphVerdict:
    """A correct graph that was not timed, with the reason for a reader."""
    note = f"not timed: {why}"
    message = f"{verdict.message}; {note}" if verdict.message else note
    return verdict.model_copy(update={"message": message})


def as_drawn(verdict: GraphVerdict, drawn: GraphVerdict) -> GraphVerdict:
    """A graph that was not timed, by what became of the graph that was drawn from its stratum.

    If that one failed while it was timed, so did this one; a worse tolerance level there is this one's too.
    """
    if drawn.outcome is Outcome.UNSTABLE:
        return verdict  # the verdict as a whole is
    found = f"as {drawn.graph}, which was timed for graphs of its size: {drawn.message}"
    if drawn.first_correct_t is None:
        failed = {"outcome": drawn.outcome, "violations": drawn.violations, "first_correct_t": None, "message": found}
        return GraphVerdict.model_validate(verdict.model_dump() | failed)
    level = verdict.first_correct_t
    if level is not None and level <= STRICT_LEVEL < drawn.first_correct_t:
        worse = {"outcome": Outcome.WRONG_VALUES, "first_correct_t": drawn.first_correct_t, "message": found}
        return GraphVerdict.model_validate(verdict.model_dump() | worse)
    return verdict


def out_of_time(verdict: GraphVerdict, seconds: float) -> GraphVerdict:
    """A graph of a task whose whole time was spent before anything could be timed."""
    message = f"the task's {seconds:.0f} s were spent before any graph could be timed"
    update = {"outcome": Outcome.TIMEOUT, "first_correct_t": None, "message": message}
    return GraphVerdict.model_validate(verdict.model_dump() | update)
