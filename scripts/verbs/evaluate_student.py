"""`passwright evaluate-student`: a checkpoint attempts tasks as the teacher does, before the same judge."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from training.evaluate import StudentEvaluation
    from training.evaluate_config import StudentEvaluationConfig

HELP = "Evaluate a student on tasks: the paper's Table 1 row, with integrity and batch-invariance rates."

DEFAULT_BASELINES = "eager,inductor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, required=False)
    parser.add_argument(
        "--model", "--student", dest="model", metavar="PATH_OR_NAME",
        help="checkpoint folder, adapter folder, or a model's name on the hub; default: as configured",
    )  # fmt: skip
    parser.add_argument(
        "--tasks", "--task", dest="tasks", action="append", metavar="TASK", help="a task reference; may be given again"
    )
    parser.add_argument("--name", help="of the evaluation and of its row; default: as configured, or the model's")
    parser.add_argument(
        "--protocol", choices=("strict", "passnet"),
        help="of the fresh evaluation and the baselines: ours, or the paper's way of measuring; default: strict",
    )  # fmt: skip
    parser.add_argument("--attempts", type=int, metavar="K", help="a task, for pass@k; needs sampling.temperature > 0")
    parser.add_argument(
        "--serve", choices=("auto", "vllm", "transformers"),
        help="what serves the student; default: vLLM on a GPU, else transformers",
    )  # fmt: skip
    parser.add_argument("--endpoint", metavar="URL", help="a server that runs already, up to and with /v1")
    parser.add_argument(
        "--baselines", metavar="LIST", help=f"measured beside it: {DEFAULT_BASELINES} (default), one of them, or none"
    )
    parser.add_argument(
        "--checkpoints", type=Path, metavar="RUN", help="instead of --model: the checkpoints of a training run"
    )
    parser.add_argument("--steps", metavar="N,N", help="with --checkpoints: of these steps only")
    parser.add_argument("--shard", metavar="I/N", help="attempt the I-th of N shares of the tasks, in its own folder")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="DIR", help="put the folders of shards together into --out, and finish"
    )
    add_out(parser, "runs/evaluate/<name>")
    add_device(parser, default=None)
    add_executor(parser, default="as configured")
    add_resume(parser)
    add_json(parser, "the summary")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from eval_harness.executor_config import open_executor
    from training.evaluate import run_student_evaluation
    from training.evaluate_runs import evaluate_checkpoints
    from trajectories.plan import Shard

    config = _config(args)
    where = executor_config(args, config.executor)
    config = config.model_copy(update={"executor": where})
    check_executor_device(where, config.device)
    device, config = divide_gpus(config)
    shard = Shard.parse(args.shard) if args.shard else None
    tasks = [task for reference in config.tasks for task in load_tasks(reference)][: config.max_tasks]
    share = f", share {shard}" if shard else ""
    what = args.checkpoints or config.student
    say(f"evaluate-student {what}: {len(tasks)} tasks x {config.num_attempts} attempts, {device}{share}")
    _warn_of_equal_attempts(config)
    with open_executor(where, device=device) as executor:
        if args.checkpoints:
            steps = _steps(args.steps)
            evaluations, report = evaluate_checkpoints(
                config,
                args.checkpoints,
                tasks,
                executor,
                steps=steps,
                resume=args.resume,
                say=say,
                judge_device=device,
            )
            return _print_checkpoints(args, config, evaluations, report)
        evaluation = run_student_evaluation(
            config, tasks, executor, resume=args.resume, shard=shard, say=say, judge_device=device
        )
    return _print(args, config, evaluation, config.out_dir_of(shard))


def divide_gpus(config: StudentEvaluationConfig) -> tuple[str, StudentEvaluationConfig]:
    """(where judges run, the configuration with the server's GPUs): each side has its own if there are enough."""
    from training.served_student import choose_kind
    from training.student_service import num_visible_gpus

    server = choose_kind(config.server, config.device)
    if config.device != "cuda" or server.kind != "vllm" or config.executor.kind != "local":
        return config.device, config
    own = server.gpus if server.gpus is not None else list(range(server.num_gpus))
    left = [gpu for gpu in range(num_visible_gpus()) if gpu not in own]
    if not left:
        return config.device, config  # they take turns
    server = server.model_copy(update={"gpus": own})
    return ",".join(f"cuda:{gpu}" for gpu in left), config.model_copy(update={"server": server})


def _has_gpu() -> bool:
    import importlib.metadata

    if importlib.metadata.version("torch").endswith("+cpu"):
        return False
    import torch

    return torch.cuda.is_available()


def _config(args: argparse.Namespace) -> StudentEvaluationConfig:
    from eval_harness.errors import UserError
    from scripts.config_loading import configured_kind, load_config
    from training.evaluate_config import StudentEvaluationConfig
    from training.evaluate_runs import merge_evaluations

    if args.merge:
        if args.out is None or args.config is not None or args.model or args.tasks:
            raise UserError("--merge: give the shards' folders after it, --out for the new folder, and nothing else")
        return merge_evaluations(args.merge, args.out)
    if args.checkpoints and (args.model or args.shard):
        raise UserError("--checkpoints: takes the place of --model and is not sharded; leave that out")
    if args.serve and args.endpoint:
        raise UserError(f"--endpoint {args.endpoint}: is served already; leave --serve out")
    model = args.model or args.checkpoints
    given: dict[str, Any] = {
        "student": model,
        "out": args.out,
        "device": args.device,
        "final_protocol": args.protocol,
        "name": args.name,
        "num_attempts": args.attempts,
        "tasks": args.tasks,
    }
    if args.protocol == "passnet":
        given["final_protocol_overrides"] = {}  # the paper checked no batch invariance
    if args.endpoint:
        given["server"] = {"kind": "endpoint", "base_url": args.endpoint}
    elif args.serve:
        given["server"] = {"kind": args.serve}
    if args.baselines is not None or args.config is None:
        listed = args.baselines if args.baselines is not None else DEFAULT_BASELINES
        given["baselines"] = [] if listed == "none" else listed.split(",")
    if args.config is None and args.device is None and _has_gpu():
        given["device"] = "cuda"
    if args.config is None and args.name is None and model:
        given["name"] = _name_of(str(model))
    values = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    overrides = [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]
    # flags replace what the file says of these, where key=value goes into it
    replaced = [key for key in ("server", "final_protocol_overrides") if isinstance(values.get(key), dict)]
    if args.serve and configured_kind(args.config, "server") == args.serve:
        replaced.remove("server")
    overrides = [*(f"{key}=null" for key in replaced), *overrides]
    # before the command line's own key=value, which may go into the same mappings
    return load_config(StudentEvaluationConfig, args.config, overrides + list(args.overrides))


def _name_of(model: str) -> str:
    """A row's name for a model that has none: its folder's, with the run's for the usual folder of a student."""
    parts = [part for part in model.rstrip("/").split("/") if part not in ("", ".", "..")]
    shown = parts[-2:] if parts[-1:] in (["student"], ["untrained"]) or "checkpoint-" in model else parts[-1:]
    return re.sub(r"[^A-Za-z0-9_.\-]", "-", "-".join(shown)).lstrip("-._") or "student"


def _steps(text: str | None) -> list[int] | None:
    from eval_harness.errors import UserError

    if text is None:
        return None
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise UserError(f"--steps {text}: give optimizer steps, such as 100,200")
    return [int(step) for step in text.split(",")]


def _warn_of_equal_attempts(config: StudentEvaluationConfig) -> None:
    if config.num_attempts > 1 and config.sampling.temperature == 0:
        say(
            f"WARNING: {config.num_attempts} attempts at temperature 0 hardly differ: pass@k needs "
            "sampling.temperature above 0"
        )


def _print(args: argparse.Namespace, config: Any, evaluation: StudentEvaluation, out_dir: Path) -> int:
    from eval_harness.report_text import render_report
    from training.evaluate_summary import render_summary

    stream = sys.stderr if args.json == "-" else sys.stdout
    print(f"{render_summary(evaluation.summary)}\n\n{render_report(evaluation.report)}", file=stream)
    say(f"report.html, report.md, report.json, verdicts, trajectories and the report's row: {out_dir}")
    if args.json:
        write_json(args.json, evaluation.summary.model_dump(mode="json"))
    return 0


def _print_checkpoints(args: argparse.Namespace, config: Any, evaluations: Any, report: dict[str, Any]) -> int:
    from eval_harness.report_text import render_report

    print(render_report(report), file=sys.stderr if args.json == "-" else sys.stdout)
    say(f"report.html, report.md and report.json with the curve: {config.out_dir}")
    if args.json:
        write_json(args.json, [evaluation.summary.model_dump(mode="json") for evaluation in evaluations])
    return 0
