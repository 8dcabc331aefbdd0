"""`passwright bi audit DIR`: released kernels by source, with evidence classes (BIEvolve's Tables 1 and A1)."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import add_device, add_json, check_device, say, write_json

if TYPE_CHECKING:
    from eval_harness.batch_invariance.audit import Artifact, AuditRow
    from eval_harness.batch_invariance.registry import ContractRegistry

HELP = "released kernels in a folder: which follow their batch, by source, with evidence classes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR", help="a folder a source, with kernel folders or source files")
    parser.add_argument("--family", metavar="F", help="contract of what names none; default: the global one")
    parser.add_argument(
        "--run", action="store_true", dest="execute",
        help="run the folders with a kernel.json, as this user and unconfined: only what you trust",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes with --run; default: 2")
    add_device(parser)
    add_json(parser, "both tables")


def run(args: argparse.Namespace) -> int:
    from eval_harness.batch_invariance.audit import by_source, find_artifacts
    from eval_harness.batch_invariance.registry import ContractRegistry
    from eval_harness.errors import UserError

    device = check_device(args.device)
    if not args.dir.is_dir():
        raise UserError(f"{args.dir}: no such folder; give one that holds kernels")
    artifacts = find_artifacts(args.dir)
    if not artifacts:
        raise UserError(f"{args.dir}: no source file (.py, .cu, .cuh, .cpp, .cc) below it")
    registry = ContractRegistry.shipped()
    rows = [look_at(artifact, args.family, registry) for artifact in artifacts]
    runnable = [artifact.name for artifact in artifacts if artifact.folder is not None]
    if args.execute and runnable:
        from scripts.benches.bi_runs import measure_dynamic

        found = measure_dynamic(args.dir, runnable, device, jobs=args.jobs, confirm=True, timed=False)
        for row in rows:
            if row.name in found:
                row.dynamic, row.message = found[row.name]["dynamic"], found[row.name]["dynamic_message"]
    elif runnable:
        say(f"{len(runnable)} artifacts could be run: --run confirms what the static rules only suspect")
    sources = by_source(rows)
    if args.json != "-":
        print(render(rows))
    if args.json:
        write_json(args.json, {"by_source": [asdict(line) for line in sources], "artifacts": [asdict(r) for r in rows]})
    return 0


def look_at(artifact: Artifact, family: str | None, registry: ContractRegistry) -> AuditRow:
    """The static rules over one artifact."""
    from eval_harness.batch_invariance.audit import AuditRow
    from eval_harness.batch_invariance.kernel_files import read_sources
    from eval_harness.batch_invariance.static import analyze_all

    if artifact.folder is not None:
        from eval_harness.batch_invariance.kernel_spec import load_kernel_spec

        family = load_kernel_spec(artifact.folder).family
    root = Path(os.path.commonpath([path.parent for path in artifact.files]))
    analysis = analyze_all(read_sources(artifact.files, root), registry.for_family(family))
    return AuditRow(
        artifact.source,
        artifact.name,
        [f"{f.file}:{f.line}: {f.mechanism}: {f.parameter}" for f in analysis.findings],
        sorted({str(f.mechanism) for f in analysis.findings}),
        len(analysis.unresolved),
    )


def render(rows: list[AuditRow]) -> str:
    """Table 1, then Table A1: artifacts with a risk, a verdict, or neither."""
    from eval_harness.batch_invariance.audit import by_source
    from scripts.benches.output import render_table

    first = render_table(
        ("source", "artifacts", "with a batch", "at risk", "confirmed", "% confirmed", "evidence"),
        [
            [line.source, line.num_artifacts, line.num_applicable, line.num_at_risk, line.num_confirmed,
             None if line.confirmed_share is None else 100 * line.confirmed_share, str(line.evidence)]
            for line in by_source(rows)
        ],
    )  # fmt: skip
    second = render_table(
        ("artifact", "evidence", "mechanisms", "run", "first finding"),
        [
            [row.name, str(row.evidence), ", ".join(row.mechanisms) or "-", row.dynamic or "not run",
             row.findings[0] if row.findings else "-"]
            for row in rows
        ],
    )  # fmt: skip
    return f"{first}\n\n{second}"
