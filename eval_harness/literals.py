"""When two literals of a graph and a pattern are equal, given what kind of argument they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from eval_harness.graph_values import iter_refs


@dataclass(frozen=True)
class Pair:
    """An argument of the graph's call beside the same argument of the pattern's."""

    label: str
    graph_value: Any
    pattern_value: Any
    kind: str
    """How literals in it are compared: a schema type ("int", "number", ...), "python" or "exact"."""


def inner_pairs(pair: Pair) -> list[Pair] | None:
    """Pairs inside two containers, none for equal literals, None if the values differ."""
    first, second = pair.graph_value, pair.pattern_value
    inner = pair.kind[5:-1] if pair.kind.startswith("List[") else pair.kind
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        if len(first) != len(second):
            return None
        if pair.kind == "exact" and isinstance(first, list) != isinstance(second, list):
            return None
        if not _holds_refs(first) and not _holds_refs(second):
            same = all(inner_pairs(Pair("", a, b, inner)) == [] for a, b in zip(first, second, strict=True))
            return [] if same else None
        return [Pair(f"{pair.label}[{i}]", a, b, inner) for i, (a, b) in enumerate(zip(first, second, strict=True))]
    if isinstance(first, slice) and isinstance(second, slice):
        return (
            [
                Pair(f"{pair.label}.{part}", getattr(first, part), getattr(second, part), "exact")
                for part in ("start", "stop", "step")
                if not (getattr(first, part) is None and getattr(second, part) is None)
            ]
            if _holds_refs(first) or _holds_refs(second)
            else ([] if _same_slice(first, second) else None)
        )
    if isinstance(first, dict) and isinstance(second, dict) and list(first) == list(second):
        return [Pair(f"{pair.label}[{key!r}]", first[key], second[key], inner) for key in first]
    return [] if same_literal(first, second, inner) else None


def _same_slice(first: slice, second: slice) -> bool:
    parts = [(first.start, second.start), (first.stop, second.stop), (first.step, second.step)]
    return all(same_literal(a, b, "exact") for a, b in parts)


def has_refs(pair: Pair) -> bool:
    return _holds_refs(pair.graph_value) or _holds_refs(pair.pattern_value)


def _holds_refs(value: Any) -> bool:
    return next(iter_refs(value), None) is not None


def same_literal(graph_value: Any, pattern_value: Any, kind: str) -> bool:
    """Whether two literals are equal as an argument of that kind.

    "number" and "float" compare by value (2 is 2.0) but keep True apart from 1; an "exact number", an argument beside
    integer tensors only, keeps int and float apart too, because the result's dtype differs; "python" (a parameter of a
    Python function) is as "number"; "exact" compares types as well. All devices are one: a graph runs on one.
    NaN equals NaN; 0.0 and -0.0 differ.
    """
    if isinstance(graph_value, torch.device) or isinstance(pattern_value, torch.device):
        return _is_device(graph_value) and _is_device(pattern_value)
    if kind == "Device":
        return _is_device(graph_value) == _is_device(pattern_value)
    numbers = (int, float, complex)
    if isinstance(graph_value, numbers) and isinstance(pattern_value, numbers):
        if isinstance(graph_value, bool) != isinstance(pattern_value, bool):
            return False
        if "exact" in kind and type(graph_value) is not type(pattern_value):
            return False
        return _same_number(graph_value, pattern_value)
    if isinstance(graph_value, dict) or isinstance(pattern_value, dict):
        return repr(graph_value) == repr(pattern_value)
    return type(graph_value) is type(pattern_value) and graph_value == pattern_value


def _is_device(value: Any) -> bool:
    return isinstance(value, (torch.device, str))


def _same_number(first: complex, second: complex) -> bool:
    if isinstance(first, complex) or isinstance(second, complex):
        return repr(complex(first)) == repr(complex(second))
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second and math.copysign(1, first) == math.copysign(1, second)
