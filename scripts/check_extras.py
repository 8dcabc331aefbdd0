"""Does each extra of pyproject.toml resolve? `python -m scripts.check_extras [EXTRA ...]`, by pip's own dry run.

Nothing is installed. Each extra resolves by itself, without this environment's packages, against the constraint file of
the machine kind it is for. Takes minutes (pip reads the metadata of large wheels), so it is not part of `make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CPU, CUDA = "constraints/cpu.txt", "constraints/cuda.txt"
CONSTRAINTS = {"serve": CUDA, "cluster": CUDA, "triton": CUDA, "timm": CUDA}
"""Extras that are for a GPU machine; the others are resolved for the CPU one."""

TIMEOUT_S = 900.0


def resolve(extra: str) -> tuple[bool, str]:
    """Whether pip finds a set of versions for `.[extra]`, and pip's last line."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += [f"{ROOT}[{extra}]", "-c", str(ROOT / CONSTRAINTS.get(extra, CPU))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT_S:.0f} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and "WARNING" not in line]
    return done.returncode == 0, lines[-1] if lines else ""


def main(argv: list[str] | None = None) -> int:
    extras = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    parser = argparse.ArgumentParser(prog="python -m scripts.check_extras", description=__doc__)
    parser.add_argument("extras", nargs="*", choices=[*extras, []], help=f"default: {', '.join(extras)}")
    failed = []
    for extra in parser.parse_args(argv).extras or extras:
        started = time.monotonic()
        resolved, line = resolve(extra)
        mark = "resolves" if resolved else "DOES NOT RESOLVE"
        seconds = time.monotonic() - started
        print(f"{extra}: {mark} with {CONSTRAINTS.get(extra, CPU)} ({seconds:.0f} s) {line}", flush=True)
        if not resolved:
            failed.append(extra)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
