"""Compile a pass's Triton kernels for given arguments and launch none of them.

Compiling takes no device time, so it need not wait for the device: the judge asks for it while another evaluation is
timed. Each replacement is called once on uninitialised tensors with Triton's launches switched to its own warm-up mode;
autotuners compile all their configurations and choose none. What torch does in a wrapper (fills, copies) still runs.
What fails here is ignored: it fails again where it counts. Kernels in CUDA C++ are compiled where the file is imported,
which does not wait either; the judge does not ask for folders that have any.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from eval_harness.graph_values import decode_value
from eval_harness.tensor_exchange import DTYPES


def compile_ahead(
    calls: Sequence[Mapping[str, Any]], rules: Mapping[str, Callable[..., Any]], device: torch.device
) -> None:
    """calls: {rule, args: [{tensor: {shape, stride, dtype}} | {value: literal}]}."""
    with _launching_nothing() as is_possible:
        for call in calls if is_possible else ():
            with contextlib.suppress(Exception):
                rules[call["rule"]](*[_argument(item, device) for item in call["args"]])


def _argument(item: Mapping[str, Any], device: torch.device) -> Any:
    if "tensor" not in item:
        return decode_value(item["value"])
    meta = item["tensor"]
    tensor = torch.empty_strided(meta["shape"], meta["stride"], dtype=DTYPES[meta["dtype"]], device=device)
    # an index that was never written reaches anywhere
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.zero_()


@contextlib.contextmanager
def _launching_nothing() -> Iterator[bool]:
    """Triton compiles and does not launch; False where this Triton cannot be told so."""
    try:
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        run_kernel, run_autotuner = JITFunction.run, Autotuner.run
        if not callable(Autotuner.warmup):
            raise AttributeError
    except (ImportError, AttributeError):
        yield False
        return

    def compile_kernel(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run_kernel(self, *args, grid=grid, warmup=True, **kwargs)

    def compile_configurations(self: Any, *args: Any, warmup: bool = True, **kwargs: Any) -> Any:
        return self.warmup(*args, **kwargs)

    JITFunction.run, Autotuner.run = compile_kernel, compile_configurations
    try:
        yield True
    finally:
        JITFunction.run, Autotuner.run = run_kernel, run_autotuner
