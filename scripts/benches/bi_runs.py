"""One kernel through the static rules; many through the dynamic validator, in processes of their own.

Two rounds: first every process compiles and validates its kernels side by side, then one after the other times its own,
so that nothing else runs on the device.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.arguments import say

STATIC_REPEATS = 5
DYNAMIC_REPEATS = 10
KERNEL_TIMEOUT_S = 300.0
SLICE = 64
"""Kernels that are validated side by side before they are timed one after the other."""


class DynamicRows:
    """What the validator said of kernels on a kind of device: a line of JSON each, kept in a file if one is given.

    A row counts again for the same text of the kernel's files on the same kind of device.
    """

    def __init__(self, path: Path | None, device: str) -> None:
        self._path = path
        self._device = device_kind(device)
        self._rows: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                if line.endswith("}"):  # the last one may be torn
                    row = json.loads(line)
                    self._rows[row.pop("key")] = row

    def get(self, folder: Path) -> dict[str, Any] | None:
        return self._rows.get(self._key(folder))

    def add(self, found: dict[Path, dict[str, Any]]) -> None:
        lines = []
        for folder, row in found.items():
            self._rows[self._key(folder)] = row
            lines.append(json.dumps({"key": self._key(folder), **row}) + "\n")
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write("".join(lines))

    def _key(self, folder: Path) -> str:
        from eval_harness.batch_invariance.kernel_files import SPEC_FILE, read_sources, source_files

        texts = read_sources(source_files(folder), folder) | {SPEC_FILE: (folder / SPEC_FILE).read_text()}
        digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
        return f"{folder.name} {digest} {self._device}"


def compiles_long(folder: Path) -> bool:
    from eval_harness.batch_invariance.kernel_spec import load_kernel_spec

    return load_kernel_spec(folder).compile_s == "long"


def device_kind(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def measure_static(folder: Path, family: str | None) -> dict[str, Any]:
    """Findings, and the median milliseconds of an analysis."""
    from eval_harness.batch_invariance.kernel_files import read_sources, source_files
    from eval_harness.batch_invariance.registry import ContractRegistry
    from eval_harness.batch_invariance.static import analyze_all

    contract = ContractRegistry.shipped().for_family(family)
    sources = read_sources(source_files(folder), folder)
    spent = []
    for _ in range(STATIC_REPEATS):
        started = time.perf_counter()
        analysis = analyze_all(sources, contract)
        spent.append(1e3 * (time.perf_counter() - started))
    return {
        "static": bool(analysis.findings),
        "static_ms": round(statistics.median(spent), 4),
        "findings": [f"{f.file}:{f.line}: {f.mechanism}: {f.parameter}" for f in analysis.findings],
        "unresolved": len(analysis.unresolved),
    }


def measure_dynamic(
    pool: Path, names: Sequence[str], device: str, *, jobs: int, confirm: bool, timed: bool = True
) -> dict[str, dict[str, Any]]:
    """Kernel -> "dynamic" (outcome), "dynamic_ms" (None unless timed), "dynamic_message", "compile_s"."""
    chunks = [list(names[start::jobs]) for start in range(jobs)]
    workers = [_Workers(pool, chunk, device, confirm=confirm) for chunk in chunks if chunk]
    threads = [threading.Thread(target=worker.validate) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: dict[str, dict[str, Any]] = {}
    for worker in workers:
        worker.time(timed=timed)
        found |= worker.found
    return found


class _Workers:
    """The processes of one chunk, one after the other: a kernel that kills its process costs only itself."""

    def __init__(self, pool: Path, names: list[str], device: str, *, confirm: bool) -> None:
        self.pool, self.names, self.device, self.confirm = pool, names, device, confirm
        self.found: dict[str, dict[str, Any]] = {}
        self._process: subprocess.Popen[str] | None = None

    def validate(self) -> None:
        """Outcomes; the last process stays for the timings."""
        left = list(self.names)
        while left:
            self._start(left)
            at = self._read("validated", left)
            if at is not None:
                self.found[at] = _lost("its process died or hung")
            left = [name for name in left if name not in self.found]

    def time(self, *, timed: bool) -> None:
        """Milliseconds of what has a verdict, if timed; then the process ends."""
        assert self._process is not None and self._process.stdin is not None
        settled = [name for name in self.names if self.found[name]["dynamic"] in ("variant", "invariant")]
        wanted = settled if timed else []
        if self._process.poll() is not None:
            self._start([])
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        self._read("timed", wanted)
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _start(self, names: Sequence[str]) -> None:
        command = [sys.executable, "-m", "scripts.benches.bi_runs", *(["--confirm"] if self.confirm else [])]
        command += [str(self.pool), self.device]
        self._process = subprocess.Popen(
            [*command, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # many processes draw their inputs side by side
        )

    def _read(self, what: str, names: Sequence[str]) -> str | None:
        """Keep answers until all are there; the kernel at which the process ended, or None."""
        process = self._process
        assert process is not None and process.stdout is not None
        for name in names:
            alarm = threading.Timer(KERNEL_TIMEOUT_S, process.kill)
            alarm.start()
            line = process.stdout.readline()
            while line and not line.startswith("{"):  # what a compiler prints
                line = process.stdout.readline()
            alarm.cancel()
            if not line:
                return name
            self.found[name] = self.found.get(name, {}) | json.loads(line)
            if what == "validated":
                say(f"{name}: {self.found[name]['dynamic']}")
        return None


def _lost(why: str) -> dict[str, Any]:
    return {"dynamic": "not applicable", "dynamic_ms": None, "dynamic_message": why, "compile_s": None}


def _worker() -> None:
    """A line of JSON a kernel; then, for each name of a list on stdin, a line with its milliseconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pool", type=Path)
    parser.add_argument("device")
    parser.add_argument("--confirm", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    import torch

    from eval_harness.batch_invariance.kernel_folder import validate_folder

    torch.set_grad_enabled(False)
    for name in args.names:
        started = time.monotonic()
        result = validate_folder(args.pool / name, device=args.device, confirm=args.confirm)
        answer = {
            "dynamic": str(result.outcome),
            "dynamic_ms": None,
            "dynamic_message": result.message[:300],
            "confirmed": result.confirmed,
            "compile_s": round(time.monotonic() - started, 2),
        }
        print(json.dumps(answer), flush=True)
    for name in json.loads(sys.stdin.readline() or "[]"):
        result = validate_folder(args.pool / name, device=args.device, confirm=False, repeats=DYNAMIC_REPEATS)
        print(json.dumps({"dynamic_ms": round(result.warm_ms, 4)}), flush=True)


if __name__ == "__main__":
    _worker()
