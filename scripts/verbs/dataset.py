"""`passwright dataset`: build a dataset of conversations from collections, or show one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_config, add_json, add_out, add_resume, say, write_json

if TYPE_CHECKING:
    from training.sft_dataset import DatasetSummary

HELP = "Build or show a dataset for supervised fine-tuning."

SHOWN_CHARS = 600
"""Of each message of the row shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="select trajectories and write a Hugging Face dataset with its card")
    build.add_argument(
        "--collection", type=Path, action="append", metavar="DIR", help="what collect wrote; may be given again"
    )
    add_config(build, required=False)
    add_out(build, "runs/dataset/<name>")
    add_resume(build)
    add_json(build, "the summary")
    show = actions.add_parser("show", help="composition, and one row as a conversation")
    show.add_argument("dataset", type=Path, metavar="DIR")
    show.add_argument("--row", type=int, default=0, metavar="N", help="which row, from 0; default: 0")
    add_json(show, "the row")


def run(args: argparse.Namespace) -> int:
    return _build(args) if args.action == "build" else _show(args)


def _build(args: argparse.Namespace) -> int:
    from scripts.config_loading import load_config
    from training.sft_dataset import DatasetConfig, build_sft_dataset

    overrides = list(args.overrides)
    if args.collection:
        overrides.append(f"collections={json.dumps([str(path) for path in args.collection])}")
    if args.out:
        overrides.append(f"out={json.dumps(str(args.out))}")
    config = load_config(DatasetConfig, args.config, overrides)
    summary = build_sft_dataset(config, overwrite=not args.resume)
    print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, summary.model_dump(mode="json"))
    return 0


def _show(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError
    from training.sft_dataset import load_sft_dataset

    dataset = load_sft_dataset(args.dataset)
    if not 0 <= args.row < len(dataset):
        raise UserError(f"--row {args.row}: {args.dataset} has rows 0 to {len(dataset) - 1}")
    row = dataset[args.row]
    say(f"{args.dataset}: {len(dataset)} rows; columns {', '.join(dataset.column_names)}")
    if args.json:
        write_json(args.json, row)
    else:
        print(render_row(row))
    return 0


def render_summary(summary: DatasetSummary) -> str:
    """What was kept and what was not, with reasons."""
    scores = summary.as_covered
    lines = [
        f"kept {summary.num_rows} of {summary.num_trajectories} trajectories, {summary.num_tasks} tasks, "
        f"{summary.num_turns} turns; covered AS {scores[0]:.3f} to {scores[-1]:.3f}",
        *(f"  dropped {count}: {reason}" for reason, count in summary.refusals.items()),
        f"in {summary.path}",
    ]
    return "\n".join(lines)


def render_row(row: dict[str, Any]) -> str:
    """One row: where it comes from, then the conversation."""
    lines = [f"{name}: {value}" for name, value in row.items() if name not in ("messages", "tools")]
    for message in row["messages"]:
        lines += ["", f"--- {message['role']}"]
        if message.get("content"):
            lines.append(_clip(message["content"]))
        for call in message.get("tool_calls") or []:
            function = call["function"]
            arguments = function["arguments"]
            shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            lines.append(f"-> {function['name']} {_clip(shown)}")
    return "\n".join(lines)


def _clip(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} [{len(text) - SHOWN_CHARS} more characters]"
