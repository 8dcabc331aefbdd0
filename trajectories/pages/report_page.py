"""report.html from report.json: the same numbers for a reader, in one self-contained file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trajectories.pages.charts import bar_chart, line_chart
from trajectories.pages.render import render_page

REPORT_PAGE = "report.html"


def render_report_page(report: Mapping[str, Any]) -> str:
    """HTML of what eval_harness.report.build_report made (or report.json read back)."""
    rows = report["rows"]
    outcomes = sorted({outcome for row in rows for outcome in row["summary"]["outcomes"]})
    rules = sorted({rule for row in rows for rule in row["summary"]["violations_by_rule"]})
    return render_page(
        "report.html.j2",
        report=report,
        outcomes=outcomes,
        rules=rules,
        as_chart=bar_chart({row["name"]: row["summary"]["as_score"] for row in rows}, label="AS of each row"),
        es_chart=line_chart(
            {row["name"]: _es_points(row["summary"]["es"]) for row in rows},
            label="ES_t over the tolerance level t, one line a row",
            x_label="tolerance level t",
            y_label="ES_t",
        ),
        turn_chart=line_chart(
            {row["name"]: [(turn, value) for turn, value in enumerate(row["as_by_turn"], start=1)] for row in rows},
            label="AS of the best candidate so far after each turn",
            x_label="turn",
            y_label="AS",
        ),
        loss_chart=line_chart(
            {"loss": [(entry["step"], entry["loss"]) for entry in report["loss_curve"] if entry["loss"] is not None]},
            label="training loss over steps",
            x_label="step",
            y_label="loss",
        ),
    )


def write_report_page(report: Mapping[str, Any], out_dir: Path) -> Path:
    """Write report.html into out_dir (created), whole or not at all; returns its path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / REPORT_PAGE
    partial = path.with_suffix(".html.partial")
    partial.write_text(render_report_page(report), encoding="utf-8")
    partial.replace(path)
    return path


def _es_points(es: Mapping[str, float | None]) -> list[tuple[float, float]]:
    return sorted((int(level), value) for level, value in es.items() if value is not None)
