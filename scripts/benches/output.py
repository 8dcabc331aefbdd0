"""What the measurements print: tables, targets with what was measured beside them, and the machine that it was on.

stdout holds the result, stderr the progress; with `--json -` stdout is the record alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from scripts.arguments import say, write_json
from scripts.exit_status import DONE, TARGET_MISSED


@dataclasses.dataclass(frozen=True)
class Target:
    """A figure that is promised, with what was measured."""

    name: str
    """What is measured, with its unit, such as "A/A intervals that cover 1"."""
    measured: float | None
    """None when nothing could be measured: the target is missed."""
    bound: float
    kind: Literal["at least", "at most"]

    @property
    def is_met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.kind == "at least" else self.measured <= self.bound

    @property
    def line(self) -> str:
        """For a reader: "met     detection rate: 1 (target at least 1)", or missed and by how much."""
        if self.measured is None:
            return f"MISSED  {self.name}: not measured (target {self.kind} {self.bound:.4g})"
        short = "" if self.is_met else f", missed by {abs(self.measured - self.bound):.4g}"
        mark = "met   " if self.is_met else "MISSED"
        return f"{mark}  {self.name}: {self.measured:.4g} (target {self.kind} {self.bound:.4g}{short})"

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"is_met": self.is_met}


def render_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, numbers to the right, None as "-"; floats with 4 significant digits."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(header)), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine_facts(device: str, confinement: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What stands beside every figure: machine, versions, and the confinement layers.

    confinement: as a verdict of the same run records it; None probes the layers here.
    """
    from eval_harness.machine import describe_machine, describe_versions

    if confinement is None:
        from eval_harness.candidate_process.confinement import probe_layers

        confinement = probe_layers()
    return {
        "machine": describe_machine(device),
        "versions": describe_versions(),
        "confinement": dict(confinement),
    }


def render_facts(facts: Mapping[str, Any]) -> str:
    """machine_facts on a few lines."""
    off = [layer for layer, state in facts["confinement"].items() if state != "on"]
    layers = f"without {', '.join(off)}" if off else "every layer on"
    return "\n".join(
        [
            "machine: " + ", ".join(f"{key} {value}" for key, value in facts["machine"].items() if value is not None),
            "versions: " + ", ".join(f"{key} {value}" for key, value in facts["versions"].items()),
            f"confinement: {layers}",
        ]
    )


def report(
    args: argparse.Namespace,
    name: str,
    *,
    body: str,
    figures: Mapping[str, Any],
    targets: Sequence[Target],
    facts: Mapping[str, Any],
) -> int:
    """Print body, targets and facts, write the record where --json and --out ask for it; returns the exit status.

    body: the tables, for a reader. figures: the same as JSON. 4 when a target is missed, each on a line of stderr.
    """
    text = "\n".join([body.rstrip(), "", *(target.line for target in targets), render_facts(facts)]) + "\n"
    record = {
        "bench": name,
        "device": args.device,
        "figures": dict(figures),
        "targets": [target.as_dict() for target in targets],
        **facts,
    }
    (sys.stderr if args.json == "-" else sys.stdout).write(text)
    if args.json:
        write_json(args.json, record)
    if args.out:
        write_json(args.out / f"{name}.json", record)
        Path(args.out / f"{name}.txt").write_text(text)
    missed = [target for target in targets if not target.is_met]
    for target in missed:
        say(f"bench {name}: {' '.join(target.line.split())}")
    return TARGET_MISSED if missed else DONE
