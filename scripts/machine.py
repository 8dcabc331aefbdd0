"""The machine as run records and `passwright doctor` tell of it: eval_harness.machine's facts, all GPUs, all libraries.

No host name and no user name: records are published. Never imports torch.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from eval_harness import gpu_sharing, machine

TRAINING_LIBRARIES = ("peft", "accelerate", "datasets", "deepspeed")
"""Beside those that an evaluation depends on."""


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
    answer = gpu_sharing.query("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader") or ""
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    return [dict(zip(("name", "memory", "driver"), row, strict=True)) for row in rows if len(row) == 3]
