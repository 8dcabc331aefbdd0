"""verdict_sentence: what a report's rows amount to, in one sentence made of its numbers and their intervals.

It claims a difference only where the 95% interval leaves no room for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_harness.report_compare import BASELINES


def subject_of(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row that a report is about: the last one that is no baseline (students and checkpoints come in order)."""
    own = [row for row in report["rows"] if row["name"] not in BASELINES]
    return (own or report["rows"])[-1]


def verdict_sentence(report: Mapping[str, Any]) -> str:
    """One sentence about subject_of(report)."""
    row = subject_of(report)
    summary, name = row["summary"], row["name"]
    num_solved = round(summary["sample_success"] * summary["num_tasks"])
    parts = [f"{name} gets every graph right on {num_solved} of {_count(summary['num_tasks'], 'task')}"]
    if summary["as_score"] is None:
        parts.append(f"and has no AS, since {_count(len(summary['incomplete_tasks']), 'task')} could not be measured")
        return " ".join(parts) + "."
    parts.append(f"and has AS {_with_interval(row, 'as_score')} where eager has 1")
    text = " ".join(parts) + f": {_against_eager(row)}"
    against = [clause for clause in (_against_row(report, row), _against_baseline(report, row)) if clause]
    text += ", " + " and ".join(against) if against else ""
    return "; ".join([text, *(clause for clause in [_integrity(summary)] if clause)]) + "."


def changes_nothing(change: Mapping[str, Any]) -> bool | None:
    """Whether the interval of a change holds "no change"; None without an interval."""
    if change["interval"] is None:
        return None
    low, high = change["interval"]
    same = 1.0 if change["is_ratio"] else 0.0
    return bool(low <= same <= high)


def _with_interval(row: Mapping[str, Any], figure: str) -> str:
    value = row["summary"][figure]
    interval = (row["figures"].get(figure) or {}).get("interval")
    return f"{value:.3f}" + (f" (95%: {interval[0]:.3f} to {interval[1]:.3f})" if interval else "")


def _against_eager(row: Mapping[str, Any]) -> str:
    figure = row["figures"].get("as_score")
    if not figure or figure["interval"] is None:
        value = row["summary"]["as_score"]
        return f"{'above' if value > 1 else 'below' if value < 1 else 'equal to'} eager, without an interval"
    low, high = figure["interval"]
    return "better than eager" if low > 1 else "worse than eager" if high < 1 else "not told apart from eager"


def _against_row(report: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    names = [each["name"] for each in report["rows"] if each["name"] not in BASELINES]
    earlier = names[: names.index(row["name"])] if row["name"] in names else []
    return _change(report, earlier[-1], row["name"]) if earlier else ""


def _against_baseline(report: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    has_it = any(each["name"] == "TorchInductor" for each in report["rows"]) and row["name"] != "TorchInductor"
    return _change(report, "TorchInductor", row["name"]) if has_it else ""


def _change(report: Mapping[str, Any], before: str, after: str) -> str:
    """How much more AS `after` has, whichever way round the report holds the pair."""
    for pair in report.get("comparisons", ()):
        if {pair["first"], pair["second"]} != {before, after} or "as_score" not in pair["changes"]:
            continue
        change = pair["changes"]["as_score"]
        ratio, interval = change["change"], change["interval"]
        if pair["second"] != after:
            ratio, interval = 1 / ratio, interval and (1 / interval[1], 1 / interval[0])
        notes = [f"{interval[0]:.2f} to {interval[1]:.2f}"] if interval else ["no interval"]
        notes += ["may be chance"] if changes_nothing(change) else []
        return f"{ratio:.2f} times {before}'s ({', '.join(notes)})"
    return ""


def _integrity(summary: Mapping[str, Any]) -> str:
    broken = summary["num_violating_tasks"]
    variant = summary["num_batch_variant"]
    clauses = [f"{_count(broken, 'final pass', 'final passes')} broke an integrity rule"] if broken else []
    if variant:
        clauses.append(f"{variant} of {_count(summary['num_batch_checked'], 'graph')} with a batch follow their batch")
    return " and ".join(clauses)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
