"""`passwright tasks build`: models -> graphs -> tasks -> one Parquet file, resumable; done by data.construct.build."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import add_config, add_json, add_out, add_resume, say, write_json

if TYPE_CHECKING:
    from data.construct.build import Built
    from data.construct.build_config import BuildConfig

HELP = "build a set of tasks from a zoo of models"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, required=False)
    add_out(parser, "runs/tasks/<name>")
    add_resume(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at once; default: the cores of this machine")
    parser.add_argument(
        "--scale",
        type=int,
        metavar="N",
        help="N fusible training tasks and N/5 classical ones instead of the configured numbers; from every model that "
        "is known to run if that is more than configured",
    )
    parser.add_argument("--dry-run", action="store_true", help="check the configuration, say what would be done")
    add_json(parser, "the report")


def run(args: argparse.Namespace) -> int:
    from data.construct.build_config import BuildConfig
    from eval_harness.errors import UserError
    from scripts.config_loading import load_config, refuse_other_config, write_run_record

    config = load_config(BuildConfig, args.config, args.overrides)
    if args.scale is not None:
        config = scaled(config, args.scale)
    out: Path = args.out or Path("runs/tasks") / config.name
    if args.jobs is not None and args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}: give 1 or more")
    if args.resume:
        refuse_other_config(out, config)

    from data.construct.build import build_tasks, model_ids
    from data.construct.sequence_model import SequenceModelError, check_available

    try:
        check_available(config.splits.sequence_model)
        num_models = len(model_ids(config))
    except (ValueError, ModuleNotFoundError) as error:
        raise UserError(f"models: {error}; correct models.only, models.sources or models.zoo") from None
    except SequenceModelError as error:
        raise UserError(str(error)) from None
    counts = config.splits
    say(
        f"build {config.name} from {num_models} models, into {out}: {counts.eval} eval, "
        f"{counts.train} train, {counts.eval_classical} eval_classical, {counts.train_classical} train_classical, "
        f"{counts.single_op} single_op tasks"
    )
    if args.dry_run:
        return 0
    if not args.resume:
        _begin_anew(out)
    write_run_record(out, config)
    with _stages_said():
        built = build_tasks(config, out, num_workers=args.jobs)
    print(render_built(built), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, built.report)
    return 0


def scaled(config: BuildConfig, num_train: int) -> BuildConfig:
    """The configuration with num_train fusible training tasks, and named after it. Raises UserError below 1."""
    from eval_harness.errors import UserError

    if num_train < 1:
        raise UserError(f"--scale {num_train}: give at least 1")
    splits = config.splits.model_copy(update={"train": num_train, "train_classical": max(num_train // 5, 1)})
    enough = num_train <= config.splits.train
    models = config.models if enough else config.models.model_copy(update={"only": ()})
    return config.model_copy(update={"name": f"{config.name}_{num_train}", "splits": splits, "models": models})


def render_built(built: Built) -> str:
    """What was written."""
    splits = Counter(task.split for task in built.tasks)
    counted = ", ".join(f"{count} {split}" for split, count in splits.items())
    num_graphs = sum(len(task.graphs) for task in built.tasks)
    size_mb = built.path.stat().st_size / (1 << 20)
    return (
        f"{len(built.tasks)} tasks ({counted}), {num_graphs} graphs, {size_mb:.1f} MB in {built.path}\n"
        f"card: {built.card}\nto check: passwright tasks check {built.path}"
    )


def _begin_anew(out: Path) -> None:
    """Remove what an earlier build left; nothing but a build's own folder is touched."""
    from eval_harness.errors import UserError
    from scripts.config_loading import RUN_RECORD_FILE

    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / RUN_RECORD_FILE).is_file():
        raise UserError(f"{out}: holds something else than a build; choose another --out")
    shutil.rmtree(out)


@contextmanager
def _stages_said() -> Iterator[None]:
    """Each finished stage as a line on stderr, whatever the log level."""
    logger, handler = logging.getLogger("data.construct.build"), _Say(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Say(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
