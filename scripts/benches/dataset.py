"""`passwright bench dataset`: is a dataset built from 10,000 long trajectories in minutes, without holding them?

Records of 100 kB are made from one that the built-in expert really collected (dataset_records.py; not timed), then
`passwright dataset build` runs over them as a user runs it, in a process of its own. Memory is the sum over that
process and all that it starts, so pages that they share count more than once.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from scripts.arguments import say
from scripts.benches.dataset_records import Planted, collect_one, load_one, write_records
from scripts.benches.output import Target, machine_facts, render_table, report

HELP = "Build a dataset from 10,000 trajectories of 100 kB: seconds, memory, rows a second."

MAX_SECONDS = 300.0
MAX_MIB = 4096.0
_SAMPLE_S = 0.1
_STDERR = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--kb", type=int, default=100, metavar="N", help="of each, in kB; default: 100")
    parser.add_argument(
        "--collection", type=Path, metavar="DIR", help="take its longest record; default: collect one with the expert"
    )
    parser.add_argument("--tokenizer", metavar="NAME", help="count tokens with it too; default: not counted")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one a core")


def run(args: argparse.Namespace) -> int:
    if args.records < 20:
        raise UserError(f"--records {args.records}: give 20 or more, for every kind of record that is planted")
    figures, planted = measure(args)
    rows = [[name, value] for name, value in figures.items()]
    targets = [
        Target("seconds of the build", figures["seconds"], MAX_SECONDS, "at most"),
        Target("peak memory of its processes in MiB", figures["peak_rss_mib"], MAX_MIB, "at most"),
        Target("rows more or less than planted", abs(figures["rows"] - planted.num_good), 0, "at most"),
        Target("records refused for another reason than planted", figures["refused_otherwise"], 0, "at most"),
    ]
    body = f"{args.records} records of {args.kb} kB, a tokenizer: {args.tokenizer or 'none'}\n"
    body += render_table(("figure", "value"), rows)
    return report(args, "dataset", body=body, figures=figures, targets=targets, facts=machine_facts("cpu"))


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], Planted]:
    """One build; its figures, and what should have come of it."""
    with tempfile.TemporaryDirectory(prefix="bench-dataset-") as name:
        folder = Path(name)
        real = load_one(args.collection) if args.collection else collect_one(folder / "real")
        say(f"bench dataset: makes {args.records} records from {real.trajectory_id} (not timed)")
        planted = write_records(real, folder / "many", args.records, args.kb * 1000)
        command = [sys.executable, "-m", "scripts.cli", "dataset", "build", "--collection", str(folder / "many")]
        command += ["--out", str(folder / "out"), "--json", str(folder / "summary.json")]
        # the record of --collection may be an attempt at a task that shares something with the evaluation's
        command += ["contamination=report"]
        command += [f"tokenizer={args.tokenizer}"] if args.tokenizer else []
        command += [f"num_workers={args.workers}"] if args.workers else []
        say("bench dataset: builds")
        start, cpu = time.monotonic(), _children_cpu_s()
        # the build's own summary goes to stderr: stdout is for the figures
        build = subprocess.Popen(command, stdout=_STDERR)
        peak = TreeMemory(build.pid)
        status = build.wait()
        seconds, cpu_s, peak_kib = time.monotonic() - start, _children_cpu_s() - cpu, peak.stop()
        if status:
            raise UserError(f"the build ended with exit status {status}, see above")
        summary = json.loads((folder / "summary.json").read_text())
        size = sum(path.stat().st_size for path in (folder / "out" / "data").iterdir())
    found = summary["refusals"]
    refused_otherwise = sum(
        abs(found.get(reason, 0) - planted.refusals.get(reason, 0)) for reason in {*found, *planted.refusals}
    )
    return {
        "records": args.records,
        "record_kb": round(planted.num_bytes / args.records / 1000, 1),
        "rows": summary["num_rows"],
        "refused": sum(found.values()),
        "refused_otherwise": refused_otherwise,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_s, 1),
        "records_per_s": round(args.records / seconds, 1),
        "read_mb_per_s": round(planted.num_bytes / seconds / 1e6, 1),
        "peak_rss_mib": round(peak_kib / 1024, 1),
        "dataset_mb": round(size / 1e6, 1),
        "files": len(summary["files"]),
        "tokens": (summary["lengths"] or {}).get("num_tokens"),
    }, planted


class TreeMemory:
    """The highest sum of resident memory of a process and its descendants, sampled until stop()."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak_kib = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """KiB."""
        self._stopped.set()
        self._thread.join()
        return self._peak_kib

    def _watch(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self._peak_kib = max(self._peak_kib, _tree_kib(self._pid))


def _children_cpu_s() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree_kib(root: int) -> int:
    """Resident memory of a process and its descendants; those that end meanwhile count nothing."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        pid = int(fields["Pid"])
        parents[pid], sizes[pid] = int(fields["PPid"]), int(fields.get("VmRSS", "0 kB").split()[0])
    tree, added = {root}, True
    while added:
        children = {pid for pid, parent in parents.items() if parent in tree and pid not in tree}
        tree, added = tree | children, bool(children)
    return sum(sizes.get(pid, 0) for pid in tree)
