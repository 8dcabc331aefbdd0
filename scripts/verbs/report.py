"""`passwright report`: files of verdicts -> report.json and a self-contained report.html."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import add_json, say, write_json

if TYPE_CHECKING:
    from eval_harness.report_row import ReportRow

HELP = "Make a report from verdict records."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rows",
        nargs="+",
        metavar="[NAME=]FILE",
        help="one row of the table: a Verdict, a list of them, or a row that an evaluation of a student wrote",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/report"), metavar="DIR", help="default: runs/report")
    parser.add_argument("--title", default="Passwright report")
    parser.add_argument("--eager", action="store_true", help="add the row of eager execution, 1 by definition")
    parser.add_argument("--allow-mixed", action="store_true", help="rows of other protocols, devices or task sets too")
    add_json(parser, "the report")


def run(args: argparse.Namespace) -> int:
    from eval_harness.report import build_report, write_report
    from eval_harness.report_row import eager_row
    from eval_harness.report_text import render_report
    from trajectories.pages.report_page import write_report_page

    rows = [read_row(argument) for argument in args.rows]
    if args.eager:
        rows.append(eager_row(rows[0].verdicts))
    report = build_report(rows, title=args.title, allow_mixed=args.allow_mixed)
    json_path = write_report(report, args.out)
    page_path = write_report_page(report, args.out)
    print(render_report(report), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, report)
    say(f"report: {json_path} and {page_path}")
    return 0


def read_row(argument: str) -> ReportRow:
    """NAME=FILE, or FILE alone. A file whose own name holds "=" is taken as a file."""
    from eval_harness.report_row import load_row

    name, equals, path = argument.partition("=")
    if not equals or Path(argument).exists():
        return load_row(Path(argument))
    return load_row(Path(path), name)
