"""report.html from report.json: the same numbers for a reader, in one file that asks the network for nothing.

    report.json, and rows with verdicts and collections where they are given (report_details.py)
        -> a sentence (report_sentence.py), plots (report_plots.py), tables (templates/report*.j2)
        -> one page whose policy runs the page's own script and nothing else

Without its script the page still has its numbers and plots; sorting, filters and hover come with assets/report/.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from eval_harness.report_row import ReportRow
from eval_harness.verdict import Outcome
from trajectories.pages.code import visible
from trajectories.pages.render import render_page
from trajectories.pages.report_details import PageDetails, ReportSources, candidate_key, page_details
from trajectories.pages.report_plots import Series, change_bar, plot
from trajectories.pages.report_sentence import changes_nothing, subject_of, verdict_sentence
from trajectories.pages.viewer_folder import ASSETS_SOURCE, as_script, write_file

REPORT_PAGE = "report.html"
SCRIPTS = ("state.js", "cells.js", "tables.js", "plots.js", "page.js")
FIGURES = {
    "as_score": "AS",
    "as_covered": "covered AS",
    "fast_1": "fast_1",
    "sample_success": "sample CR",
    "subgraph_success": "subgraph CR",
    "g_mean": "G-mean",
}
"""Figures with intervals: key -> heading."""
_SPEEDS = tuple(step / 20 for step in range(8, 61))
"""p of the fast_p plot, where the verdicts are at hand."""


def render_report_page(
    report: Mapping[str, Any], sources: ReportSources | None = None, *, page_dir: Path | None = None
) -> str:
    """HTML of what eval_harness.report.build_report made (or report.json read back, of version 1 too).

    sources: rows and collections behind the numbers, for tables of graphs, attempts and code. page_dir: where the page
    will lie, for links to a viewer.
    """
    report = _of_this_version(report)
    sources = sources or ReportSources()
    details = page_details(report, sources, page_dir)
    style, script = _assets()
    rows = report["rows"]
    return render_page(
        "report.html.j2",
        report=report,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        data=Markup(as_script(details.data).replace("<", "\\u003c")),
        details=details,
        sentence=verdict_sentence(report),
        subject=subject_of(report)["name"],
        figures=FIGURES,
        outcomes=sorted({outcome for row in rows for outcome in row["summary"]["outcomes"]}),
        rules=sorted({rule for row in rows for rule in row["summary"]["violations_by_rule"]}),
        plots=_plots(report, sources),
        loss_plot=_loss_plot(report),
        curve_plots=_curve_plots(report),
        change_bar=change_bar,
        changes_nothing=changes_nothing,
        candidate_key=candidate_key,
        has_code=set(details.data["codes"]).__contains__,
        link=_link(details),
        Outcome=Outcome,
    )


def write_report_page(
    report: Mapping[str, Any], out: Path, sources: ReportSources | None = None, *, page: str = REPORT_PAGE
) -> Path:
    """Write the page into the folder `out` (created), whole or not at all; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / page
    write_file(path, render_report_page(report, sources, page_dir=out))
    return path


def _link(details: PageDetails) -> Callable[..., str]:
    known = {table: {line["row"] for line in details.data[table]} for table in ("graphs", "attempts")}

    def link(table: str, **filters: Any) -> str:
        """Address of a table with filters; nothing where the page has no lines of that row."""
        if table in known and visible(str(filters["row"])) not in known[table]:
            return ""
        shown = {key: visible(str(value)) for key, value in filters.items()}
        return "#" + urlencode({"table": table} | shown)

    return link


