"""`passwright collect`: tasks x attempts of a policy -> a collection of trajectories, resumable; or shards merged."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import (
    add_cache,
    add_config,
    add_device,
    add_executor,
    add_json,
    add_out,
    add_resume,
    check_device_name,
    check_executor_device,
    executor_config,
    say,
    write_json,
)
from scripts.exit_status import DONE, OUR_FAILURE

if TYPE_CHECKING:
    from data.task import Task
    from trajectories.collect import CollectConfig
    from trajectories.collect_summary import CollectSummary

HELP = "Let a policy try tasks and store its trajectories."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, required=False)
    add_out(parser, "runs/collect/<name>")
    add_device(parser, default=None)
    add_executor(parser, default="as configured")
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help="iterative, evolve, ksearch, or a preset of configs/agents/ such as robust_kbench; default: as configured",
    )
    add_resume(parser, otherwise="refuse a folder that holds something")
    add_json(parser, "the summary, or with --dry-run the estimate,")
    add_cache(parser, default="as configured", can_disable=True)
    parser.add_argument("--judges", type=int, metavar="N", help="judges for each local device; default: as configured")
    parser.add_argument("--shard", metavar="I/N", help="collect the I-th of N shares of the tasks, into its own folder")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="DIR", help="instead: put the folders of shards together into --out"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what the run would take, and begin nothing")
    parser.add_argument(
        "--from", type=Path, dest="measured", metavar="DIR",
        help="with --dry-run: by what the attempts of this collection took; default: of this one, else assumptions",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError

    if args.merge:
        return _merge(args)
    if args.config is None:
        raise UserError("--config is missing; give the YAML file of a collection, such as configs/collect/expert.yaml")
    if args.measured and not args.dry_run:
        raise UserError(f"--from {args.measured}: is for --dry-run; add it, or leave --from out")
    return _collect(args)


def _collect(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from scripts.config_loading import load_config
    from trajectories.collect import CollectConfig, run_collect
    from trajectories.plan import Shard

    config = load_config(CollectConfig, args.config, args.overrides)
    given = {"device": args.device, "out_dir": args.out, "cache_dir": args.cache, "cache_max_mb": args.cache_mb}
    given |= {"verdict_cache": False if args.no_cache else True if args.cache else None}
    if args.agent:
        from trajectories.agents import named_agent

        given["agent"] = named_agent(args.agent, config.agent)
    config = config.model_copy(update={field: value for field, value in given.items() if value is not None})
    shard = Shard.parse(args.shard) if args.shard else None
    where = executor_config(args, config.executor)
    if args.judges is not None and where.kind == "local":
        where = where.model_copy(update={"num_judges": args.judges})
    # a dry run may be made on another machine than the run
    device = check_device_name(config.device) if args.dry_run else check_executor_device(where, config.device)
    tasks = [task for reference in config.tasks for task in load_tasks(reference)][: config.max_tasks]
    share = f", share {shard}" if shard else ""
    say(
        f"collect {config.name}: {len(tasks)} tasks x {config.num_attempts} attempts by {config.policy.get('kind')} "
        f"({config.agent.get('preset') or config.agent.get('kind', 'iterative')}) "
        f"on {device}{share}, into {config.root_of(shard)}"
    )
    if args.dry_run:
        return _estimate(args, config, tasks, shard, where)

    from eval_harness.cached_evaluator import with_cache
    from eval_harness.executor_config import open_executor

    with open_executor(where, device=device) as executor:
        cache_dir = config.cache_dir if config.verdict_cache else None
        summary = run_collect(
            config,
            tasks,
            with_cache(executor, cache_dir, max_mb=config.cache_max_mb),
            resume=args.resume,
            shard=shard,
            num_judges=executor.metrics().num_judges if hasattr(executor, "metrics") else None,
        )
    _print(args, summary)
    return status_of(summary)


def status_of(summary: CollectSummary) -> int:
    """3 where attempts failed and none was finished: a script must not go on with an empty collection."""
    from trajectories.record import INFRASTRUCTURE_STOPS

    failed = sum(summary.stop_reasons.get(str(reason), 0) for reason in INFRASTRUCTURE_STOPS)
    return OUR_FAILURE if failed and not summary.num_finished else DONE


def _estimate(args: argparse.Namespace, config: CollectConfig, tasks: list[Task], shard: Any, where: Any) -> int:
    from trajectories.collect_estimate import estimate_collection
    from trajectories.estimate import render_estimate

    estimate = estimate_collection(
        config, tasks, shard=shard, measured=args.measured, num_judges=_num_judges(where, config.device)
    )
    print(render_estimate(estimate), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, estimate.as_dict())
    return 0


def _num_judges(where: Any, device: str) -> int:
    """As far as it can be told before anything is started; a service counts as one judge."""
    from eval_harness.executor import expand_devices

    num = getattr(where, "num_judges", None) or getattr(where, "num_actors", None) or 1
    return int(num) * (len(expand_devices(device)) if where.kind == "local" else 1)


def _merge(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError
    from trajectories.collect_merge import merge_collections

    if args.out is None or args.config is not None:
        raise UserError("--merge: give the shards' folders after it, --out for the new folder, and no --config")
    _print(args, merge_collections(args.merge, args.out))
    return 0


def _print(args: argparse.Namespace, summary: CollectSummary) -> None:
    from trajectories.collect_text import render_summary

    print(render_summary(summary), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, summary.model_dump(mode="json"))
