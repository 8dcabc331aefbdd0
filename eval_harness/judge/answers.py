"""Whether a worker's answer has the form that its request asked for. What it says is still only a claim.

An answer that has not would be an exception in the judge, and that is nobody's score: a candidate that forges answers
could so avoid one. Fields that are not named here are checked by whoever reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MAX_OUTPUTS = 10_000
MAX_DIMS = 64


def nonsense(op: str, answer: dict[str, Any]) -> str | None:
    """What is wrong with a worker's answer to a request, or None."""
    for name, is_right in _FIELDS.get(op, {}).items():
        try:
            is_proper = is_right(answer.get(name))
        except (ArithmeticError, ValueError, TypeError, RecursionError):
            is_proper = False  # such as an integer that no float holds
        if not is_proper:
            return f"its answer to {op} has no proper {name}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_sizes(value: Any) -> bool:
    is_list = isinstance(value, list) and len(value) <= MAX_DIMS
    return is_list and all(type(item) is int and -(1 << 62) < item < 1 << 62 for item in value)


def _is_output(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if "literal" in value:
        return isinstance(value.get("type"), str)
    texts = all(isinstance(value.get(name), str) for name in ("dtype", "device"))
    return texts and _are_sizes(value.get("shape")) and _are_sizes(value.get("stride"))


def _are_outputs(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_OUTPUTS and all(map(_is_output, value))


def _is_guard_report(value: Any) -> bool:
    names = ("rule", "at", "message")
    return value is None or (
        isinstance(value, list)
        and all(isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in names) for entry in value)
    )


def _are_times(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(_is_number(item) and item > 0 for item in value)


def _is_trace(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("rule"), str)
        and isinstance(entry.get("is_complete"), bool)
        and isinstance(entry.get("kernels"), list)
        and all(
            isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and type(item[1]) is int
            for item in entry["kernels"]
        )
        for entry in value
    )


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "hello": {"confinement": lambda value: isinstance(value, dict)},
    "probe": {"healthy": lambda value: isinstance(value, bool)},
    "load_pass": {"rules": lambda value: isinstance(value, list)},
    "call": {"outputs": _are_outputs, "guard": _is_guard_report, "trace": _is_trace},
    "oracle": {"outputs": _are_outputs},
    "run_trials": {"trials_us": _are_times},
    "gpu_time": {"gpu_us": _is_number, "launches": _is_number},
    "time_in_process": {"us": _is_number},
}
