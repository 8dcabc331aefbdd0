"""render_report: a report's main table as plain text, for the end of a run in a terminal. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS = ("row", "fast_1 %", "sample CR %", "subgraph CR %", "G-mean", "AS", "covered AS")


def render_report(report: Mapping[str, Any]) -> str:
    """The paper's Table 1 columns and covered AS, a line a row; then trajectories, loss, warnings."""
    lines = [
        f"{report['num_tasks']} tasks, {report['num_graphs']} graphs, protocol {report['protocol']['name']}, "
        f"device {report['device']}",
        "",
    ]
    cells = [_COLUMNS, *(_cells(row) for row in report["rows"])]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    for line in cells:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *rest]))
    for row in report["rows"]:
        if checked := row["summary"]["num_batch_checked"]:
            variant = row["summary"]["num_batch_variant"]
            lines.append(f"batch invariance, {row['name']}: {variant} of {checked} graphs with a batch are variant")
    lines += _attempt_lines(report["rows"])
    counts = report["trajectories"]
    if counts:
        reasons = ", ".join(f"{number} {reason}" for reason, number in counts["dropped"].items())
        dropped = sum(counts["dropped"].values())
        lines += ["", f"trajectories: {counts['kept']} kept, {dropped} dropped{f' ({reasons})' if reasons else ''}"]
    losses = [entry for entry in report["loss_curve"] if entry["loss"] is not None]
    if losses:
        first_loss, last_loss = losses[0], losses[-1]
        lines.append(
            f"loss: {first_loss['loss']:.4f} at step {first_loss['step']}, "
            f"{last_loss['loss']:.4f} at step {last_loss['step']}"
        )
    lines += [f"WARNING: {warning}" for warning in report["warnings"]]
    return "\n".join(lines)


def _attempt_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What stands beside the table for rows that are made of attempts."""
    lines = []
    for row in rows:
        interval = (row["figures"].get("as_score") or {}).get("interval")
        if interval and row["attempts"]:
            lines.append(f"AS, {row['name']}: 95% over tasks {interval[0]:.3f}-{interval[1]:.3f}")
        if (turns := row["turns"]) and turns["first_share"] is not None:
            share = 100 * turns["first_share"]
            lines.append(f"turns, {row['name']}: the first evaluation has {share:.0f}% of its attempt's best AS")
        if (made := row["submissions"]) and made["num_submissions"]:
            share = 100 * made["violating_submissions"]
            lines.append(
                f"integrity, {row['name']}: {share:.0f}% of {made['num_submissions']} submissions broke a rule"
            )
    return lines


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    summary = row["summary"]
    shares = (summary["fast"]["1"], summary["sample_success"], summary["subgraph_success"])
    figures = (summary["g_mean"], summary["as_score"], summary["as_covered"])
    return (
        row["name"],
        *(f"{100 * share:.1f}" for share in shares),
        *("-" if value is None else f"{value:.3f}" for value in figures),
    )
