"""`passwright report`: runs or files of verdicts -> report.json, report.md and a self-contained report.html."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import add_json, say, write_json

if TYPE_CHECKING:
    from scripts.report_inputs import ReportInputs
    from trajectories.pages.report_details import ReportSources

HELP = "Make a report from verdict records."
EPILOG = "--out report.html writes report.html, report.json and report.md; --out DIR the same three into DIR."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="[NAME=]RUN",
        help="one row: the folder of a student's evaluation (with its baselines), a collection's folder, or a file "
        "(a Verdict, a list of them, a row)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/report"), metavar="DIR|FILE.html", help="default: runs/report"
    )
    parser.add_argument("--title", default="Passwright report")
    parser.add_argument("--eager", action="store_true", help="add the row of eager execution, 1 by definition")
    parser.add_argument("--no-baselines", action="store_true", help="of evaluations' folders, the student's row alone")
    parser.add_argument(
        "--view", type=Path, metavar="FOLDER", help="build the viewer of the runs' attempts there, and link to it"
    )
    parser.add_argument("--allow-mixed", action="store_true", help="rows of other protocols, devices or task sets too")
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of report.json, and do nothing else"
    )
    add_json(parser, "the report")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from eval_harness.report_schema import json_schema

        write_json("-", json_schema())
        return 0
    from eval_harness.errors import UserError
    from eval_harness.report import build_report, write_report
    from eval_harness.report_markdown import render_markdown, write_markdown
    from eval_harness.report_row import eager_row
    from eval_harness.report_text import render_report
    from scripts.report_inputs import read_inputs
    from trajectories.pages.report_page import REPORT_PAGE, write_report_page
    from trajectories.store import write_atomically

    if not args.rows:
        raise UserError("report: give at least one run: a file of verdicts, or the folder of an evaluation")
    inputs = read_inputs(args.rows, with_baselines=not args.no_baselines)
    rows = inputs.rows
    if args.eager and all(row.name != "Eager" for row in rows):
        rows.append(eager_row(rows[0].verdicts))
    report = build_report(rows, title=args.title, allow_mixed=args.allow_mixed)
    is_page = args.out.suffix.lower() in (".html", ".htm")
    folder, page = (args.out.parent, args.out.name) if is_page else (args.out, REPORT_PAGE)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: is a file; give a folder, or a name that ends in .html")
    page_path = write_report_page(report, folder, _sources(args, inputs), page=page)
    if is_page:  # data of the page's own name: another report may lie in the folder
        json_path, markdown_path = page_path.with_suffix(".json"), page_path.with_suffix(".md")
        write_json(str(json_path), report)
        write_atomically(markdown_path, render_markdown(report))
    else:
        json_path, markdown_path = write_report(report, folder), write_markdown(report, folder)
    print(render_report(report), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, report)
    say(f"report: {page_path}, {json_path} and {markdown_path}")
    return 0


def _sources(args: argparse.Namespace, inputs: ReportInputs) -> ReportSources:
    """What is behind the numbers; with --view, its viewer too."""
    from eval_harness.errors import UserError
    from trajectories.pages.report_details import ReportSources
    from trajectories.pages.viewer import build_viewer

    viewer = None
    if args.view is not None:
        if not inputs.collections:
            raise UserError("--view: no run has attempts; give the folder of an evaluation or of a collection")
        viewer = build_viewer(list(inputs.collections.values()), args.view).page
    return ReportSources(inputs.rows, inputs.collections, viewer)
