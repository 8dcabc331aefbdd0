"""`passwright collect`: tasks x attempts of a policy -> a collection of trajectories, resumable."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from scripts.arguments import (
    add_cache,
    add_config,
    add_device,
    add_executor,
    add_json,
    add_out,
    add_resume,
    check_executor_device,
    executor_config,
    say,
    write_json,
)

if TYPE_CHECKING:
    from trajectories.collect_summary import CollectSummary

HELP = "Let a policy try tasks and store its trajectories."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_out(parser, "runs/collect/<name>")
    add_device(parser, default=None)
    add_executor(parser, default="as configured")
    add_resume(parser)
    add_json(parser, "the summary")
    add_cache(parser, default="as configured", can_disable=True)
    parser.add_argument("--judges", type=int, metavar="N", help="judges for each local device; default: as configured")
    parser.add_argument("--dry-run", action="store_true", help="check configuration and tasks, say what would be done")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from scripts.config_loading import load_config
    from trajectories.collect import CollectConfig, run_collect

    config = load_config(CollectConfig, args.config, args.overrides)
    given = {"device": args.device, "out_dir": args.out, "cache_dir": args.cache, "cache_max_mb": args.cache_mb}
    given |= {"verdict_cache": False if args.no_cache else True if args.cache else None}
    config = config.model_copy(update={field: value for field, value in given.items() if value is not None})
    where = executor_config(args, config.executor)
    if args.judges is not None and where.kind == "local":
        where = where.model_copy(update={"num_judges": args.judges})
    device = check_executor_device(where, config.device)
    tasks = [task for reference in config.tasks for task in load_tasks(reference)][: config.max_tasks]
    say(
        f"collect {config.name}: {len(tasks)} tasks x {config.num_attempts} attempts by {config.policy.get('kind')} "
        f"on {device}, into {config.root}"
    )
    if args.dry_run:
        config.protocols()
        return 0

    from eval_harness.cached_evaluator import with_cache
    from eval_harness.executor_config import open_executor

    with open_executor(where, device=device) as executor:
        cache_dir = config.cache_dir if config.verdict_cache else None
        summary = run_collect(
            config, tasks, with_cache(executor, cache_dir, max_mb=config.cache_max_mb), resume=args.resume
        )
    print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, summary.model_dump(mode="json"))
    return 0


def render_summary(summary: CollectSummary) -> str:
    """A collection in a few lines."""
    stops = ", ".join(f"{count} {reason}" for reason, count in summary.stop_reasons.items())
    lines = [
        f"{summary.num_finished} of {summary.num_planned} attempts finished ({stops})",
        f"{summary.num_tasks_solved} of {summary.num_tasks} tasks solved, {summary.num_evaluations} evaluations",
    ]
    if summary.median_final_as is not None:
        covered = "" if summary.median_final_as_covered is None else f", covered {summary.median_final_as_covered:.3f}"
        lines.append(f"median AS of the final verdicts {summary.median_final_as:.3f}{covered}")
    if summary.shrinkage is not None:
        covered = "" if summary.shrinkage_covered is None else f", covered {summary.shrinkage_covered:.3f}"
        lines.append(f"fresh over best feedback (shrinkage) {summary.shrinkage:.3f}{covered}")
    tokens = f"{summary.usage.input_tokens} tokens read, {summary.usage.output_tokens} written"
    lines.append(f"{tokens}, {summary.spent_usd:.2f} USD, {summary.duration_s:.0f} s")
    return "\n".join(lines)
