"""Which rows may stand in one table, and how far apart they are on the same tasks. No torch.

Rows that are compared share the protocol with all its settings, the hardware and the task set. Anything else is refused
unless asked for, and then said in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from eval_harness.report_row import ReportRow, protocol_scoring
from eval_harness.resampling import FIGURES, TaskSums, paired_change, task_sums
from eval_harness.verdict import Verdict

MACHINE_KEYS = ("device_name", "gpu", "gpus", "processor", "cpu")
"""Facts of Verdict.machine that make two clocks incomparable."""
VERSION_KEYS = ("torch", "triton")
"""Versions whose difference is told, not refused: a newer one may be what is compared."""
MAX_PAIRS = 28
"""Of rows that are compared with each other; of more rows, each with the first that is no baseline."""
BASELINES = frozenset({"Eager", "TorchInductor"})


def incomparable(rows: Sequence[ReportRow]) -> list[str]:
    """Why rows must not stand in one table; empty if they may."""
    first = rows[0]
    reasons = []
    protocols = {verdict.protocol for row in rows for verdict in row.verdicts.values()}
    if len(protocols) > 1:
        reasons.append(f"verdicts of different protocols ({', '.join(sorted(protocols))})")
    reasons += _other_settings(rows)
    devices = _devices(verdict for row in rows for verdict in row.verdicts.values())
    if len(devices) > 1:
        reasons.append(f"verdicts of different devices ({'; '.join(sorted(devices))})")
    tasks = {task_id: verdict.task_hash for task_id, verdict in first.verdicts.items()}
    for row in rows[1:]:
        other = {task_id: verdict.task_hash for task_id, verdict in row.verdicts.items()}
        if other != tasks:
            unlike = sorted(task_id for task_id in tasks | other if tasks.get(task_id) != other.get(task_id))
            reasons.append(f"rows {first.name!r} and {row.name!r} differ in their task set, first in {unlike[0]!r}")
    return reasons


def other_versions(rows: Sequence[ReportRow]) -> list[str]:
    """Differences of versions between rows, for a warning."""
    found = []
    for key in VERSION_KEYS:
        seen = {v.versions[key] for row in rows for v in row.verdicts.values() if key in v.versions}
        if len(seen) > 1:
            found.append(f"verdicts of different versions of {key} ({', '.join(sorted(seen))})")
    return found


def compare_rows(rows: Sequence[ReportRow]) -> list[dict[str, Any]]:
    """Paired changes from one row to another over the tasks that both have a score of, with intervals.

    A line a pair: {"first", "second", "num_tasks", "changes": {figure: {"change", "interval", "is_ratio"}}}.
    """
    sums = {row.name: _row_sums(row) for row in rows}
    pairs = list(combinations([row.name for row in rows], 2))
    if len(pairs) > MAX_PAIRS:
        names = [row.name for row in rows]
        base = next((name for name in names if name not in BASELINES), names[0])
        pairs = [(base, name) for name in names if name != base]
    compared = []
    for first, second in pairs:
        common = [task for task in sums[first] if task in sums[second]]
        before = [sums[first][task] for task in common]
        after = [sums[second][task] for task in common]
        changes = {name: paired_change(name, before, after) for name in FIGURES}
        compared.append(
            {
                "first": first,
                "second": second,
                "num_tasks": len(common),
                "changes": {name: change for name, change in changes.items() if change is not None},
            }
        )
    return compared


def _row_sums(row: ReportRow) -> dict[str, TaskSums]:
    found = {}
    for task_id, verdict in row.verdicts.items():
        scoring, p = protocol_scoring(verdict.protocol)
        sums = task_sums(verdict, scoring=scoring, p=p)
        if sums is not None:
            found[task_id] = sums
    return found


def _other_settings(rows: Sequence[ReportRow]) -> list[str]:
    stated = [row for row in rows if row.protocol_settings]
    reasons = []
    for row in stated[1:]:
        first = stated[0].protocol_settings
        unlike = sorted(
            key
            for key in first | row.protocol_settings
            if key != "name" and first.get(key) != row.protocol_settings.get(key)
        )
        if unlike:
            values = f"{first.get(unlike[0])} and {row.protocol_settings.get(unlike[0])}"
            reasons.append(
                f"rows {stated[0].name!r} and {row.name!r} were evaluated with other settings of the protocol, first "
                f"{unlike[0]} ({values})"
            )
    return reasons


def _devices(verdicts: Iterable[Verdict]) -> set[str]:
    """Different hardware. A verdict of nothing submitted knows only the kind of its device, and agrees with any."""
    known: set[str] = set()
    unsure: set[str] = set()
    for verdict in verdicts:
        kind = verdict.device.split(":")[0]
        facts = [f"{key} {verdict.machine[key]}" for key in MACHINE_KEYS if verdict.machine.get(key)]
        if facts or verdict.candidate_hash:
            known.add(", ".join([kind, *facts]))
        else:
            unsure.add(kind)
    return known | (unsure - {text.split(",")[0] for text in known})
