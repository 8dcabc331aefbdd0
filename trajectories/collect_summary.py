"""CollectSummary: what a collection holds and what it cost, counted from its index and ledger. No judgement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from eval_harness.scores import geometric_mean
from trajectories.collect_index import AttemptRow, total_usage
from trajectories.ledger import Ledger, Spent
from trajectories.record import Usage


class TeacherSummary(BaseModel):
    """What one teacher's attempts came to."""

    model_config = ConfigDict(extra="forbid")

    num_finished: int = 0
    num_kept: int = 0
    """By the default selection, duplicates not looked for."""
    num_answers: int = 0
    """By the ledger, as all below."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    spent_usd: float = 0.0
    usd_per_kept: float | None = None
    """All that was spent, over what was kept."""


class CollectSummary(BaseModel):
    """Counts and figures of one collection, over everything in its folder."""

    model_config = ConfigDict(extra="forbid")

    name: str
    is_complete: bool
    """Every planned attempt is finished, or spared by a stop rule."""
    num_tasks: int
    num_planned: int
    """Attempts."""
    num_finished: int
    num_skipped: int = 0
    """Planned attempts that a stop rule spares."""
    tasks_given_up: dict[str, int] = {}
    """Stop rule -> tasks that get no further attempt."""
    stop_reasons: dict[str, int]
    num_kept: int = 0
    """Attempts that the default selection keeps, duplicates not looked for."""
    refusals: dict[str, int] = {}
    """Why it does not keep the others -> how many."""
    num_evaluations: int
    evaluation_s: float = 0.0
    """Seconds of judges, final evaluations included."""
    num_final_verdicts: int
    num_tasks_solved: int
    """Tasks with an attempt whose final verdict has every graph CORRECT."""
    median_final_as: float | None
    median_final_as_covered: float | None
    shrinkage: float | None
    """Geometric mean of final AS over the best AS that the policy was shown: below 1, the feedback was lucky."""
    shrinkage_covered: float | None = None
    """The same of covered AS."""
    teachers: dict[str, TeacherSummary] = {}
    usage: Usage
    """Of the stored answers."""
    spent_usd: float
    """By the ledger: answers that a kill has lost, and attempts that were begun anew, count too."""
    usd_per_kept: float | None = None
    duration_s: float
    """Of the last run."""
    total_duration_s: float = 0.0
    """Of all runs."""


def summarise(
    name: str,
    rows: Sequence[AttemptRow],
    ledger: Ledger,
    *,
    num_tasks: int,
    num_planned: int,
    num_skipped: int = 0,
    tasks_given_up: Mapping[str, int] | None = None,
    duration_s: float = 0.0,
    total_duration_s: float = 0.0,
) -> CollectSummary:
    """The summary of the attempts of a folder. duration_s: of this run; total_duration_s: of all."""
    finals = [row for row in rows if row.final_as is not None]
    num_finished = sum(row.is_finished for row in rows)
    num_kept = sum(row.kept for row in rows)
    refusals = Counter(row.refusal for row in rows if row.refusal is not None)
    return CollectSummary(
        name=name,
        is_complete=num_finished + num_skipped >= num_planned,
        num_tasks=num_tasks,
        num_planned=num_planned,
        num_finished=num_finished,
        num_skipped=num_skipped,
        tasks_given_up=dict(sorted((tasks_given_up or {}).items())),
        stop_reasons=dict(sorted(Counter(row.stop_reason or "UNFINISHED" for row in rows).items())),
        num_kept=num_kept,
        refusals=dict(sorted(refusals.items(), key=lambda item: (-item[1], item[0]))),
        num_evaluations=sum(row.num_evaluations for row in rows),
        evaluation_s=round(sum(row.evaluation_s + row.final_evaluation_s for row in rows), 3),
        num_final_verdicts=len(finals),
        num_tasks_solved=len({row.task_id for row in finals if row.is_solved}),
        median_final_as=_median(row.final_as for row in finals),
        median_final_as_covered=_median(row.final_as_covered for row in finals),
        shrinkage=_mean_ratio(row.shrinkage for row in finals),
        shrinkage_covered=_mean_ratio(row.shrinkage_covered for row in finals),
        teachers=_teachers(rows, ledger),
        usage=total_usage(rows),
        spent_usd=round(ledger.total.cost_usd, 9),
        usd_per_kept=_over(ledger.total.cost_usd, num_kept),
        duration_s=round(duration_s, 3),
        total_duration_s=round(total_duration_s or duration_s, 3),
    )


def costs(rows: Sequence[AttemptRow], ledger: Ledger) -> dict[str, Any]:
    """The ledger added up: by teacher, by task and by kept trajectory, for costs.json."""
    by_task: defaultdict[str, list[AttemptRow]] = defaultdict(list)
    for row in rows:
        by_task[row.task_id].append(row)
    tasks = {
        task_id: _plain(ledger.by_task[task_id])
        | {
            "num_finished": sum(row.is_finished for row in by_task[task_id]),
            "num_kept": (num_kept := sum(row.kept for row in by_task[task_id])),
            "usd_per_kept": _over(ledger.by_task[task_id].cost_usd, num_kept),
        }
        for task_id in sorted({*by_task, *ledger.by_task})
    }
    return {
        "total": _plain(ledger.total),
        "teachers": {name: each.model_dump(mode="json") for name, each in _teachers(rows, ledger).items()},
        "tasks": tasks,
        "kept": {
            row.trajectory_id: _plain(ledger.by_attempt[row.trajectory_id])
            | {"teacher": row.teacher, "as_covered": row.score}
            for row in rows
            if row.kept
        },
    }


def _teachers(rows: Sequence[AttemptRow], ledger: Ledger) -> dict[str, TeacherSummary]:
    found: dict[str, TeacherSummary] = {}
    # lines of older versions name no teacher; with one teacher they are its
    names = sorted({row.teacher for row in rows} | {name for name in ledger.by_teacher if name})
    unnamed = ledger.by_teacher.get("", Spent())
    for name in names:
        own = [row for row in rows if row.teacher == name]
        spent = ledger.by_teacher.get(name, Spent())
        usd = spent.cost_usd + (unnamed.cost_usd if len(names) == 1 else 0.0)
        num_kept = sum(row.kept for row in own)
        found[name] = TeacherSummary(
            num_finished=sum(row.is_finished for row in own),
            num_kept=num_kept,
            num_answers=spent.num_answers,
            input_tokens=spent.input_tokens,
            cached_tokens=spent.cached_tokens,
            output_tokens=spent.output_tokens,
            spent_usd=round(usd, 9),
            usd_per_kept=_over(usd, num_kept),
        )
    return found


def _plain(spent: Spent) -> dict[str, Any]:
    return {
        "num_answers": spent.num_answers,
        "input_tokens": spent.input_tokens,
        "cached_tokens": spent.cached_tokens,
        "output_tokens": spent.output_tokens,
        "spent_usd": round(spent.cost_usd, 9),
    }


def _over(usd: float, num_kept: int) -> float | None:
    return round(usd / num_kept, 6) if num_kept else None


def _mean_ratio(ratios: Iterable[float | None]) -> float | None:
    return geometric_mean([ratio for ratio in ratios if ratio])


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None
