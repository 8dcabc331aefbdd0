"""Test processes side by side do not wait for each other's device.

The device's lock lies in the folder for temporary files. Evaluations in tests measure nothing, so each pytest-xdist
process gets a folder, and with it a lock, of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile

_own_folder: str | None = None


def pytest_configure() -> None:
    global _own_folder
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        _own_folder = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix=f"tests-{worker}-")
        tempfile.tempdir = None


def pytest_unconfigure() -> None:
    if _own_folder is not None:
        shutil.rmtree(_own_folder, ignore_errors=True)
