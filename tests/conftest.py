"""What tests share: one judge a test process; and test processes side by side do not wait for each other's device.

The device's lock lies in the folder for temporary files. Evaluations in tests measure nothing, so each pytest-xdist
process gets a folder, and with it a lock, of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # tests of imports and of text start no harness
    from eval_harness.executor import LocalExecutor

_own_folder: str | None = None


def pytest_configure() -> None:
    global _own_folder
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        _own_folder = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix=f"tests-{worker}-")
        tempfile.tempdir = None


def pytest_unconfigure() -> None:
    if _own_folder is not None:
        shutil.rmtree(_own_folder, ignore_errors=True)


@pytest.fixture(scope="session")
def executor() -> Iterator[LocalExecutor]:
    """One judge on a CPU for all files of a test process: starting it costs more than most tests that need one."""
    from eval_harness.executor import LocalExecutor

    with LocalExecutor("cpu") as running:
        yield running
