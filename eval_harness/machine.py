"""Facts about this machine and its libraries, for records. GPU facts come from nvidia-smi: the judge has no CUDA."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

from eval_harness import gpu_sharing

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
        facts |= _gpu_facts(device)
    return facts


def describe_machine(device: str) -> dict[str, Any]:
    """CPU, cores, memory, kernel; for a CUDA device the GPU's name and driver, and who else uses it."""
    return dict(_facts(device)) | (gpu_sharing.record(device) if device.startswith("cuda") else {})


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


@functools.cache
def device_memory_bytes(device: str) -> int | None:
    """Of a GPU; None on a CPU, and where the driver's tool does not say."""
    if not device.startswith("cuda"):
        return None
    match = re.fullmatch(r"(\d+) MiB", _gpu_facts(device).get("gpu_memory", ""))
    return int(match[1]) << 20 if match else None


def _gpu_facts(device: str) -> dict[str, Any]:
    names = ("gpu", "driver", "gpu_memory")
    fields = "--query-gpu=name,driver_version,memory.total"
    answer = gpu_sharing.query(f"--id={gpu_sharing.whole_gpu(device)}", fields, "--format=csv,noheader")
    return dict(zip(names, answer.strip().split(", "), strict=False)) if answer else {}
