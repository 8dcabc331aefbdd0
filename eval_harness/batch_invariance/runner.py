"""What runs a kernel for the dynamic validator: here in this process, or in a fresh child process.

A plain child process keeps state apart, not harm: it is for kernels that are trusted (the user's own, the labelled
pool). Candidates run in the harness's confined worker, behind the same protocol.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from eval_harness.batch_invariance.kernel_nursery import CALL_TIMEOUT_S, KernelChild, KernelNursery
from eval_harness.errors import HarnessError, UserError


class CallError(Exception):
    """The kernel did not answer a call. One line that says why."""

    def __init__(self, message: str, *, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.is_fatal = is_fatal
        """Whether no later call can succeed: the device or the process is lost."""


class Runner(Protocol):
    """One loaded kernel."""

    def run(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        """The outputs, on the inputs' device. Work on the current stream may still be going on. Raises CallError."""

    def fresh(self) -> Runner | None:
        """The same kernel in a new process that has called it not once; None where it cannot be loaded anew."""

    def close(self) -> None:
        """End what was started."""


class CallableRunner:
    """A function run(*inputs) in this process.

    source, name: the file that defines it and its name there, from which fresh processes load it. By default they are
    looked up; a closure, a lambda or a function of __main__ has none. nursery: what forks fresh processes; without one,
    one is started for the first.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        source: Path | None = None,
        name: str | None = None,
        nursery: KernelNursery | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self.function = function
        self._origin = (source, name or "run") if source else find_origin(function)
        self._nursery = nursery
        self._own: KernelNursery | None = None
        self._timeout_s = timeout_s

    def run(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        try:
            with torch.no_grad():
                result = self.function(*inputs)
        except torch.OutOfMemoryError as error:
            raise CallError(one_line(error)) from None
        except Exception as error:
            raise CallError(one_line(error), is_fatal=is_device_lost(error)) from error
        return as_outputs(result)

    def fresh(self) -> ProcessRunner | None:
        if self._origin is None:
            return None
        if self._nursery is None:
            self._nursery = self._own = KernelNursery()
        return ProcessRunner(*self._origin, nursery=self._nursery, timeout_s=self._timeout_s)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = self._nursery = None


class ProcessRunner:
    """The function `name` of a Python file, in a child process that was forked for it.

    nursery: what forks it; without one, a nursery is started for this runner and those made from it. UserError where
    there is no such file; CallError where it cannot be loaded.
    """

    def __init__(
        self,
        source: Path,
        name: str = "run",
        *,
        nursery: KernelNursery | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        if not source.is_file():
            raise UserError(f"{source}: no such file; give the Python file that defines {name}")
        self.source, self.name, self._timeout_s = source, name, timeout_s
        self._own = KernelNursery() if nursery is None else None
        self._nursery = nursery or self._own
        assert self._nursery is not None
        try:
            self._child: KernelChild = self._nursery.fork()
            answer = self._child.load(source.resolve(), name, timeout_s)
        except BaseException:
            self.close()
            raise
        if answer is not None:
            self.close()
            raise CallError(f"{source}: {answer}", is_fatal=True)

    def run(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        try:
            outputs, error = self._child.call(inputs, self._timeout_s)
        except HarnessError as lost:
            raise CallError(str(lost), is_fatal=True) from None
        if error is not None:
            raise CallError(error["message"], is_fatal=error["is_fatal"])
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
        return [output.to(device) for output in outputs]

    def fresh(self) -> ProcessRunner:
        return ProcessRunner(self.source, self.name, nursery=self._nursery, timeout_s=self._timeout_s)

    def close(self) -> None:
        """End the child, and the nursery if it is this runner's own."""
        with contextlib.suppress(AttributeError):  # it never started
            self._child.close()
        if self._own is not None:
            self._own.close()


def as_outputs(result: Any) -> list[torch.Tensor]:
    """What run returned, as a list of tensors. CallError where it is none."""
    values = list(result.values()) if isinstance(result, dict) else result
    values = list(values) if isinstance(values, tuple | list) else [values]
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise CallError(f"run returned a {type(value).__name__}; return a tensor, or a tuple of tensors")
    return values


def find_origin(function: Callable[..., Any]) -> tuple[Path, str] | None:
    """The file and name a fresh process can load a function by."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    if module is None or module.__name__ == "__main__" or not name.isidentifier():
        return None
    if getattr(module, name, None) is not function:
        return None
    try:
        source = inspect.getsourcefile(module)
    except TypeError:
        return None
    return (Path(source), name) if source and os.path.isfile(source) else None  # noqa: PTH113


def is_device_lost(error: BaseException) -> bool:
    """Whether an error leaves the device unusable in this process."""
    accelerator_error = getattr(torch, "AcceleratorError", ())
    return isinstance(error, accelerator_error) or "CUDA error" in str(error)


def one_line(error: BaseException) -> str:
    """An error for a message: kind and text, clipped."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
