"""Versions and machine facts of a record, read without importing the packages themselves."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from typing import Any

_PACKAGES = ("passwright", "torch", "triton", "numba", "numpy", "openai", "transformers", "vllm")


@cache
def package_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a trajectory; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def machine_facts() -> dict[str, Any]:
    """The collector's machine; the verdicts hold the facts of the one that evaluated. No host or user name."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpus": os.cpu_count(),
    }
