"""`passwright bi agents`: a vanilla and a BI-aware collection of one agent beside each other, and the paper's rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.arguments import add_json, write_json

HELP = "what the gates did to an agent: success, correctness, interventions, speedup kept, late-stage gain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "vanilla",
        type=Path,
        metavar="VANILLA",
        help="a collection made with protocol_overrides.batch_invariance=report",
    )
    parser.add_argument("aware", type=Path, metavar="AWARE", help="the same collection made with ...=enforce")
    add_json(parser, "the figures")


def run(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError
    from scripts.benches.output import render_table
    from trajectories.batch_figures import PAPER, compare_collections, rows
    from trajectories.store import load_trajectories

    found = [load_trajectories(folder) for folder in (args.vanilla, args.aware)]
    kinds = sorted({each.agent for trajectories in found for each in trajectories})
    if len(kinds) > 1:
        raise UserError(f"{args.vanilla} and {args.aware}: agents {', '.join(kinds)}; compare collections of one agent")
    try:
        figures = compare_collections(*found)
    except ValueError as error:
        raise UserError(f"{args.vanilla} and {args.aware}: {error}; give two collections of the same tasks") from None
    paper = [(name, *values) for name, values in PAPER.items()]
    header = ("the paper (other tasks and machine), %", "vanilla BI", "aware BI", "interventions", "speedup kept")
    text = (
        f"{', '.join(kinds)}, {figures['num_tasks']} tasks ({figures['num_both_correct']} correct in both, "
        f"{figures['num_variant_baseline']} whose vanilla candidate follows its batch)\n\n"
        f"{render_table(('figure', 'vanilla', 'BI-aware'), rows(figures))}\n\n{render_table(header, paper)}"
    )
    print(text, file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, figures)
    return 0
