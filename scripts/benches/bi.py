"""`passwright bench bi`: the labelled pool of kernels through the static rules and the dynamic validator.

    every kernel -> static findings, timed -> batches in a process of its own -> detected or rejected, by whom, how fast

Counted as BIEvolve does: "both" exits early, so a kernel with a static finding costs its static time alone, and a
dynamic time is launches and waits after 3 warm-ups, the median of 10 repetitions. Labels are those that brute force
confirmed (tests/bi_pool/labels.json); what it could not classify is left out, and code that follows the batch without
changing bits ("harmless") is reported apart.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import time
from pathlib import Path
from typing import Any

from scripts.arguments import check_device, say

HELP = "Detection and false rejection of batch-variant kernels: static, dynamic, both; milliseconds a kernel."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", type=Path, default=Path("tests/bi_pool"), metavar="DIR", help="kernel folders")
    parser.add_argument("--only", default="*", metavar="GLOB", help="kernels whose names match")
    parser.add_argument("--static-only", action="store_true", help="run no kernel")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="processes that compile kernels; default: 4")
    parser.add_argument("--confirm", action="store_true", help="confirm survivors in fresh processes; takes minutes")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="rows of an earlier run that was cut off; new ones are appended"
    )
    parser.add_argument("--max-seconds", type=float, metavar="S", help="begin no further kernels then")


def run(args: argparse.Namespace) -> int:
    from scripts.benches.bi_runs import SLICE, DynamicRows, compiles_long, measure_dynamic, measure_static
    from scripts.benches.bi_tables import render, summarise, targets
    from scripts.benches.output import machine_facts, report

    device = check_device(args.device)
    started = time.monotonic()
    rows = load_rows(args.pool, args.only)
    say(f"bench bi: {len(rows)} kernels on {device}")
    for row in rows:
        row |= measure_static(args.pool / row["name"], row["family"])
    if not args.static_only:
        known = DynamicRows(args.resume, device)
        names = [row["name"] for row in rows if known.get(args.pool / row["name"]) is None]
        names.sort(key=lambda name: compiles_long(args.pool / name))
        # slice by slice, so that a run that is cut off has timed what it has validated; C++ last, a minute a kernel
        for start in range(0, len(names), SLICE):
            if args.max_seconds is not None and time.monotonic() - started > args.max_seconds:
                break
            part = names[start : start + SLICE]
            found = measure_dynamic(args.pool, part, device, jobs=args.jobs, confirm=args.confirm)
            known.add({args.pool / name: found[name] for name in part})
        for row in rows:
            row |= known.get(args.pool / row["name"]) or {}
        not_run = [row["name"] for row in rows if "dynamic" not in row]
        if not_run:
            say(f"bench bi: {len(not_run)} kernels were not run and are left out; go on with --resume FILE")
            rows = [row for row in rows if "dynamic" in row]
    figures = summarise(rows) | {"kernels": rows, "wall_s": round(time.monotonic() - started, 1)}
    return report(
        args,
        "bi",
        body=render(figures),
        figures=figures,
        targets=targets(figures, device),
        facts=machine_facts(device, {"any layer": "kernels of the pool are trusted"}),
    )


def load_rows(pool: Path, only: str) -> list[dict[str, Any]]:
    """Name, family, mechanism and label of each kernel. Raises UserError where there is none."""
    from eval_harness.batch_invariance.kernel_folder import find_kernel_folders
    from eval_harness.batch_invariance.kernel_spec import load_kernel_spec
    from eval_harness.errors import UserError

    labels_file = pool / "labels.json"
    confirmed = json.loads(labels_file.read_text())["labels"] if labels_file.is_file() else {}
    rows = []
    for folder in find_kernel_folders(pool):
        if fnmatch.fnmatch(folder.name, only):
            spec = load_kernel_spec(folder)
            label = confirmed.get(folder.name, spec.label)
            if spec.label == "harmless" and label == "invariant":
                label = "harmless"
            mechanism = str(spec.mechanism) if spec.mechanism else None
            rows.append({"name": folder.name, "family": spec.family, "mechanism": mechanism, "label": label})
    if not rows:
        raise UserError(f"{pool}: no kernel matches {only!r}; give another --only or --pool")
    return rows
