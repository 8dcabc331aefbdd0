"""`passwright doctor`: what this machine has, what it lacks, and what to do about each missing thing."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from scripts.arguments import add_json, write_json

if TYPE_CHECKING:
    from scripts.doctor_checks import Finding

HELP = "Say what this machine has and lacks, and what to do about it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "the findings")


def run(args: argparse.Namespace) -> int:
    from scripts.doctor_checks import check_machine

    findings = check_machine()
    if args.json:
        write_json(args.json, [finding.as_dict() for finding in findings])
    if args.json != "-":
        print(render_findings(findings))
    return 0


def render_findings(findings: list[Finding]) -> str:
    """One line a finding, with its cure below it."""
    width = max(len(finding.name) for finding in findings)
    columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 1_000
    lines = []
    for finding in findings:
        lines.append(f"{finding.mark:<8} {finding.name:<{width}}  {finding.value}"[:columns])
        if finding.cure:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.cure}")
    missing = sum(finding.mark == "MISSING" for finding in findings)
    lines.append(f"{missing} needed things are missing" if missing else "everything that the quickstart needs is here")
    return "\n".join(lines)

