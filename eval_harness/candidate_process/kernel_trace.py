"""Which GPU kernels run while a replacement does, by the profiler. Says names and counts; the judge decides.

The device is idle before and after each traced replacement, so that what the profiler sees in between was launched by
it, on whatever stream. A fill of our own is launched with it: if the profiler misses that, the trace is incomplete.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

MAX_TRACED = 4
"""Replacements traced in one call; starting the profiler takes milliseconds each time."""
MAX_KERNELS = 64

# captured before any candidate code is loaded
_synchronize = torch.cuda.synchronize
_CONTROL = re.compile(r"Memset|FillFunctor")


def traced(
    function: Callable[..., Any], rule: str, device: torch.device, report: list[dict[str, Any]]
) -> Callable[..., Any]:
    """The function, its kernels written to `report` as {rule, kernels: [[name, launches]], is_complete}."""

    def call(*args: Any) -> Any:
        if len(report) >= MAX_TRACED:
            return function(*args)
        result, kernels, is_complete = trace_kernels(lambda: function(*args), device)
        report.append({"rule": rule, "kernels": kernels, "is_complete": is_complete})
        return result

    return call


def trace_kernels(run: Callable[[], Any], device: torch.device) -> tuple[Any, list[list[Any]], bool]:
    """(result, [[kernel name, launches]], whether the control fill was seen). Leaves out the control."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    control = torch.empty(8, device=device)
    _synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        control.fill_(1.0)
        result = run()
        _synchronize(device)
    names = Counter(
        event.name for event in profiler.events() or () if event.device_type == DeviceType.CUDA
    )
    seen = next((name for name in names if _CONTROL.search(name)), None)
    if seen is not None:
        names[seen] -= 1
    return result, [[name, count] for name, count in names.items() if count][:MAX_KERNELS], seen is not None
