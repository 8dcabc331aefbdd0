"""report.md from report.json: the tables for a pull request or an issue. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MARKDOWN_FILE = "report.md"
_FIGURES = {
    "as_score": "AS",
    "as_covered": "covered AS",
    "fast_1": "fast_1",
    "sample_success": "sample CR",
    "subgraph_success": "subgraph CR",
    "g_mean": "G-mean",
}
_MAX_CHANGES = 12


def render_markdown(report: Mapping[str, Any]) -> str:
    """Scores with the paper's beside them, changes between rows, attempts, turns, groups, failures, warnings."""
    protocol = report["protocol"].get("name", "")
    parts = [
        f"# {_text(report['title'])}",
        f"{report['num_tasks']} tasks, {report['num_graphs']} graphs, protocol {protocol}, {_machine(report)}.",
    ]
    if report["warnings"]:
        parts.append("\n".join(f"> {_text(warning)}" for warning in report["warnings"]))
    parts += [_scores(report["rows"]), _paper(report["paper"])]
    if report["compiled"]:
        parts += ["## Through torch.compile, with its guards", _scores(report["compiled"]["rows"])]
    parts += [_changes(report["comparisons"]), _curve(report["curve"])]
    for row in report["rows"]:
        parts += _row_parts(row)
    return "\n\n".join(part for part in parts if part) + "\n"


def write_markdown(report: Mapping[str, Any], out_dir: Path) -> Path:
    """Write report.md into out_dir, which exists; returns its path."""
    path = out_dir / MARKDOWN_FILE
    partial = path.with_suffix(".md.partial")
    partial.write_text(render_markdown(report), encoding="utf-8")
    partial.replace(path)
    return path


def _scores(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        summary = row["summary"]
        interval = (row["figures"].get("as_score") or {}).get("interval")
        score = _number(summary["as_score"]) + (f" ({interval[0]:.3f}-{interval[1]:.3f})" if interval else "")
        shares = [_percent(summary["fast"].get(key)) for key in ("1", "1.2", "1.5", "2")]
        lines.append(
            [
                row["name"],
                shares[0],
                _percent(summary["sample_success"]),
                _percent(summary["subgraph_success"]),
                _number(summary["g_mean"]),
                score,
                _number(summary["as_covered"]),
                *shares[1:],
                _percent(summary["num_violating_tasks"] / summary["num_tasks"]),
                _percent(summary["batch_invariance_rate"]),
            ]
        )
    head = ["row", "fast_1 %", "sample CR %", "subgraph CR %", "G-mean", "AS (95%)", "covered AS"]
    head += ["fast_1.2 %", "fast_1.5 %", "fast_2 %", "violations %", "batch-invariant %"]
    return _table(head, lines)


def _paper(paper: Mapping[str, Any]) -> str:
    lines = [[str(row[0]), *(f"{value:g}" for value in row[1:])] for row in paper["rows"]]
    table = _table(["model", *paper["columns"]], lines)
    said = f"{paper['source']}; {paper['note']}"
    return f"<details><summary>{_text(said)}</summary>\n\n{table}\n\n</details>"


def _changes(comparisons: Sequence[Mapping[str, Any]]) -> str:
    if not comparisons:
        return ""
    names = list(_FIGURES)
    lines = [
        [pair["first"], pair["second"], str(pair["num_tasks"]), *(_change(pair["changes"].get(name)) for name in names)]
        for pair in comparisons[:_MAX_CHANGES]
    ]
    head = ["from", "to", "tasks", *_FIGURES.values()]
    left = len(comparisons) - _MAX_CHANGES
    more = f"\n\n{left} more pairs are in report.json." if left > 0 else ""
    return f"## Changes, on the same tasks (95% over tasks)\n\n{_table(head, lines)}{more}"


def _change(change: Mapping[str, Any] | None) -> str:
    if change is None:
        return "-"
    bounds = change["interval"]
    if change["is_ratio"]:
        return f"x{change['change']:.3f}" + (f" ({bounds[0]:.3f}-{bounds[1]:.3f})" if bounds else "")
    text = f"{100 * change['change']:+.1f}"
    return text + (f" ({100 * bounds[0]:+.1f} to {100 * bounds[1]:+.1f})" if bounds else "")


def _curve(points: Sequence[Mapping[str, Any]]) -> str:
    if not points:
        return ""
    lines = [
        [
            point["run"],
            str(point["step"]),
            *(_number((point["figures"].get(name) or {}).get("value")) for name in _FIGURES),
        ]
        for point in points
    ]
    return f"## Checkpoints\n\n{_table(['run', 'step', *_FIGURES.values()], lines)}"


def _row_parts(row: Mapping[str, Any]) -> list[str]:
    parts = [f"## {_text(row['name'])}"]
    lines = []
    if row["fresh_over_feedback"] is not None:
        lines.append(f"Fresh AS is {row['fresh_over_feedback']:.3f} times the best AS shown during the attempts.")
    if several := row["several_attempts"]:
        rates = [f"pass@{k} {_percent(rate)}%" for k, rate in several["pass_at_k"].items()]
        best = [f"best of {k} AS {_number(value)}" for k, value in several["best_of_k"].items()]
        if rates:
            lines.append(f"{several['num_attempts']} attempts a task: {'; '.join([*rates, *best])}.")
    if (turns := row["turns"]) and turns["first_share"] is not None:
        ending = _percent(turns["pass_fail_pass"])
        lines.append(
            f"The first evaluation has {_percent(turns['first_share'])}% of the attempt's best AS (the paper: 31-51%); "
            f"{ending}% of {turns['num_ending_well']} tasks that end correct went pass, fail, pass (the paper: 12-52%)."
        )
    if (submissions := row["submissions"]) and submissions["num_submissions"]:
        share = _percent(submissions["violating_submissions"])
        lines.append(
            f"{share}% of {submissions['num_submissions']} submissions broke an integrity rule (the paper, of frontier "
            "models: 29-50%)."
        )
    if totals := row["totals"]:
        lines.append("; ".join(f"{name} {value:,.6g}" for name, value in totals.items()) + ".")
    parts.append("\n".join(lines))
    summary = row["summary"]
    parts.append(_table(["outcome", "graphs"], [[key, str(value)] for key, value in summary["outcomes"].items()]))
    rules = summary["violations_by_rule"]
    parts.append(_table(["rule", "tasks"], [[key, str(value)] for key, value in rules.items()]) if rules else "")
    parts += [_group_table(name, groups) for name, groups in row["groups"].items()]
    return parts if any(parts[1:]) else []


def _group_table(name: str, groups: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        [
            group["group"],
            str(group["num_graphs"]),
            _percent(group.get("subgraph_success")),
            _percent((group.get("fast") or {}).get("1")),
            _number(group.get("g_mean")),
            _number(group.get("as_score")),
            _number(group.get("as_covered")),
            "-" if group.get("median_eager_us") is None else f"{group['median_eager_us']:.0f}",
        ]
        for group in groups
    ]
    head = [name, "graphs", "subgraph CR %", "fast_1 %", "G-mean", "AS", "covered AS", "eager us"]
    return _table(head, lines)


def _machine(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    return _text(str(machine.get("gpu") or machine.get("cpu") or f"device {report['device']}"))


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [list(head), ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows)


def _text(cell: str) -> str:
    """One line that is no markup: names come from users, messages from candidates."""
    flat = " ".join(str(cell).split())
    for character in "\\|<>`*_[]#":
        flat = flat.replace(character, "\\" + character) if character in "\\|`*_[]#" else flat
    return flat.replace("<", "&lt;").replace(">", "&gt;")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
