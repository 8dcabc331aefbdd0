"""The machine as run records and `passwright doctor` tell of it: eval_harness.machine's facts, all GPUs, all libraries.

No host name and no user name: records are published. Never imports torch.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from typing import Any

from eval_harness import machine

TRAINING_LIBRARIES = ("peft", "accelerate", "datasets", "deepspeed")
"""Beside those that an evaluation depends on."""

NVIDIA_SMI_TIMEOUT_S = 20.0
"""A wedged driver makes nvidia-smi hang; the record is then written without GPUs."""


def library_versions() -> dict[str, str]:
    """Library -> installed version; libraries that are not installed are left out."""
    versions = machine.describe_versions()
    for name in TRAINING_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def describe_machine() -> dict[str, Any]:
    """Processor, usable cores, memory, kernel, and every GPU."""
    return machine.describe_machine("cpu") | {"gpus": list_gpus()}


def list_gpus() -> list[dict[str, str]]:
    """What nvidia-smi says of each GPU: name, memory, driver. Empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
    return [dict(zip(("name", "memory", "driver"), row, strict=True)) for row in rows if len(row) == 3]
