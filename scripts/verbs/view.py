"""`passwright view`: collections of trajectories -> a page of attempts that a browser opens from disk."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from scripts.arguments import say

HELP = "Build a page of a collection's attempts: list, conversations, verdicts."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="what `passwright collect` wrote")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/view/<name of the first DIR>")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--selection",
        choices=("strict", "paper"),
        default="strict",
        help="whose answer the page shows to kept or refused; default: strict",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes that render; default: one a core")


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from eval_harness.errors import UserError
    from trajectories.pages.viewer import build_viewer

    if args.workers is not None and args.workers < 1:
        raise UserError(f"--workers {args.workers}: give 1 or more")
    out_dir = args.out or Path("runs/view") / args.folders[0].resolve().name
    summary = build_viewer(
        args.folders,
        out_dir,
        preset=args.selection,
        num_workers=args.workers,
        watch=lambda rows, total: tqdm(
            rows, total=total, desc="view", unit="attempt", file=sys.stderr, disable=not sys.stderr.isatty()
        ),
    )
    for line in summary.unreadable:
        say(f"view: not shown: {line}")
    say(
        f"view: {summary.num_attempts} attempts ({summary.num_rendered} rendered, {summary.num_kept} kept by selection "
        f"{args.selection}), {summary.num_bytes / 1e6:.1f} MB, {summary.seconds:.1f} s"
    )
    print(summary.page)
    if args.open:
        webbrowser.open(summary.page.resolve().as_uri())
    return 0
