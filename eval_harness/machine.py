"""Facts about this machine and its libraries, for records. GPU facts come from nvidia-smi: the judge has no CUDA."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

RECORDED_PACKAGES = ("torch", "triton", "numba", "numpy", "openai", "transformers", "trl", "vllm", "passwright")


@functools.cache
def _facts(device: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "cpu": _cpu_name(),
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
    }
    if device.startswith("cuda"):
        facts |= _gpu_facts(int(device.split(":")[1]) if ":" in device else 0)
    return facts


def describe_machine(device: str) -> dict[str, Any]:
    """CPU, cores, memory, kernel, and the GPU's name and driver for a CUDA device."""
    return dict(_facts(device))


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def describe_versions() -> dict[str, str]:
    """Versions of python and of the recorded packages that are installed."""
    return dict(_versions())


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu_facts(index: int) -> dict[str, Any]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, f"--id={index}", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return {}
    return dict(zip(("gpu", "driver", "gpu_memory"), done.stdout.strip().split(", "), strict=False))
