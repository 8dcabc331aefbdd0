"""`passwright bi validate`: kernel folders through the dynamic validator. Their code runs in this process: trust it."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_device, add_json, check_device, say, write_json

if TYPE_CHECKING:  # torch takes longer to import than --help may take
    from eval_harness.batch_invariance.dynamic_result import DynamicResult

HELP = "does a row of a kernel keep its bits whatever shares its batch? Runs kernel folders (kernel.py, kernel.json)"

EXPECTED = {"variant": ("variant", "not deterministic"), None: ("invariant", "not applicable")}
"""Label -> outcomes that are no surprise; every other label is like none, and wants an invariant kernel."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"{HELP}. Exit status 2 if a verdict is not what the label says; without a label, if bits change."
    )
    parser.add_argument("path", type=Path, metavar="FILE|DIR", help="a kernel's file or folder, or a folder of them")
    add_device(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs; default: 0")
    parser.add_argument("--no-confirm", action="store_true", help="leave out the fresh processes")
    parser.add_argument(
        "--repeats", type=int, default=0, metavar="N", help="time the gate N times more, compiled; default: 0"
    )
    add_json(parser, "the verdicts")


def run(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError

    device = check_device(args.device)
    if args.repeats < 0:
        raise UserError(f"--repeats {args.repeats}: give 0 or more")
    records: list[dict[str, Any]] = []
    try:
        _validate_all(args, device, records)
    finally:
        if args.json:
            write_json(args.json, records)
    surprises = [record["kernel"] for record in records if not record["as_expected"]]
    shown = ", ".join(surprises[:5]) + (", ..." if len(surprises) > 5 else "")
    say(f"{len(records)} kernels: {f'{len(surprises)} not as expected: {shown}' if surprises else 'all as expected'}")
    return 2 if surprises else 0


def _validate_all(args: argparse.Namespace, device: str, records: list[dict[str, Any]]) -> None:
    from eval_harness.batch_invariance.kernel_folder import find_kernel_folders, validate_folder
    from eval_harness.batch_invariance.kernel_nursery import KernelNursery
    from eval_harness.batch_invariance.kernel_spec import load_kernel_spec
    from eval_harness.errors import HarnessError

    folders = find_kernel_folders(args.path)
    labels = [load_kernel_spec(folder).label for folder in folders]
    width = max(len(folder.name) for folder in folders)
    with nullcontext() if args.no_confirm else KernelNursery() as nursery:
        for folder, label in zip(folders, labels, strict=True):
            result = validate_folder(
                folder,
                device=device,
                seed=args.seed,
                confirm=not args.no_confirm,
                repeats=args.repeats,
                nursery=nursery,
            )
            as_expected = str(result.outcome) in EXPECTED.get(label, EXPECTED[None])
            records.append({"kernel": folder.name, "label": label, "as_expected": as_expected, **result.as_dict()})
            if args.json != "-":
                _print(folder.name, label, result, width, in_full=len(folders) == 1)
            if result.is_lost and folder != folders[-1]:
                raise HarnessError(f"{folder}: {result.message}; validate the other folders without it")


def _print(name: str, label: str | None, result: DynamicResult, width: int, *, in_full: bool) -> None:
    labelled = f" (label: {label})" if label else ""
    print(f"{name:<{width}}  {result.outcome}{labelled}, {result.num_contexts} batches, {result.warm_ms:.2f} ms")
    print(f"  {result.message}")
    if in_full and result.feedback:
        print(result.feedback)
