"""Fresh processes for trusted kernels at the price of a fork: a nursery imports torch once and forks a child for each.

Our side of the pipe; the other is kernel_child.py. Tensors travel in memory files, everything else as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from eval_harness.batch_invariance.kernel_messages import numeric_settings, pack, unpack
from eval_harness.errors import HarnessError
from eval_harness.protocol import Channel, ChannelError

START_TIMEOUT_S = 300.0
FORK_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 300.0
"""Of one call: it may compile CUDA C++."""


class KernelChild:
    """One forked process with at most one kernel."""

    def __init__(self, channel: Channel, pid: int) -> None:
        self._channel = channel
        self.pid = pid

    def load(self, source: Path, name: str, timeout_s: float) -> str | None:
        """Import a file and take a function of it; the error on one line, if there is one. Raises HarnessError."""
        message = {"op": "load", "source": str(source), "name": name, "settings": numeric_settings()}
        answer, _ = self._ask(message, (), timeout_s)
        return None if answer["ok"] else str(answer["message"])

    def call(self, inputs: Sequence[Any], timeout_s: float) -> tuple[list[torch.Tensor], dict[str, Any] | None]:
        """Outputs on the CPU, or the error as {message, is_fatal}. Raises HarnessError."""
        file, layout = pack(inputs)
        try:
            answer, descriptors = self._ask(
                {"op": "call", "bytes": file.size, "inputs": layout}, (file.descriptor,), timeout_s
            )
        finally:
            file.close()
        if not answer["ok"]:
            return [], {"message": str(answer["message"]), "is_fatal": bool(answer["is_fatal"])}
        return unpack(descriptors[0], answer["bytes"], answer["outputs"]), None

    def close(self) -> None:
        """The child ends when its channel does."""
        self._channel.close()

    def _ask(
        self, message: dict[str, Any], descriptors: tuple[int, ...], timeout_s: float
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            self._channel.send(message, descriptors)
            return self._channel.receive(timeout_s=timeout_s)
        except ChannelError as error:
            with contextlib.suppress(OSError):  # it may hang in a kernel, or be gone
                os.kill(self.pid, signal.SIGKILL)
            raise HarnessError(f"the kernel's process ended or gave no answer in {timeout_s:.0f} s: {error}") from None


class KernelNursery:
    """A process that forks children. It never touches a device. Use it in a `with`, or close it."""

    def __init__(self) -> None:
        ours, theirs = Channel.pair()
        self._channel = ours
        code = (
            f"import sys; sys.path[:] = {json.dumps(sys.path)}\n"
            f"from eval_harness.batch_invariance.kernel_child import main; main({theirs.fileno()})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=2,  # not sys.stderr: a notebook's or a test's has no descriptor
        )
        theirs.close()
        self._is_ready = False

    def fork(self) -> KernelChild:
        """A child that has run nothing yet. Raises HarnessError."""
        ours, theirs = Channel.pair()
        try:
            if not self._is_ready:
                self._channel.receive(timeout_s=START_TIMEOUT_S)
                self._is_ready = True
            self._channel.send({"op": "fork"}, (theirs.fileno(),))
            answer, _ = self._channel.receive(timeout_s=FORK_TIMEOUT_S)
        except ChannelError as error:
            ours.close()
            raise HarnessError(f"no fresh process for the kernel: {error}") from None
        finally:
            theirs.close()
        return KernelChild(ours, int(answer["pid"]))

    def close(self) -> None:
        """The nursery ends when its channel does."""
        self._channel.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> KernelNursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
