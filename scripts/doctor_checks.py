"""The checks of `passwright doctor`: each looks at one thing and says what follows. Nothing is changed."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import shutil
import subprocess
from typing import Literal

from scripts.machine import describe_machine, library_versions, list_gpus

MIN_CORES = 2
MIN_MEMORY_GIB = 4.0
"""The quickstart was run with 2 cores; it peaks below 3 GiB."""
MIN_DISK_GIB = 2.0


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    mark: Literal["ok", "optional", "MISSING"]
    """optional: the quickstart runs without it, something else does not."""
    value: str
    cure: str = ""

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def check_machine() -> list[Finding]:
    """Every check, cheap ones first. Takes the seconds that importing torch takes."""
    return [
        Finding("python", "ok", platform.python_version()),
        *_size(),
        *_libraries(),
        *_compilers(),
        *_gpus(),
        *_confinement(),
    ]


def _size() -> list[Finding]:
    facts, disk = describe_machine(), shutil.disk_usage(".").free / 2**30
    cores, memory = facts["num_cores"], facts["memory_gib"]
    few = "" if cores >= MIN_CORES else "timings need a core for the judge beside the one that is measured"
    findings = [Finding("cores", "optional" if few else "ok", str(cores), few)]
    small = "" if memory >= MIN_MEMORY_GIB else f"the quickstart needs {MIN_MEMORY_GIB:.0f} GiB"
    findings.append(Finding("memory", "MISSING" if small else "ok", f"{memory} GiB", small))
    full = "" if disk >= MIN_DISK_GIB else "free some, or run in a folder on another disk"
    findings.append(Finding("disk here", "MISSING" if full else "ok", f"{disk:.1f} GiB free", full))
    return findings


def _libraries() -> list[Finding]:
    versions = library_versions()
    install = "pip install -e '.[{}]' -c constraints/cpu.txt"
    needed = dict.fromkeys(("torch", "numba"), "pip install -e . -c constraints/cpu.txt")
    needed |= dict.fromkeys(("transformers", "trl", "datasets", "accelerate"), install.format("train"))
    optional = {
        "triton": "passes for a GPU are written in it; comes with a CUDA build of torch (constraints/cuda.txt)",
        "vllm": "serves students on a GPU: pip install -e '.[serve]' -c constraints/cuda.txt",
        "deepspeed": "long contexts and many GPUs: pip install -e '.[cluster]' -c constraints/cuda.txt",
    }
    findings = []
    for name, cure in (needed | optional).items():
        if name in versions:
            findings.append(Finding(name, "ok", versions[name]))
        else:
            findings.append(Finding(name, "MISSING" if name in needed else "optional", "not installed", cure))
    return findings


def _compilers() -> list[Finding]:
    findings = []
    cxx = os.environ.get("CXX") or next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    if cxx is None:
        cure = "TorchInductor on CPU and C++ passes need it: install g++ (Debian: apt-get install g++)"
        findings.append(Finding("C++ compiler", "optional", "none found", cure))
    else:
        findings.append(Finding("C++ compiler", "ok", _first_line([cxx, "--version"])))
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        cure = "passes in CUDA C++ need it: install the CUDA toolkit of torch's CUDA version"
        findings.append(Finding("nvcc", "optional", "none found", cure))
    else:
        findings.append(Finding("nvcc", "ok", _first_line([nvcc, "--version"], last=True)))
    return findings


def _gpus() -> list[Finding]:
    gpus = list_gpus()
    if not gpus:
        return [Finding("GPU", "optional", "none found", "--device cuda needs an NVIDIA GPU; --device cpu works here")]
    shown = "; ".join(f"{gpu['name']} {gpu['memory']} (driver {gpu['driver']})" for gpu in gpus)
    if importlib.util.find_spec("torch") is None:
        return [Finding("GPU", "optional", shown, "install torch to use it")]
    import torch

    if torch.version.cuda is None:
        return [Finding("GPU", "optional", shown, "this torch is a CPU build: install with constraints/cuda.txt")]
    if not torch.cuda.is_available():
        cure = f"torch's CUDA {torch.version.cuda} cannot use it: compare the driver's version with that"
        return [Finding("GPU", "optional", shown, cure)]
    return [Finding("GPU", "ok", shown)]


def _confinement() -> list[Finding]:
    """The layers that confine a candidate; a container often refuses some of them."""
    from eval_harness.candidate_process.confinement import probe_layers

    findings = []
    for layer, state in probe_layers().items():
        cure = "" if state == "on" else "verdicts record that it was off; see docs/architecture.md"
        findings.append(Finding(f"confinement: {layer}", "ok" if state == "on" else "optional", state, cure))
    return findings


def _first_line(command: list[str], *, last: bool = False) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error})"
    return answer[-1 if last else 0].strip() if answer else "runs"
