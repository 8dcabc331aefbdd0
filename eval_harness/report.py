"""Report: verdict records of one or more runs -> the structure of report.json. Loads without torch.

Numbers come from verdicts only, never from what a run said of itself. Which rows may stand in one table is
report_compare.py's; the structure, field by field, is report_schema.py's; the HTML page is made from it in
trajectories/pages, report.md in report_markdown.py.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from eval_harness.paper_figures import PASSNET_TABLE_1
from eval_harness.presets import PRESETS
from eval_harness.report_compare import compare_rows, incomparable, other_versions
from eval_harness.report_row import ReportRow, TrajectoryCounts
from eval_harness.report_row_data import row_data, row_figures
from eval_harness.report_schema import REPORT_SCHEMA_VERSION, Report
from eval_harness.scores import geometric_mean
from eval_harness.summary import is_scored
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from eval_harness.verdict_text import missing_confinement

REPORT_FILE = "report.json"


def build_report(
    rows: Sequence[ReportRow],
    *,
    title: str = "Passwright report",
    trajectories: TrajectoryCounts | None = None,
    loss_curve: Sequence[Mapping[str, Any]] = (),
    run: Mapping[str, Any] | None = None,
    allow_mixed: bool = False,
    compiled: Sequence[ReportRow] = (),
) -> dict[str, Any]:
    """report.json as plain data (report_schema.Report).

    loss_curve: records with "step" and "loss" (a trainer's log history; other records are left out). run: what the
    caller wants to keep beside the numbers, such as the resolved configuration. compiled: rows that went through
    torch.compile with its guards, a table of their own. Raises UserError for no rows, two rows
    of one name, or rows that cannot be compared (see the module), unless allow_mixed.
    """
    if not rows:
        raise UserError("report: no rows; give at least one file of verdicts")
    warnings = _check(rows, allow_mixed=allow_mixed) + (_check(compiled, allow_mixed=allow_mixed) if compiled else [])
    first = next((v for row in rows for v in row.verdicts.values() if v.machine), None)
    first = first or next(iter(rows[0].verdicts.values()))
    warnings += other_versions(rows) + _confinement_warnings(rows)
    settings = next((row.protocol_settings for row in rows if row.protocol_settings), None)
    reference = _eager_times(rows)
    report = _plain(
        {
            "schema_version": REPORT_SCHEMA_VERSION,
            "title": title,
            "protocol": settings or _settings(first.protocol),
            "device": first.device,
            "num_tasks": len(rows[0].verdicts),
            "num_graphs": sum(len(verdict.graphs) for verdict in rows[0].verdicts.values()),
            "rows": [row_data(row, reference) for row in rows],
            "comparisons": compare_rows(rows),
            "compiled": {
                "rows": [row_data(row, reference) for row in compiled],
                "comparisons": compare_rows(compiled),
            }
            if compiled
            else None,
            "curve": _curve(rows),
            "tasks": _task_table(rows),
            "trajectories": trajectories.model_dump() if trajectories else None,
            "loss_curve": [
                {"step": entry["step"], "loss": entry["loss"]} for entry in loss_curve if {"step", "loss"} <= set(entry)
            ],
            "warnings": warnings,
            "machine": first.machine,
            "versions": first.versions,
            "run": dict(run or {}),
            "paper": PASSNET_TABLE_1,
        }
    )
    Report.model_validate(report)
    return report


def write_report(report: Mapping[str, Any], out_dir: Path) -> Path:
    """Write report.json into out_dir (created), whole or not at all; returns its path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / REPORT_FILE
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def _check(rows: Sequence[ReportRow], *, allow_mixed: bool) -> list[str]:
    """Why rows should not stand in one table, where that is allowed. Raises UserError."""
    twice = [name for name, count in Counter(row.name for row in rows).items() if count > 1]
    if twice:
        raise UserError(f"report: two rows are named {twice[0]!r}; name each row once")
    _refuse_disabled_layers(rows)
    reasons = incomparable(rows)
    if reasons and not allow_mixed:
        raise UserError(f"report: {reasons[0]}; evaluate alike, or allow mixed rows (--allow-mixed)")
    return reasons


def _eager_times(rows: Sequence[ReportRow]) -> dict[str, GraphVerdict]:
    """Task id + graph -> a verdict that knows the eager time: most graphs of a weak student are never timed."""
    known: dict[str, GraphVerdict] = {}
    for row in rows:
        for verdict in row.verdicts.values():
            for graph in verdict.graphs:
                if graph.reference_latency_us is not None:
                    known.setdefault(f"{verdict.task_id} {graph.graph}", graph)
    return known


def _curve(rows: Sequence[ReportRow]) -> list[dict[str, Any]]:
    points = [(row.run, row.step, row) for row in rows if row.step is not None]
    return [
        {"run": run, "step": step, "row": row.name, "figures": row_figures(row)}
        for run, step, row in sorted(points, key=lambda point: point[:2])
    ]


def _task_table(rows: Sequence[ReportRow]) -> list[dict[str, Any]]:
    """A line a task, with every row's figures on it; None where a row has no verdict of the task."""
    task_ids = sorted({task_id for row in rows for task_id in row.verdicts})
    return [
        {"task_id": task_id, "rows": {row.name: _task_cell(row.verdicts.get(task_id)) for row in rows}}
        for task_id in task_ids
    ]


def _task_cell(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    failing = [graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT]
    speedups = [g.speedup for g in verdict.graphs if g.outcome is Outcome.CORRECT and g.speedup is not None]
    return {
        "as_score": verdict.as_score,
        "as_covered": verdict.as_covered,
        "num_correct": verdict.num_correct,
        "num_graphs": len(verdict.graphs),
        "g_mean": geometric_mean(speedups),
        "outcomes": dict(Counter(graph.outcome.value for graph in verdict.graphs).most_common()),
        "violations": sorted({violation.rule for violation in verdict.all_violations}),
        "reason": failing[0].message if failing else "",
        "candidate_hash": verdict.candidate_hash,
    }


def _refuse_disabled_layers(rows: Sequence[ReportRow]) -> None:
    """A figure that was made with an integrity layer off is nobody's result, mixed or not."""
    for row in rows:
        for verdict in row.verdicts.values():
            if verdict.disabled_layers:
                layers = ", ".join(verdict.disabled_layers)
                raise UserError(
                    f"report: row {row.name!r}, task {verdict.task_id}: evaluated with integrity layers switched off "
                    f"({layers}); evaluate again without disabled_layers"
                )


def _confinement_warnings(rows: Sequence[ReportRow]) -> list[str]:
    missing: dict[str, str] = {}
    shared: set[str] = set()
    for row in rows:
        for verdict in row.verdicts.values():
            missing |= missing_confinement(verdict)
            shared |= set(verdict.machine.get("gpu_warnings", ()))
    warnings = [f"confinement layer {layer} was not on: {why}" for layer, why in sorted(missing.items())]
    warnings += sorted(shared)
    for row in rows:
        unstable = [task_id for task_id, verdict in row.verdicts.items() if not is_scored(verdict)]
        if unstable:
            warnings.append(f"row {row.name!r} has no AS: {len(unstable)} task(s) unstable, first {unstable[0]!r}")
    return warnings


def _settings(protocol: str) -> dict[str, Any]:
    preset = PRESETS.get(protocol)
    return preset.model_dump() if preset else {"name": protocol}


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
