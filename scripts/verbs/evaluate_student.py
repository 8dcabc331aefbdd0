"""`passwright evaluate-student`: a checkpoint attempts tasks as the teacher does, before the same judge."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import (
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
    from training.evaluate import EvaluationSummary

HELP = "Evaluate a student on tasks."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, required=False)
    parser.add_argument("--student", type=Path, metavar="DIR", help="checkpoint folder; default: as configured")
    parser.add_argument("--task", action="append", metavar="TASK", help="a task reference; may be given again")
    add_out(parser, "runs/evaluate/<name>")
    add_device(parser, default=None)
    add_executor(parser, default="as configured")
    add_resume(parser)
    add_json(parser, "the summary")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from scripts.config_loading import load_config
    from training.evaluate import StudentEvaluationConfig, run_student_evaluation

    overrides = list(args.overrides)
    for key, value in (("student", args.student), ("out", args.out), ("device", args.device)):
        if value is not None:
            overrides.append(f"{key}={json.dumps(str(value))}")
    if args.task:
        overrides.append(f"tasks={json.dumps(args.task)}")
    config = load_config(StudentEvaluationConfig, args.config, overrides)
    where = executor_config(args, config.executor)
    device = check_executor_device(where, config.device)
    tasks = [task for reference in config.tasks for task in load_tasks(reference)][: config.max_tasks]
    say(f"evaluate-student {config.student}: {len(tasks)} tasks x {config.num_attempts} attempts, {device}")

    from eval_harness.executor_config import open_executor

    with open_executor(where, device=device) as executor:
        evaluation = run_student_evaluation(config, tasks, executor, resume=args.resume)
    print(render_summary(evaluation.summary), file=sys.stderr if args.json == "-" else sys.stdout)
    say(f"verdicts, trajectories and the report's row: {config.out_dir}")
    if args.json:
        write_json(args.json, evaluation.summary.model_dump(mode="json"))
    return 0


def render_summary(summary: EvaluationSummary) -> str:
    """The headline of an evaluation in a few lines."""
    first = summary.first_attempt
    score = "none (unstable)" if first.as_score is None else f"{first.as_score:.3f}"
    covered = "" if first.as_covered is None else f", covered {first.as_covered:.3f}"
    stops = ", ".join(f"{count} {reason}" for reason, count in summary.stop_reasons.items())
    calls = f"{summary.num_submitted} attempts evaluated a pass, {summary.num_malformed_calls} malformed calls"
    return "\n".join(
        [
            f"AS {score}{covered} over {first.num_graphs} graphs of {first.num_tasks} tasks (first attempts)",
            f"{first.num_correct} graphs correct; {100 * first.sample_success:.0f}% of tasks with every graph correct",
            f"{calls}; {stops}",
        ]
    )
