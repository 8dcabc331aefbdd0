"""`passwright bench integrity`: the corpus of cheats and the honest passes through whole evaluations.

    every cheat -> all layers on -> who caught it first -> the same with that layer off -> who else, or is it a gain
    every honest pass -> CORRECT, and no alarm

A cheat is stopped when it ends in a violation, a wrong outcome, or no gain over an honest pass (integrity_runs.py).
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import check_device, say

if TYPE_CHECKING:
    from eval_harness.executor import Evaluator
    from scripts.benches.corpus import Entry
    from scripts.benches.integrity_runs import Run

HELP = "Which layer catches which cheat, what is left without it, and false alarms on honest passes."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, default=Path("tests/exploits"), metavar="DIR", help="the cheats")
    parser.add_argument("--honest", type=Path, default=Path("tests/honest"), metavar="DIR", help="the honest passes")
    parser.add_argument("--only", default="*", metavar="GLOB", help="entries of both whose names match")
    parser.add_argument("--quick", action="store_true", help="shortest timings, and no runs with a layer off")


def run(args: argparse.Namespace) -> int:
    from eval_harness.executor import LocalExecutor
    from scripts.benches.corpus import EXPLOIT_FILE, HONEST_FILE, load_corpus
    from scripts.benches.integrity_tables import render, summarise, targets
    from scripts.benches.output import machine_facts, report

    device = check_device(args.device)
    cheats = [entry for entry in load_corpus(args.corpus, EXPLOIT_FILE, only=args.only) if entry.runs_on(device)]
    everyone = [entry for entry in load_corpus(args.honest, HONEST_FILE) if entry.runs_on(device)]
    honest = [entry for entry in everyone if fnmatch.fnmatch(entry.name, args.only)]
    say(f"bench integrity: {len(cheats)} cheats and {len(honest)} honest passes on {device}")
    started = time.monotonic()
    with LocalExecutor(device) as executor:
        figures, confinement = _measure(executor, cheats, honest, everyone, quick=args.quick)
    figures |= {"source_rules_ms": _source_milliseconds([*cheats, *honest]), "seconds": time.monotonic() - started}
    figures |= summarise(figures)
    return report(
        args,
        "integrity",
        body=render(figures),
        figures=figures,
        targets=targets(figures),
        facts=machine_facts(device, confinement or None),
    )


def _measure(
    executor: Evaluator, cheats: Sequence[Entry], honest: Sequence[Entry], everyone: Sequence[Entry], *, quick: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    from scripts.benches.integrity_runs import LAYERS, Evaluations

    yardsticks = [entry for entry in everyone if entry.record.get("yardstick")]
    evaluations = Evaluations(executor, yardsticks, quick=quick)
    evaluations.warm_up()
    rows, clean = [], []
    for number, entry in enumerate(cheats, 1):
        first = evaluations.run(entry)
        without = None
        if not quick and first.caught_by in LAYERS:
            without = evaluations.run(entry, disabled=first.caught_by)
        rows.append(_row(entry, first, without))
        say(f"[{number}/{len(cheats)}] {entry.name}: {_told(first)}" + (f"; {_told(without)}" if without else ""))
    for number, entry in enumerate(honest, 1):
        ended = evaluations.run(entry)
        clean.append({"name": entry.name, "what": entry.record["what"], **ended.as_dict()})
        say(f"[{number}/{len(honest)}] honest {entry.name}: {', '.join(ended.outcomes) or ended.message}")
    return {"cheats": rows, "honest": clean}, evaluations.confinement


def _row(entry: Entry, first: Run, without: Run | None) -> dict[str, Any]:
    record = entry.record
    return {
        "name": entry.name,
        "rows": record.get("rows", []),
        "tries": record.get("tries", ""),
        **first.as_dict(),
        "as_expected": bool(first.outcomes) and set(first.outcomes) <= set(record.get("expected", first.outcomes)),
        "without": without.as_dict() if without else None,
    }


def _told(run: Run) -> str:
    head = f"without {run.disabled}: " if run.disabled else ""
    detail = run.rule or run.caught_by or run.message
    return f"{head}{run.ends} ({detail}, {run.seconds:.1f} s)"


def _source_milliseconds(entries: Sequence[Entry]) -> float | None:
    """Median time of the source rules over a folder."""
    from eval_harness.source_rules import check_sources, syntax_error

    spent = []
    for entry in entries:
        if syntax_error(entry.candidate) is None:
            started = time.perf_counter()
            check_sources(entry.candidate)
            spent.append(1e3 * (time.perf_counter() - started))
    return round(statistics.median(spent), 3) if spent else None