def _plots(report: Mapping[str, Any], sources: ReportSources) -> list[Markup]:
    rows = report["rows"]
    verdicts = {row.name: row for row in sources.rows}
    es = [
        Series(row["name"], sorted((int(t), v) for t, v in row["summary"]["es"].items() if v is not None), index)
        for index, row in enumerate(rows)
    ]
    turns = [Series(row["name"], list(enumerate(row["as_by_turn"], start=1)), index) for index, row in enumerate(rows)]
    exact = all(row["name"] in verdicts for row in rows)
    fast = [
        Series(row["name"], _fast_points(row, verdicts[row["name"]] if exact else None), index)
        for index, row in enumerate(rows)
    ]
    return [
        plot(es, label="ES_t over the tolerance level", x_label="tolerance level t", y_label="ES_t", reference=1.0),
        plot(
            turns, label="AS of the best candidate so far, by turn", x_label="turn", y_label="AS", show_dots=False,
        ),
        plot(
            fast, label="fast_p: graphs at least p times as fast", x_label="p", y_label="fast_p",
            show_dots=not exact, format_y=lambda value: f"{100 * value:.1f}%",
        ),
    ]  # fmt: skip


def _fast_points(row: Mapping[str, Any], source: ReportRow | None) -> list[tuple[float, float]]:
    """From the verdicts, as summary.py counts them: correct graphs with a measured speedup, of all graphs."""
    if source is None:
        return sorted((float(p), share) for p, share in row["summary"]["fast"].items())
    graphs = [graph for verdict in source.verdicts.values() for graph in verdict.graphs]
    speeds = [graph.speedup for graph in graphs if graph.outcome is Outcome.CORRECT and graph.speedup is not None]
    return [(p, sum(speed >= p for speed in speeds) / len(graphs)) for p in _SPEEDS]


def _loss_plot(report: Mapping[str, Any]) -> Markup:
    points = [(entry["step"], entry["loss"]) for entry in report["loss_curve"] if entry["loss"] is not None]
    loss = Series("loss", points, 0)
    return plot([loss], label="Training loss", x_label="step", y_label="loss", show_dots=False)


def _curve_plots(report: Mapping[str, Any]) -> list[Markup]:
    """Checkpoints over steps, a line a training run."""
    runs = list(dict.fromkeys(point["run"] for point in report["curve"]))
    found = []
    for figure, title in FIGURES.items():
        series = []
        for index, run in enumerate(runs):
            points = [p for p in report["curve"] if p["run"] == run and p["figures"].get(figure)]
            values = [p["figures"][figure] for p in points]
            series.append(
                Series(
                    run or "run",
                    [(point["step"], value["value"]) for point, value in zip(points, values, strict=True)],
                    index,
                    [value["interval"] for value in values],
                )
            )
        found.append(plot(series, label=f"{title} of checkpoints", x_label="optimizer step", y_label=title))
    return [each for each in found if each]


def _of_this_version(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report of version 1 with what it does not have left empty."""
    filled: dict[str, Any] = {"comparisons": [], "compiled": None, "curve": []} | dict(report)
    blank: dict[str, Any] = {"figures": {}, "several_attempts": None, "turns": None, "submissions": None, "groups": {}}
    blank |= {"fresh_over_feedback_covered": None, "settings": {}, "run": "", "step": None, "covered_by_turn": []}
    summary = {"num_batch_not_applicable": 0, "batch_invariance_rate": None, "num_violating_tasks": 0}
    filled["rows"] = [blank | row | {"summary": summary | row["summary"]} for row in report["rows"]]
    tasks: Sequence[Mapping[str, Any]] = report["tasks"]
    extra: dict[str, Any] = {"outcomes": {}, "candidate_hash": ""}
    filled["tasks"] = [
        {**task, "rows": {name: cell and extra | cell for name, cell in task["rows"].items()}} for task in tasks
    ]
    return filled


@cache
def _assets() -> tuple[str, str]:
    """(style, script) of the page, as they stand in it."""
    styles = [render_page("style.css.j2")]
    styles += [(ASSETS_SOURCE / name).read_text(encoding="utf-8") for name in ("shared.css", "report/report.css")]
    scripts = [(ASSETS_SOURCE / "report" / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(styles), "\n".join(scripts)


def _policy(style: str, script: str) -> str:
    """No request at all, and no script or style but the two whose hashes are here, should an escape ever fail."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
