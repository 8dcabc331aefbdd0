"""The figures of one run of `passwright bench expert` as one record, and what is promised of them. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from data.task import Task
from eval_harness.report_row import protocol_scoring
from eval_harness.verdict import GraphVerdict
from scripts.benches.expert_figures import (
    Scorer,
    compared_rows,
    graphs_of,
    groups_of,
    outcome_figures,
    plan_figures,
    share_figures,
    worst_tasks,
)
from scripts.benches.expert_plan import RunSettings
from scripts.benches.expert_records import ROW_NAMES, Progress, TaskRecord
from scripts.benches.output import Target

LENGTH = 2
"""Place of the length of eager in groups_of."""
MIN_SHARE = 0.6
"""Of the tasks, every graph CORRECT."""


def summarise(progress: Progress, tasks: Mapping[str, Task], settings: RunSettings) -> dict[str, Any]:
    """Every figure. tasks: task_id -> task of the run's whole order."""
    scoring, p = protocol_scoring(settings.protocol.name)
    scorer = Scorer(scoring, p, is_timed=settings.protocol.timing)
    records = progress.reached
    judged = [record for record in records if record.error is None]
    with_pass = [record for record in judged if record.verdict is not None]
    every = [graphs_of(record, tasks[record.task_id]) for record in judged]
    of_pass = [graphs_of(record, tasks[record.task_id]) for record in with_pass]
    return {
        "is_timed": scorer.is_timed,
        "reached": len(records),
        "beyond": progress.num_beyond,
        "resumed": progress.num_resumed,
        "was_cut_off": progress.was_cut_off,
        "harness_failures": {record.task_id: record.error for record in records if record.error is not None},
        "planning": plan_figures(records),
        "share": share_figures(records),
        "outcomes": outcome_figures(records, tasks),
        "rows": {"all tasks": scorer.row(every), "tasks with a pass": scorer.row(of_pass)},
        "comparisons": _comparisons(progress, settings, scorer),
        "groups": _groups(progress, tasks, settings, scorer),
        "worst": worst_tasks(records, tasks),
        "stages": _stages(progress),
    }


def _rows_compared(settings: RunSettings, *, guards: bool) -> list[str]:
    if guards:
        return ["inductor", "expert"] if settings.guards and "inductor" in settings.baselines else []
    return [*settings.baselines, "expert"] if settings.baselines else []


def _comparisons(progress: Progress, settings: RunSettings, scorer: Scorer) -> dict[str, Any]:
    """For "without guards" and "with guards" the rows on the same graphs, and the expert over TorchInductor."""
    found = {}
    for guards in (False, True):
        names = _rows_compared(settings, guards=guards)
        if not names:
            continue
        members, verdicts = compared_rows(
            progress.compared, progress.reached, progress.comparisons, guards=guards, rows=names
        )
        groups = {name: [[graph] for graph in graphs] for name, graphs in verdicts.items()}
        found["with guards" if guards else "without guards"] = {
            "asked": len(progress.compared),
            "graphs": len(members),
            "rows": {name: scorer.row(groups[name]) for name in names},
            "over_inductor": scorer.against(groups["expert"], groups["inductor"]) if "inductor" in groups else None,
        }
    return found


def _groups(
    progress: Progress, tasks: Mapping[str, Task], settings: RunSettings, scorer: Scorer
) -> list[dict[str, Any]]:
    """By operator family, dtype and length of eager: the expert on all graphs, TorchInductor on those compared."""
    own: dict[tuple[int, str], list[tuple[TaskRecord, GraphVerdict]]] = defaultdict(list)
    compared: dict[tuple[int, str], list[tuple[GraphVerdict, GraphVerdict]]] = defaultdict(list)
    for record in progress.reached:
        if record.error is None:
            task = tasks[record.task_id]
            for verdict in graphs_of(record, task):
                for key in enumerate(groups_of(task.graph(verdict.graph), verdict)):
                    own[key].append((record, verdict))
    if "inductor" in settings.baselines:
        names = ["inductor", "expert"]
        members, rows = compared_rows(
            progress.compared, progress.reached, progress.comparisons, guards=False, rows=names
        )
        for index, member in enumerate(members):
            both = rows["expert"][index], rows["inductor"][index]
            for key in enumerate(groups_of(tasks[member.task_id].graph(member.graph), both[0])):
                compared[key].append(both)
    found: list[dict[str, Any]] = []
    if not scorer.is_timed:
        own = defaultdict(list, {key: value for key, value in own.items() if key[0] != LENGTH})
    for key in sorted(own, key=lambda key: (key[0], -len(own[key]), key[1])):
        with_pass = [verdict for record, verdict in own[key] if record.verdict is not None]
        row = scorer.row([[verdict] for verdict in with_pass])
        expert, inductor = (scorer.row([[pair[i]] for pair in compared[key]]) for i in (0, 1))
        found.append(
            {
                "group": key[1],
                "graphs": len(own[key]),
                "with_pass": len(with_pass),
                **{name: row[name] for name in ("correct", "as_score", "g_mean", "gpu_g_mean")},
                "compared": len(compared[key]),
                "as_expert": expert["as_score"],
                "as_inductor": inductor["as_score"],
                "x_expert": expert["g_mean"],
                "x_inductor": inductor["g_mean"],
            }
        )
    return found


def _stages(progress: Progress) -> dict[str, dict[str, float]]:
    """Row -> stage -> seconds, over all evaluations; waiting for the device apart."""
    found: dict[str, dict[str, float]] = {"expert": {"plan": sum(r.plan.seconds for r in progress.reached)}}
    named = [("expert", record.verdict) for record in progress.reached]
    named += [
        (f"{ROW_NAMES[record.row]}, {'with' if record.guards else 'without'} guards", record.verdict)
        for record in progress.comparisons
    ]
    for name, verdict in named:
        stages = found.setdefault(name, {})
        booked = dict(verdict.timings) if verdict else {}
        if "total" in booked:
            # what a stage that failed had taken by then is booked on none
            booked["other"] = booked["total"] - sum(spent for stage, spent in booked.items() if stage != "total")
        for stage, seconds in booked.items():
            stages[stage] = round(stages.get(stage, 0.0) + seconds, 3)
    return found


def targets(figures: Mapping[str, Any], device: str) -> list[Target]:
    """What is promised on a GPU; on a CPU, where numba stands in for Triton, the share alone."""
    found = [Target("tasks with every graph CORRECT", figures["share"]["share"], MIN_SHARE, "at least")]
    row = figures["rows"]["tasks with a pass"]
    if not device.startswith("cuda") or not figures["is_timed"]:
        return found
    found.append(Target("geometric-mean speedup of CORRECT graphs", row["g_mean"], 1.0, "at least"))
    for name, comparison in figures["comparisons"].items():
        over = comparison["over_inductor"]
        if over is not None:
            found.append(Target(f"AS over TorchInductor's, {name}", over["as_ratio"], 1.0, "at least"))
    return found
