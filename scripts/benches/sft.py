"""Supervised training: our trainer beside TRL's plain script on the same rows, or the longest context that fits.

Both sides start from the same random weights, in fresh processes, one after the other, and train on the same rows in
the same order. The first steps are not timed: kernels are compiled and states made in them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from scripts.arguments import check_device, say
from scripts.benches.output import Target, machine_facts, render_table, report

HELP = "Tokens a second of SFT against TRL's plain script; --longest: the longest context that fits."

WARMUP_STEPS = 2
DEFAULT_TRAIN_TOKENS = 65536
"""Tokens an optimizer step at most, unless a row alone is longer; and at most 8 rows, TRL's default."""
MIN_RATIO, RATIO_LENGTH = 1.5, 8192
MAX_LOSS_DIFFERENCE = 0.02
"""Between the sides, at any step: bfloat16 rounds differently in different kernels."""
FIRST_TRY, FINENESS = 8192, 16
"""--longest begins there, doubles, and bisects down to that part of the answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", default="smollm2-135m", metavar="NAME|DIR",
        help="an architecture (smollm2-135m, qwen3-4b, qwen3-30b-a3b, tiny) with random weights, or a model's folder",
    )  # fmt: skip
    parser.add_argument("--lengths", default="8192", metavar="N,N", help="tokens of a row; default: 8192")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="timed steps of each side; default: 4")
    parser.add_argument("--train-batch", type=int, metavar="N", help="rows a step; default: 8, fewer of long rows")
    parser.add_argument(
        "--max-seconds", type=float, default=540, metavar="S", help="of the whole command; default: 540"
    )
    parser.add_argument("--side", choices=("both", "ours", "plain"), default="both", help="which to run; default: both")
    parser.add_argument(
        "--accelerate-config", type=Path, metavar="FILE", help="of our side; default: configs/accelerate/single.yaml"
    )
    parser.add_argument("--num-processes", type=int, metavar="N", help="instead of the file's number")
    parser.add_argument("--sp-size", type=int, metavar="N", help="processes that share a row, instead of the file's")
    parser.add_argument("--checkpointing", default="auto", help="auto, none, full or a number of layers; default: auto")
    parser.add_argument("--fused-ops", choices=("auto", "on", "off"), default="auto", help="default: auto")
    parser.add_argument(
        "--offload-activations", action="store_true", help="of checkpointed layers, to the CPU's memory"
    )
    parser.add_argument("--profile", action="store_true", help="one step more: where the time of the GPU goes")
    parser.add_argument("--longest", action="store_true", help="seek the longest row that fits, instead of the speed")
    parser.add_argument("--limit", type=int, default=1 << 21, metavar="N", help="--longest: do not go beyond this")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep models, rows and logs there")


def run(args: argparse.Namespace) -> int:
    from scripts.benches.sft_runs import Deadline

    device = check_device(args.device)
    if device.startswith("cuda:") and (args.num_processes or 1) == 1:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", device.partition(":")[2])
    default = "cpu" if device == "cpu" else "single"
    args.accelerate_config = args.accelerate_config or Path(f"configs/accelerate/{default}.yaml")
    args.lengths = _lengths(args.lengths)
    deadline = Deadline(args.max_seconds)
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sft-")))
        work = longest if args.longest else speed
        body, figures, targets = work(args, Path(folder), deadline, on_cpu=device == "cpu")
    return report(args, "sft", body=body, figures=figures, targets=targets, facts=machine_facts(device))


def speed(
    args: argparse.Namespace, folder: Path, deadline: Any, *, on_cpu: bool
) -> tuple[str, dict[str, Any], list[Target]]:
    """Both sides at each length."""
    from scripts.benches.sft_clock import SftSpec
    from scripts.benches.sft_runs import build_model, build_rows, run_ours, run_plain

    model_dir = build_model(args.model, folder / "model", max_positions=max(args.lengths), on_cuda=not on_cpu)
    vocabulary = _vocabulary(model_dir)
    rows: list[dict[str, Any]] = []
    for length in args.lengths:
        batch = args.train_batch or max(1, min(8, DEFAULT_TRAIN_TOKENS // length))
        num_steps = WARMUP_STEPS + args.steps
        num_rows = batch * (num_steps + args.profile)
        trained = build_rows(folder / "rows", length=length, num_rows=num_rows, vocabulary=vocabulary)
        spec = SftSpec(
            model_dir=model_dir, rows_dir=folder / "rows", out_dir=folder / "side", length=length, train_batch=batch,
            num_steps=num_steps, max_seconds=deadline.left_s / 3, on_cpu=on_cpu, fused_ops=args.fused_ops,
            checkpointing=_layers(args.checkpointing), offload_activations=args.offload_activations,
            profile=args.profile,
        )  # fmt: skip
        for side in ("plain", "ours") if args.side == "both" else (args.side,):
            say(f"{side}: {batch} rows of {length} tokens a step, {deadline.left_s:.0f} s left")
            outcome = (
                run_plain(spec, deadline)
                if side == "plain"
                else run_ours(spec, args.accelerate_config, deadline, num_processes=args.num_processes,
                              sp_size=args.sp_size)
            )  # fmt: skip
            row = {"length": length, "rows": batch, "side": side, "trained": trained / (num_rows * length)}
            rows.append(row | _figures(outcome, batch * length))
    table = render_table(
        ("length", "rows", "side", "tokens/s", "ms/step", "peak GiB", "planned", "first losses", "how"),
        [[r["length"], r["rows"], r["side"], r["tokens_per_s"], r["ms_per_step"], r["peak_gib"], r["planned_gib"],
          " ".join(f"{loss:.3f}" for loss in r["losses"][:4]), r["how"]] for r in rows],
    )  # fmt: skip
    compared = [_compare(rows, length) for length in args.lengths]
    ratios = render_table(
        ("length", "tokens/s over plain", "max |loss difference|"),
        [[c["length"], c["ratio"], c["loss_difference"]] for c in compared],
    )
    targets = _targets(compared, on_cpu=on_cpu) if args.side == "both" else []
    body = f"{args.model}, {rows[0]['trained']:.0%} of the tokens train\n{table}\n\n{ratios}{_profiles(rows)}"
    return body, {"model": args.model, "rows": rows, "compared": compared}, targets


def longest(
    args: argparse.Namespace, folder: Path, deadline: Any, *, on_cpu: bool
) -> tuple[str, dict[str, Any], list[Target]]:
    """Doubling, then bisection; a step with an update each time, attention in the last layer alone."""
    from scripts.benches.sft_clock import SftSpec
    from scripts.benches.sft_runs import build_model, build_rows, run_ours

    model_dir = build_model(args.model, folder / "model", max_positions=args.limit, on_cuda=not on_cpu)
    vocabulary = _vocabulary(model_dir)
    tries: list[dict[str, Any]] = []

    def fits(length: int) -> bool | None:
        """None: there was no time to know."""
        batch = _rows_in_parallel(args)
        build_rows(folder / "rows", length=length, num_rows=batch * 2, vocabulary=vocabulary)
        spec = SftSpec(
            model_dir=model_dir, rows_dir=folder / "rows", out_dir=folder / "side", length=length, train_batch=batch,
            micro_batch=1, num_steps=2, max_seconds=deadline.left_s, on_cpu=on_cpu, fused_ops=args.fused_ops,
            checkpointing="full", offload_activations=args.offload_activations, attention_layers=1,
        )  # fmt: skip
        outcome = run_ours(
            spec, args.accelerate_config, deadline, num_processes=args.num_processes, sp_size=args.sp_size
        )
        peak, planned = (outcome.result.peak_gib, outcome.result.planned_gib) if outcome.result else (None, None)
        tries.append({"length": length, "fits": outcome.result is not None, "reason": outcome.reason,
                      "peak_gib": peak, "planned_gib": planned})  # fmt: skip
        say(f"{length} tokens: {outcome.reason or f'fits, {peak:.1f} GiB'}; {deadline.left_s:.0f} s left")
        return None if outcome.reason == "no time left" else outcome.result is not None

    low, high, is_known = _search(fits, args.limit)
    table = render_table(
        ("length", "fits", "peak GiB", "planned GiB"),
        [[t["length"], "yes" if t["fits"] else t["reason"], t["peak_gib"], t["planned_gib"]] for t in tries],
    )
    known = "" if is_known else " (no time left to seek further)"
    above = f", {high} does not" if high is not None else ""
    body = f"{args.model}, {args.accelerate_config.stem}: {low} tokens fit{above}{known}\n{table}"
    return body, {"model": args.model, "longest": low, "too_long": high, "tries": tries}, []


def _search(fits: Any, limit: int) -> tuple[int, int | None, bool]:
    """(longest that fits, shortest known not to, whether the search came to its end)."""
    low, high, length = 0, None, min(FIRST_TRY, limit)
    while True:
        answer = fits(length)
        if answer is None:
            return low, high, False
        low, high = (length, high) if answer else (low, length)
        if high is None:
            if low >= limit:
                return low, None, True
            length = min(2 * low, limit)
            continue
        step = max(1024, high // FINENESS // 1024 * 1024)
        length = (low + high) // 2 // 1024 * 1024
        if high - low <= step or length in (low, high):
            return low, high, True


def _figures(outcome: Any, tokens: int) -> dict[str, Any]:
    result = outcome.result
    timed = result.step_s[WARMUP_STEPS:] if result else []
    seconds = statistics.median(timed) if timed else None
    return {
        "tokens_per_s": tokens / seconds if seconds else None,
        "ms_per_step": 1e3 * seconds if seconds else None,
        "peak_gib": result.peak_gib if result else None,
        "planned_gib": result.planned_gib if result else None,
        "losses": result.losses if result else [],
        "step_s": result.step_s if result else [],
        "how": result.choices if result else outcome.reason,
        "profile": result.profile.model_dump() if result and result.profile else None,
    }


def _profiles(rows: list[dict[str, Any]]) -> str:
    """Of the rows that were profiled: milliseconds by group, then the longest kernels."""
    body = ""
    for row in rows:
        if row["profile"]:
            groups = sorted(row["profile"]["groups"].items(), key=lambda item: -item[1])
            busy = sum(row["profile"]["groups"].values())
            lines = [[f"all {name}", ms, ms / busy, ""] for name, ms in groups]
            lines += [[name[:80], ms, ms / busy, count] for name, ms, count in row["profile"]["kernels"]]
            table = render_table(("work of one step", "ms", "share", "launches"), lines)
            step = f"{busy:.0f} ms of work in a step of {row['ms_per_step']:.0f}"
            title = f"{row['side']} at {row['length']} tokens: {step}"
            body += f"\n\n{title}\n{table}"
    return body


def _compare(rows: list[dict[str, Any]], length: int) -> dict[str, Any]:
    sides = {row["side"]: row for row in rows if row["length"] == length}
    ours, plain = (sides.get(side, {}) for side in ("ours", "plain"))
    speeds = ours.get("tokens_per_s"), plain.get("tokens_per_s")
    losses = list(zip(ours.get("losses", []), plain.get("losses", []), strict=False))
    return {
        "length": length,
        "ratio": speeds[0] / speeds[1] if speeds[0] and speeds[1] else None,
        "loss_difference": max((abs(left - right) for left, right in losses), default=None),
    }


def _targets(compared: list[dict[str, Any]], *, on_cpu: bool) -> list[Target]:
    targets = [
        Target(f"{c['length']} tokens: max |loss - plain's|", c["loss_difference"], MAX_LOSS_DIFFERENCE, "at most")
        for c in compared
    ]
    if not on_cpu:  # the target is a GPU's
        targets += [
            Target(f"{c['length']} tokens: tokens/s over plain TRL", c["ratio"], MIN_RATIO, "at least")
            for c in compared
            if c["length"] == RATIO_LENGTH
        ]
    return targets


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 16:
        raise UserError(f"--lengths {text}: give numbers of tokens from 16, for example 8192,32768")
    return lengths


def _layers(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _vocabulary(model_dir: Path) -> int:
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model_dir).get_text_config().vocab_size)


def _rows_in_parallel(args: argparse.Namespace) -> int:
    from scripts.config_loading import find_shipped
    from training.sft_launch import launch_from_file

    changed = {"num_processes": args.num_processes, "sp_size": args.sp_size}
    changed = {key: value for key, value in changed.items() if value is not None}
    return launch_from_file(find_shipped(args.accelerate_config), **changed).data_parallel
