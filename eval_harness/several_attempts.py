"""What k attempts at a task are worth: pass@k, best of k, the mean attempt. Pure functions of verdicts; no torch.

Both estimators use all n attempts and are unbiased for a draw of k of them without replacement. The best of k is chosen
by what the policy was shown, and counts with its fresh verdict: to choose by the fresh one would choose luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval_harness.resampling import TaskSums, figures_with_intervals, mean_sums, task_sums
from eval_harness.scores import Scoring
from eval_harness.verdict import Verdict


def pass_at_k(num_attempts: int, num_solved: int, k: int) -> float:
    """Probability that k of the attempts, drawn without replacement, hold a solved one. Raises ValueError."""
    if not 0 <= num_solved <= num_attempts or not 1 <= k <= num_attempts:
        raise ValueError(f"pass@{k} of {num_solved} solved among {num_attempts}: needs 1 <= k <= attempts")
    return 1.0 - math.comb(num_attempts - num_solved, k) / math.comb(num_attempts, k)


def expected_best(ranked: Sequence[float], k: int) -> float:
    """Expected value of the best-ranked of k drawn without replacement. ranked: values, best rank first."""
    num = len(ranked)
    if not 1 <= k <= num:
        raise ValueError(f"best of {k} among {num}: needs 1 <= k <= attempts")
    return sum(value * math.comb(num - 1 - rank, k - 1) for rank, value in enumerate(ranked)) / math.comb(num, k)


def is_solved(verdict: Verdict) -> bool:
    """Every graph is CORRECT."""
    return verdict.num_correct == len(verdict.graphs)


def summarize_attempts(
    verdicts: Mapping[str, Sequence[Verdict]],
    shown: Mapping[str, Sequence[float | None]],
    *,
    scoring: Scoring = "passwright",
    p: float = 0.0,
) -> dict[str, Any]:
    """Figures of several attempts a task.

    verdicts: task_id -> one fresh verdict an attempt. shown: task_id -> the best score that each attempt was shown
    (None: nothing was evaluated), by which the best of k is chosen. Raises ValueError for unequal numbers of attempts.
    """
    counts = {len(of_task) for of_task in verdicts.values()}
    if len(counts) != 1 or not min(counts):
        raise ValueError(f"tasks have {sorted(counts)} attempts; each needs the same number, at least 1")
    num_attempts = counts.pop()
    sums = {task: [task_sums(each, scoring=scoring, p=p) for each in of_task] for task, of_task in verdicts.items()}
    incomplete = sorted(task for task, of_task in sums.items() if any(each is None for each in of_task))
    result: dict[str, Any] = {"num_attempts": num_attempts, "incomplete_tasks": incomplete}
    result |= {"pass_at_k": {}, "best_of_k": {}, "mean": {}}
    if incomplete:  # never fewer tasks
        return result
    scored = {task: [each for each in of_task if each is not None] for task, of_task in sums.items()}
    solved = {task: sum(map(is_solved, of_task)) for task, of_task in verdicts.items()}
    for k in range(1, num_attempts + 1):
        rates = [pass_at_k(num_attempts, count, k) for count in solved.values()]
        result["pass_at_k"][str(k)] = sum(rates) / len(rates)
        result["best_of_k"][str(k)] = _best_of(scored, shown, k)
    result["mean"] = figures_with_intervals([mean_sums(of_task) for of_task in scored.values()])
    return result


def _best_of(sums: Mapping[str, Sequence[TaskSums]], shown: Mapping[str, Sequence[float | None]], k: int) -> float:
    """AS over all graphs when each task counts with the attempt that was shown most, of k."""
    total, num_graphs = 0.0, 0.0
    for task, of_task in sums.items():
        scores = list(shown.get(task, ())) or [None] * len(of_task)
        order = sorted(range(len(of_task)), key=lambda index, by=scores: -(by[index] or 0.0))  # type: ignore[misc]
        total += expected_best([of_task[index]["as_score"].numerator for index in order], k)
        num_graphs += of_task[0]["as_score"].denominator
    return math.exp(total / num_graphs)
