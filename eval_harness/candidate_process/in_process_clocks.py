"""Clocks that run inside a worker, as others use them: per-call host time, CUDA events, do_bench, the profiler.

What they say is a claim: the process that is timed holds the watch. The judge's clock (judge/clock.py) is what counts;
these are for protocol `passnet`, for the GPU time that is recorded beside a speedup, and for `passwright bench clocks`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# captured before any candidate code is loaded
_clock = time.perf_counter
_synchronize_cuda = torch.cuda.synchronize


def host_trials_us(call: Callable[[], Any], device: torch.device, *, num_warmup: int, num_trials: int) -> list[float]:
    """Microseconds of each call, synchronized: upstream's way."""
    for _ in range(num_warmup):
        call()
    synchronize(device)
    trials_us = []
    for _ in range(num_trials):
        start = _clock()
        call()
        synchronize(device)
        trials_us.append((_clock() - start) * 1e6)
    return trials_us


def loop_us(calls: Sequence[Callable[[], Any]], device: torch.device) -> float:
    """Microseconds a call over one loop of calls that are synchronized at its end, outputs kept, as in a block."""
    kept: list[Any] = [None] * len(calls)
    synchronize(device)
    start = _clock()
    for position, call in enumerate(calls):
        kept[position] = call()
    synchronize(device)
    return (_clock() - start) / len(calls) * 1e6


def event_us(call: Callable[[], Any], device: torch.device, *, num_warmup: int, num_trials: int) -> float:
    """Median microseconds between two CUDA events around a call."""
    for _ in range(num_warmup):
        call()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(num_trials)]
    synchronize(device)
    for start, end in events:
        start.record()
        call()
        end.record()
        synchronize(device)
    return statistics.median(start.elapsed_time(end) for start, end in events) * 1e3


def do_bench_us(call: Callable[[], Any]) -> float:
    """Median microseconds by triton.testing.do_bench: events, the L2 cache cleared before each call."""
    from triton.testing import do_bench

    return float(do_bench(call, return_mode="median")) * 1e3


def profiler_us(call: Callable[[], Any], device: torch.device, *, repeats: int) -> float:
    """Microseconds a call of GPU work on all streams."""
    return profiled(call, device, repeats=repeats)[0]


def profiled(call: Callable[[], Any], device: torch.device, *, repeats: int) -> tuple[float, float]:
    """(microseconds, pieces of GPU work: kernels, copies, fills) a call, on all streams."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    call()
    synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            call()
        synchronize(device)
    events = profiler.key_averages()
    work = [event for event in events if event.device_type == DeviceType.CUDA and event.self_device_time_total > 0]
    total_us = sum(event.self_device_time_total for event in events)
    return total_us / repeats, sum(event.count for event in work) / repeats


def time_in_process(
    how: str, calls: Sequence[Callable[[], Any]], device: torch.device, *, num_warmup: int, num_trials: int
) -> float:
    """Microseconds a call by the clock `how`: host, loop, events, do_bench or profiler."""
    call = calls[0]
    if how == "host":
        trials_us = host_trials_us(call, device, num_warmup=num_warmup, num_trials=num_trials)
        return statistics.median(trials_us)
    if how == "loop":
        return statistics.median(loop_us(calls, device) for _ in range(3))
    if how == "events":
        return event_us(call, device, num_warmup=num_warmup, num_trials=num_trials)
    if how == "do_bench":
        return do_bench_us(call)
    if how == "profiler":
        return profiler_us(call, device, repeats=num_trials)
    raise ValueError(f"unknown clock: {how}")


def synchronize(device: torch.device) -> None:
    """Wait for all streams of a CUDA device."""
    if device.type == "cuda":
        _synchronize_cuda(device)
