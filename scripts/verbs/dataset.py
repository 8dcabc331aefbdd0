"""`passwright dataset`: build a dataset of conversations from collections, show one, or push one to the Hub."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_config, add_json, add_out, say, write_json

if TYPE_CHECKING:
    from training.sft_dataset import DatasetSummary

HELP = "Build, show or publish a dataset for supervised fine-tuning."

SHOWN_CHARS = 600
"""Of each message of the row shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="select trajectories and write a Hugging Face dataset with its card")
    build.add_argument(
        "--collection", type=Path, action="append", metavar="DIR", help="what collect wrote; may be given again"
    )
    build.add_argument(
        "--kind",
        choices=("conversations", "candidates", "candidate-sft", "preferences", "verifier"),
        help="whole attempts (as configured), or single candidates: a row each, what to imitate, pairs, questions "
        "of verifiers",
    )  # fmt: skip
    build.add_argument(
        "--format", choices=("parquet", "openai-jsonl"), help="as configured, or for a fine-tuning API in OpenAI's form"
    )
    add_config(build, required=False)
    add_out(build, "runs/dataset/<name>")
    build.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave a dataset that --out holds as it is and refuse (default), or build it anew and replace it",
    )
    add_json(build, "the summary")
    show = actions.add_parser("show", help="composition, and one row as a conversation")
    show.add_argument("dataset", type=Path, metavar="DIR")
    show.add_argument("--row", type=int, default=0, metavar="N", help="which row, from 0; default: 0")
    show.add_argument("--split", default="train", help="default: train")
    add_json(show, "the row")
    push = actions.add_parser("push", help="upload card and data to the Hugging Face Hub")
    push.add_argument("dataset", type=Path, metavar="DIR")
    push.add_argument("repo", metavar="OWNER/NAME")
    push.add_argument(
        "--private", action=argparse.BooleanOptionalAction, default=True, help="a private repository (default)"
    )
    push.add_argument(
        "--yes-i-checked-the-terms",
        action="store_true",
        dest="checked_terms",
        help="push although a teacher's terms are not stated or may forbid it",
    )
    push.add_argument("--dry-run", action="store_true", help="list what would be uploaded; send nothing")


def run(args: argparse.Namespace) -> int:
    return {"build": _build, "show": _show, "push": _push}[args.action](args)


def _build(args: argparse.Namespace) -> int:
    from scripts.config_loading import load_config
    from training.sft_dataset import DatasetConfig, build_sft_dataset

    overrides = list(args.overrides)
    if args.collection:
        overrides.append(f"collections={json.dumps([str(path) for path in args.collection])}")
    if args.out:
        overrides.append(f"out={json.dumps(str(args.out))}")
    if args.format:
        overrides.append(f"format={args.format}")
    if args.kind:
        overrides.append(f"kind={args.kind}")
    config = load_config(DatasetConfig, args.config, overrides)
    if config.kind == "conversations":
        summary = build_sft_dataset(config, overwrite=not args.resume, show_progress=True)
    else:
        from training.candidate_dataset import build_candidate_dataset

        summary = build_candidate_dataset(config, overwrite=not args.resume, show_progress=True)
    print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, summary.model_dump(mode="json"))
    return 0


def _show(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError
    from training.dataset_files import check_readable
    from training.dataset_push import load_summary
    from training.sft_dataset import load_sft_dataset

    check_readable(args.dataset)
    if (args.dataset / "summary.json").is_file():
        summary = load_summary(args.dataset)
        print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
        if summary.format != "parquet":
            raise UserError(
                f"{args.dataset}: {summary.format} is lines of text, {summary.files[0]}; read them as they are"
            )
    dataset = load_sft_dataset(args.dataset, args.split, column="row_hash")
    if not 0 <= args.row < len(dataset):
        raise UserError(f"--row {args.row}: split {args.split} of {args.dataset} has rows 0 to {len(dataset) - 1}")
    row = dataset[args.row]
    say(f"{args.dataset}: {len(dataset)} rows in {args.split}; columns {', '.join(dataset.column_names)}")
    if args.json:
        write_json(args.json, row)
    else:
        print(f"\n{render_row(row) if 'messages' in row else json.dumps(row, indent=1, ensure_ascii=False)}")
    return 0


def _push(args: argparse.Namespace) -> int:
    from training.dataset_push import push_dataset

    push = push_dataset(
        args.dataset, args.repo, private=args.private, checked_terms=args.checked_terms, dry_run=args.dry_run
    )
    for path in push.files:
        print(f"{path.relative_to(args.dataset)}  {path.stat().st_size / 1e6:.2f} MB")
    done = "would be pushed (nothing was sent)" if args.dry_run else "pushed"
    kind = "private" if push.private else "public"
    print(f"{len(push.files)} files, {push.num_bytes / 1e6:.2f} MB {done} to {push.url}, {kind}")
    return 0


def render_summary(summary: DatasetSummary) -> str:
    """What was kept and what was not, with reasons, and what the rows are like."""
    scores = summary.as_covered
    lines = [
        f"kept {summary.num_rows} of {summary.num_trajectories} trajectories, {summary.num_tasks} tasks, "
        f"{summary.num_turns} turns; covered AS {scores[0]:.3f} to {scores[-1]:.3f}",
        *(f"  dropped {count}: {reason}" for reason, count in summary.refusals.items()),
    ]
    if len(summary.splits) > 1:
        lines.append("splits: " + ", ".join(f"{split} {count}" for split, count in summary.splits.items()))
    lines += [
        f"from {teacher.name}: {teacher.num_rows} of {teacher.num_trajectories}, licence {teacher.licence}, "
        f"terms {' '.join(teacher.terms.split()) or 'not stated'}"
        for teacher in summary.teachers
    ]
    if (lengths := summary.lengths) is not None:
        lines.append(
            f"tokens ({lengths.tokenizer}): {lengths.num_tokens}, {lengths.num_trained_tokens} trained; a row "
            f"{lengths.shortest} to {lengths.longest}, median {lengths.median}"
        )
    if (found := summary.contamination) is not None:
        shared = ", ".join(f"{kind} {count}" for kind, count in found.by_kind.items() if count) or "nothing"
        lines.append(f"shared with {', '.join(found.eval_tasks)} ({found.mode}): {shared}")
    lines.append(f"in {summary.path}")
    return "\n".join(lines)


def render_row(row: dict[str, Any]) -> str:
    """One row: where it comes from, then the conversation."""
    lines = [f"{name}: {value}" for name, value in row.items() if name not in ("messages", "tools")]
    for message in row["messages"]:
        lines += ["", f"--- {message['role']}"]
        if message.get("reasoning_content"):
            lines.append(f"(reasoning) {_clip(message['reasoning_content'])}")
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
