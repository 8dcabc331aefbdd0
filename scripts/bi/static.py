"""`passwright bi static FILES`: which protected parameters of kernels follow their batch, read from the text alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.arguments import add_json, say, write_json
from scripts.exit_status import DONE, TARGET_MISSED

if TYPE_CHECKING:
    from eval_harness.batch_invariance.static import Analysis

HELP = "read kernels (.py, .cu, .cuh, .cpp) and tell what follows the batch; exit status 4 if something does"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="source files that belong together")
    parser.add_argument("--family", metavar="F", help="the contract, such as attention.decode; default: the global one")
    add_json(parser, "the findings")


def run(args: argparse.Namespace) -> int:
    from eval_harness.batch_invariance.registry import ContractRegistry
    from eval_harness.batch_invariance.static import analyze_all

    registry = ContractRegistry.shipped()
    analysis = analyze_all(read_files(args.files), registry.for_family(args.family))
    if args.json:
        write_json(args.json, as_dict(analysis, registry.name_for(args.family)))
    if args.json != "-":
        print(render(analysis))
    found, left = len(analysis.findings), len(analysis.unresolved)
    say(f"contract {registry.name_for(args.family)}: {found} findings, {left} places that only running it can decide")
    return TARGET_MISSED if analysis.findings else DONE


def read_files(paths: list[Path]) -> dict[str, str]:
    """Name -> text; names are paths below the folder that all files share. Raises UserError naming the file."""
    from eval_harness.errors import UserError

    texts = {}
    for path in paths:
        try:
            texts[path] = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except IsADirectoryError:
            raise UserError(f"{path}: a folder; give its files, or use `passwright bi audit`") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8 text; give source files") from None
    if len({path.name for path in texts}) == len(texts):
        return {path.name: text for path, text in texts.items()}
    return {str(path): text for path, text in texts.items()}


def as_dict(analysis: Analysis, contract: str) -> dict[str, object]:
    """For JSON."""
    return {
        "contract": contract,
        "findings": [finding.as_dict() for finding in analysis.findings],
        "unresolved": [{"file": u.file, "line": u.line, "reason": u.reason} for u in analysis.unresolved],
    }


def render(analysis: Analysis) -> str:
    """A block a finding: where, what, the path from the batch to it, the cure; then what was left undecided."""
    lines: list[str] = []
    for finding in analysis.findings:
        lines.append(f"{finding.file}:{finding.line}: {finding.mechanism}: {finding.parameter}")
        lines.append(f"  {finding.message}")
        lines += [f"    {step.file}:{step.line}: {step.text}" for step in finding.path]
        lines += [f"  {finding.repair}", ""]
    lines += [f"{left.file}:{left.line}: undecided: {left.reason}" for left in analysis.unresolved]
    return "\n".join(lines) if lines else "nothing follows the batch"
