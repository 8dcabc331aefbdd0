"""`passwright tasks import`: a folder tree or rows from elsewhere -> a named set in the data folder, pinned by hash."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_config, add_json, say, write_json

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.task_import import ImportSummary

HELP = "copy tasks from a folder tree or rows of {path, content} into a named set, pinned by hash"

SHOWN_REFUSALS = 20
EPILOG = """\
PassBench, once the data is there (each list is one that PassNet publishes):
  passwright tasks import PassNet --name passbench \\
    --list eval=PassNet/sample_lists/eval/hf_fusible_eval_samples_v2.txt \\
    --list train=PassNet/sample_lists/train/hf_fusible_train_samples_v2.txt
  passwright collect ... tasks=[passbench:eval]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "source", nargs="?", metavar="DIR|FILE", help="a folder tree, .parquet, .jsonl, or a dataset saved to disk"
    )
    parser.add_argument("--name", metavar="NAME", help="references to the set begin with it")
    parser.add_argument(
        "--list",
        action="append",
        default=[],
        dest="lists",
        metavar="[SPLIT=]FILE",
        help="only these tasks, in that split: a path or task_id a line, or a CSV; may be given again",
    )
    parser.add_argument("--split-file", type=Path, metavar="FILE", help="{split: [task, ...]} or a CSV of task,split")
    parser.add_argument("--pins", type=Path, metavar="FILE", help="exactly these tasks with exactly this content")
    parser.add_argument("--write-pins", type=Path, metavar="FILE", help="write the pins here too, to hand them on")
    parser.add_argument("--each-graph", action="store_true", help="graphs without tasks: make each a task of its own")
    parser.add_argument("--skip-refused", action="store_true", help="leave out what is malformed, instead of stopping")
    parser.add_argument("--replace", action="store_true", help="a set of that name gives way")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="data folder; default: $XDG_DATA_HOME or ~/.local/share, /passwright/tasks",
    )
    parser.add_argument("--max-mb", type=float, metavar="MB", help="size limit of the data folder")
    add_config(parser, required=False)
    add_json(parser, "the summary")


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from data.task_import import ImportConfig, import_tasks
    from data.task_sets import default_tasks_dir
    from scripts.config_loading import load_config

    overrides = list(args.overrides)
    if args.source and "=" in args.source and not Path(args.source).exists():
        overrides.append(args.source)  # an override that argparse took for the source
        args.source = None
    overrides += [f"{key}={json.dumps(value)}" for key, value in _given(args).items()]
    config = load_config(ImportConfig, args.config, overrides)
    say(f"import {config.source} as {config.name}, into {config.into or default_tasks_dir()}")
    with tqdm(desc="tasks", unit="task", disable=None) as bar:

        def progress(count: int) -> None:
            if bar.total is None:
                bar.reset(total=count)
            else:
                bar.update(count)

        summary = import_tasks(config, progress=progress)
    for folder, reason in list(summary.refusals.items())[:SHOWN_REFUSALS]:
        say(f"refused {folder}: {reason}")
    if len(summary.refusals) > SHOWN_REFUSALS:
        say(f"... and {len(summary.refusals) - SHOWN_REFUSALS} more; --json has all of them")
    print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, summary.model_dump(mode="json"))
    return 0 if summary.written else 2


def render_summary(summary: ImportSummary) -> str:
    """What was imported, and what to call it."""
    if not summary.written:
        cure = "; correct them, or add --skip-refused" if summary.num_tasks else ""
        num_tasks = summary.num_tasks + len(summary.refusals)
        return f"nothing written: {len(summary.refusals)} of {num_tasks} tasks refused{cure}"
    splits = ", ".join(f"{count} {split or 'no split'}" for split, count in summary.splits.items())
    refused = f"; {len(summary.refusals)} refused" if summary.refusals else ""
    return (
        f"{summary.num_tasks} tasks ({splits}), {summary.num_graphs} graphs, {summary.size_mb:.1f} MB{refused}; "
        f"in {summary.path}, pinned in {summary.pins.name}"
    )


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, as keys of ImportConfig."""
    from eval_harness.errors import UserError

    lists: dict[str, str] = {}
    for entry in args.lists:
        split, equals, path = entry.rpartition("=")
        if equals and Path(entry).exists():  # a file with = in its name
            split, path = "", entry
        if split in lists:
            raise UserError(f"--list {entry}: a second list for the split {split!r}; join the files into one")
        lists[split] = path
    values = {
        "source": args.source,
        "name": args.name,
        "into": args.into,
        "max_mb": args.max_mb,
        "lists": lists or None,
        "split_file": args.split_file,
        "pins": args.pins,
        "write_pins": args.write_pins,
        "each_graph": args.each_graph or None,
        "skip_refused": args.skip_refused or None,
        "replace": args.replace or None,
    }
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items() if value is not None}
