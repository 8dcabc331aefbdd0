"""`passwright doctor`: what this machine has, what it lacks, and what to do about each missing thing.

Exit status 3 where something needed is missing: this machine cannot evaluate.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from scripts.arguments import add_json, check_device, write_json
from scripts.exit_status import DONE, OUR_FAILURE

if TYPE_CHECKING:
    from scripts.doctor_checks import Finding

HELP = "Say what this machine has and lacks, and what to do about it."
NOISE_SECONDS = 8.0
"""Of A/A timing, beside the seconds in which the judge's processes start."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="cpu|cuda[:i]", help="what to look at; default: a GPU if torch can use one")
    parser.add_argument("--quick", action="store_true", help="do not measure the timing noise (about half a minute)")
    add_json(parser, "the findings and the facts behind them")


def run(args: argparse.Namespace) -> int:
    from scripts.doctor_checks import default_device, examine_machine

    device = check_device(args.device) if args.device else default_device()
    examination = examine_machine(device, noise_seconds=None if args.quick else NOISE_SECONDS)
    if args.json:
        write_json(args.json, examination.as_dict())
    if args.json != "-":
        print(render_findings(examination.findings))
    return DONE if examination.is_usable else OUR_FAILURE


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

