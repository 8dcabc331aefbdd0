"""Arguments that several verbs share, and their checks: one spelling and one error line for each."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str]) -> None:
    """The actions of a verb: name -> module with HELP and add_arguments(parser)."""
    subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, module_name in actions.items():
        module = importlib.import_module(module_name)
        module.add_arguments(subparsers.add_parser(action, help=module.HELP, description=module.HELP))


def add_device(parser: argparse.ArgumentParser, *, default: str | None = "cpu") -> None:
    """default None: the configuration's device, unless the flag is given."""
    shown = default or "as configured"
    parser.add_argument("--device", default=default, metavar="cpu|cuda[:i]", help=f"where graphs run; default: {shown}")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", metavar="FILE|-", help=f"write {what} as JSON to FILE, or to stdout with -")


def add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("--config", type=Path, required=required, metavar="FILE", help="YAML configuration")
    # given anywhere: cli.main adds those that argparse leaves over
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides of the configuration")


def add_resume(parser: argparse.ArgumentParser, *, otherwise: str = "begin anew") -> None:
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=f"go on with what --out holds (default), or {otherwise}",
    )


def add_cache(parser: argparse.ArgumentParser, *, default: str, can_disable: bool) -> None:
    """Where repeats of an evaluation are served from; can_disable where the configuration has one already."""
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help=f"serve repeats of an evaluation from this folder; default: {default}"
    )
    parser.add_argument("--cache-mb", type=float, metavar="MB", help="size limit of the folder; oldest out first")
    if can_disable:
        parser.add_argument("--no-cache", action="store_true", help="evaluate repeats anew")


def add_executor(parser: argparse.ArgumentParser, *, default: str = "local") -> None:
    """Where evaluations run; see executor_config."""
    parser.add_argument(
        "--executor",
        choices=("local", "ray", "http"),
        help=f"judges on this machine, on a Ray cluster or behind a service; default: {default}",
    )
    parser.add_argument("--address", metavar="URL", help="of the Ray cluster (default: auto) or of the service")


def executor_config(args: argparse.Namespace, configured: Any = None) -> Any:
    """The ExecutorConfig of --executor and --address, over the configuration's. Raises UserError."""
    from eval_harness.executor_config import HttpExecutorConfig, LocalExecutorConfig, RayExecutorConfig

    configured = configured or LocalExecutorConfig()
    kind = args.executor or configured.kind
    if args.address and kind == "local":
        raise UserError(f"--address {args.address}: local judges have none; add --executor ray or --executor http")
    if kind == configured.kind:
        return configured.model_copy(update={"address": args.address} if args.address else {})
    if kind == "http":
        if not args.address:
            raise UserError("--executor http: add --address URL, the service's (docs/executors.md)")
        return HttpExecutorConfig(kind="http", address=args.address)
    return RayExecutorConfig(kind="ray", address=args.address or "auto") if kind == "ray" else LocalExecutorConfig()


def check_executor_device(executor: Any, device: str) -> str:
    """The device, checked where judges run on this machine. Raises UserError."""
    return check_device(device) if executor.kind == "local" else device


def add_out(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"output folder; default: {default}")


def check_device(device: str) -> str:
    """The device, if this machine has it. Raises UserError with the cure. Imports torch for cuda only."""
    if check_device_name(device) == "cpu":
        return device
    cpu_build = f"--device {device}: this torch is a CPU build; install a CUDA build, or use --device cpu"
    import importlib.metadata

    if importlib.metadata.version("torch").endswith("+cpu"):
        raise UserError(cpu_build)  # told by the version alone: importing torch takes seconds
    import torch

    if torch.version.cuda is None:
        raise UserError(cpu_build)
    if not torch.cuda.is_available():
        raise UserError(f"--device {device}: no usable GPU (see `passwright doctor`); use --device cpu")
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise UserError(f"--device {device}: this machine has {torch.cuda.device_count()} GPU(s), counted from cuda:0")
    return device


def check_device_name(device: str) -> str:
    """The device, if it is one, on whatever machine. Raises UserError."""
    if not _DEVICE.fullmatch(device):
        raise UserError(f"--device {device}: unknown; give cpu, cuda or cuda:i")
    return device


def write_json(target: str | Path, value: Any) -> None:
    """Write value as JSON to a file, or to stdout for "-". Raises UserError where the file cannot be made."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    if str(target) == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); give another path to --json") from None


def say(line: str) -> None:
    """One line of progress, on stderr: stdout holds results only."""
    print(line, file=sys.stderr, flush=True)
