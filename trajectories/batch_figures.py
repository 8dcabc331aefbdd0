"""What batch-invariance gates did to an agent: BIEvolve's figures of a vanilla and a BI-aware collection. Pure.

vanilla: the same agent with the protocol's `batch_invariance: report`, which measures and refuses nothing. aware:
with `enforce`. Both of the same tasks, policy, seed and budget. The paper gives its figures a task and its gates a
candidate: its Tables 2 and A2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval_harness.summary import is_batch_variant
from eval_harness.verdict import Outcome, Verdict
from trajectories.agents.archive import archive_of, is_correct
from trajectories.record import Trajectory

LATE = 5
"""The paper's late stage: the last so many turns."""
PAPER = {
    "K-Search, 20 turns": (75.7, 97.4, 23.1, 86.4),
    "Iterative, 25 turns": (48.6, 89.2, 43.6, 87.7),
    "Evolve, 25 turns": (78.4, 89.2, 25.6, 102.0),
    "all": (67.6, 91.9, None, 91.8),
}
"""BIEvolve: BI success vanilla and aware, intervention rate, speedup kept, in percent; on other tasks and a B200-class
machine."""


def compare_collections(vanilla: Sequence[Trajectory], aware: Sequence[Trajectory]) -> dict[str, Any]:
    """Figures of both on the tasks that both ended. Raises ValueError where they share none."""
    mine, theirs = _by_task(aware), _by_task(vanilla)
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        raise ValueError("the two collections share no finished task")
    before, after = [theirs[key] for key in shared], [mine[key] for key in shared]
    variant = [index for index, each in enumerate(before) if _is_variant(_deciding(each))]
    both = [
        (_speed(one), _speed(two))
        for one, two in zip(before, after, strict=True)
        if _is_right(_deciding(one)) and _is_right(_deciding(two))
    ]
    return {
        "num_tasks": len(shared),
        "vanilla": _of(before),
        "aware": _of(after) | {"intervention_rate": _interventions(after)},
        "speedup_vanilla": _geometric([one for one, _ in both]),
        "speedup_aware": _geometric([two for _, two in both]),
        "speedup_kept": _geometric([two / one for one, two in both]),
        "num_both_correct": len(both),
        "late_gain_vanilla": _mean([late_gain(before[index]) for index in variant]),
        "late_gain_aware": _mean([late_gain(after[index]) for index in variant]),
        "num_variant_baseline": len(variant),
    }


def late_gain(trajectory: Trajectory) -> float:
    """By how much the last LATE turns raised the best covered AS of correct, invariant candidates, as a share.

    0 where there was none before them: a first success is no gain of a search that had one.
    """
    last = trajectory.num_turns - LATE
    early = [record.verdict for record in trajectory.evaluations if record.turn <= last]
    every = [record.verdict for record in trajectory.evaluations]
    before, after = _best(early), _best(every)
    return after / before - 1 if before > 0 else 0.0


def _by_task(trajectories: Sequence[Trajectory]) -> dict[tuple[str, int], Trajectory]:
    return {(each.task_hash, each.attempt_index): each for each in trajectories if each.stop_reason is not None}


def _of(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    finals = [_deciding(each) for each in trajectories]
    right = [verdict for verdict in finals if _is_right(verdict)]
    return {
        "bi_success": sum(not _is_variant(verdict) for verdict in right) / len(finals),
        "correct": len(right) / len(finals),
    }


def _interventions(trajectories: Sequence[Trajectory]) -> float | None:
    """Share of what the gates have seen that they refused: static rules before an evaluation, either gate in one."""
    seen = refused = 0
    for trajectory in trajectories:
        rejected = sum(entry.stage == "batch_invariance" for entry in archive_of(trajectory))
        variant = sum(
            any(graph.outcome is Outcome.BATCH_VARIANT for graph in record.verdict.graphs)
            for record in trajectory.evaluations
        )
        seen += rejected + len(trajectory.evaluations)
        refused += rejected + variant
    return refused / seen if seen else None


def _deciding(trajectory: Trajectory) -> Verdict | None:
    """The fresh verdict; without one, that of the best candidate."""
    if trajectory.final_verdict is not None:
        return trajectory.final_verdict
    best = trajectory.best_evaluation
    return None if best is None else trajectory.evaluations[best].verdict


def _is_right(verdict: Verdict | None) -> bool:
    return verdict is not None and is_correct(verdict)


def _is_variant(verdict: Verdict | None) -> bool:
    return verdict is not None and any(is_batch_variant(graph) for graph in verdict.graphs)


def _best(verdicts: Sequence[Verdict]) -> float:
    scores = [each.as_covered or 0.0 for each in verdicts if is_correct(each) and not _is_variant(each)]
    return max(scores, default=0.0)


def _speed(trajectory: Trajectory) -> float:
    verdict = _deciding(trajectory)
    return max((verdict.as_covered or 0.0) if verdict is not None else 0.0, 1e-3)


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def rows(found: Mapping[str, Any]) -> list[tuple[str, float | None, float | None]]:
    """(figure, vanilla, aware), shares in percent."""

    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    vanilla, aware = found["vanilla"], found["aware"]
    return [
        ("BI success, % of tasks", percent(vanilla["bi_success"]), percent(aware["bi_success"])),
        ("correct, % of tasks", percent(vanilla["correct"]), percent(aware["correct"])),
        ("intervention rate, % of candidates", None, percent(aware["intervention_rate"])),
        ("covered AS where both are correct", found["speedup_vanilla"], found["speedup_aware"]),
        ("speedup kept, %", None, percent(found["speedup_kept"])),
        (
            f"late-stage gain, last {LATE} turns, %",
            percent(found["late_gain_vanilla"]),
            percent(found["late_gain_aware"]),
        ),
    ]
