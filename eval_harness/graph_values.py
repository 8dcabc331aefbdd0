"""Literals and node references of an IRGraph <-> JSON.

JSON keeps None, bool, int, str, finite floats and lists as they are; everything else is an object with one key that
names its kind. int and float stay apart (1 and 1.0), as do list and tuple.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

MAX_DEPTH = 16
MAX_ITEMS = 100_000
"""Items in one list, tuple or dict; graphs with tensors written out as literals have a few thousand."""
MAX_STRING = 10_000
_MAX_INT = 2**64

_TYPES = {"int": int, "float": float, "bool": bool, "complex": complex}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_MEMORY_FORMATS = {
    str(item).removeprefix("torch."): item for item in vars(torch).values() if isinstance(item, torch.memory_format)
}
_LAYOUTS = {str(item).removeprefix("torch."): item for item in vars(torch).values() if isinstance(item, torch.layout)}
_DEVICE = re.compile(r"(cpu|cuda|meta)(:[0-9]{1,3})?\Z", re.ASCII)


class IRFormatError(ValueError):
    """The data is no IRGraph, or a value has no place in one. The message names the node and the fault."""


@dataclass(frozen=True)
class Ref:
    """The result of the node with that name."""

    name: str

    def __repr__(self) -> str:
        return self.name


def iter_refs(value: Any) -> Iterator[str]:
    """Names of the nodes that a value refers to, in order."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from iter_refs(item)
    elif isinstance(value, slice):
        for item in (value.start, value.stop, value.step):
            yield from iter_refs(item)
    elif isinstance(value, dict) or hasattr(value, "items"):
        for item in value.values():
            yield from iter_refs(item)


def map_refs(value: Any, replace: Callable[[Ref], Any], literal: Callable[[Any], Any] = lambda item: item) -> Any:
    """The value with every Ref replaced, and every other leaf passed through `literal`."""
    if isinstance(value, Ref):
        return replace(value)
    if isinstance(value, torch.Size):
        return literal(value)
    if isinstance(value, tuple):
        return tuple(map_refs(item, replace, literal) for item in value)
    if isinstance(value, list):
        return [map_refs(item, replace, literal) for item in value]
    if isinstance(value, slice):
        return slice(*(map_refs(item, replace, literal) for item in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return {key: map_refs(item, replace, literal) for key, item in value.items()}
    return literal(value)


def encode_value(value: Any, depth: int = 0) -> Any:
    """Value -> JSON data. Raises IRFormatError for a value that has no encoding, such as a tensor."""
    if depth > MAX_DEPTH:
        raise IRFormatError(f"a literal is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Ref):
        return {"node": value.name}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [encode_value(value.real), encode_value(value.imag)]}
    if isinstance(value, torch.Size):
        return {"size": [int(item) for item in value]}
    if isinstance(value, list):
        return [encode_value(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item, depth + 1) for item in value]}
    if isinstance(value, slice):
        return {"slice": [encode_value(item, depth + 1) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, dict):
        return {"dict": [[encode_value(k, depth + 1), encode_value(v, depth + 1)] for k, v in value.items()]}
    if value is Ellipsis:
        return {"ellipsis": True}
    return _encode_name(value)


def _encode_name(value: Any) -> Any:
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind, torch_type in (("dtype", torch.dtype), ("memory_format", torch.memory_format), ("layout", torch.layout)):
        if isinstance(value, torch_type):
            return {kind: str(value).removeprefix("torch.")}
    for name, python_type in _TYPES.items():
        if value is python_type:
            return {"type": name}
    raise IRFormatError(f"a value of type {type(value).__name__} cannot be part of a graph; use literals and arguments")


def decode_value(data: Any, depth: int = 0) -> Any:
    """JSON data -> value. Raises IRFormatError; the data may come from an untrusted process."""
    if depth > MAX_DEPTH:
        raise IRFormatError(f"a literal is nested more than {MAX_DEPTH} deep")
    if data is None or isinstance(data, bool):
        return data
    if isinstance(data, str):
        if len(data) > MAX_STRING:
            raise IRFormatError(f"a string of {len(data)} characters; at most {MAX_STRING} are accepted")
        return data
    if isinstance(data, int):
        if abs(data) > _MAX_INT:
            raise IRFormatError("an integer does not fit 64 bits")
        return data
    if isinstance(data, float):
        if not math.isfinite(data):
            raise IRFormatError("a bare NaN or Infinity is not JSON")
        return data
    if isinstance(data, list):
        return _decode_items(data, depth)
    if isinstance(data, dict) and len(data) == 1:
        kind, content = next(iter(data.items()))
        decoder = _DECODERS.get(kind)
        if decoder is not None:
            return decoder(content, depth)
    raise IRFormatError(f"not an encoded value: {str(data)[:80]}")


def _decode_items(data: Any, depth: int) -> list[Any]:
    if not isinstance(data, list) or len(data) > MAX_ITEMS:
        raise IRFormatError(f"expected a list of at most {MAX_ITEMS} items")
    return [decode_value(item, depth + 1) for item in data]


def _decode_node(content: Any, _depth: int) -> Ref:
    if not isinstance(content, str) or len(content) > 128:
        raise IRFormatError("a node reference is a short name")
    return Ref(content)


def _decode_float(content: Any, _depth: int) -> float:
    if content not in ("inf", "-inf", "nan"):
        raise IRFormatError("a tagged float is inf, -inf or nan")
    return float(content)


def _decode_complex(content: Any, depth: int) -> complex:
    parts = _decode_items(content, depth)
    if len(parts) != 2 or not all(isinstance(part, float) for part in parts):
        raise IRFormatError("a complex number has two float parts")
    return complex(*parts)


def _decode_size(content: Any, depth: int) -> torch.Size:
    items = _decode_items(content, depth)
    if not all(type(item) is int and 0 <= item < 2**62 for item in items):
        raise IRFormatError("a torch.Size holds non-negative integers")
    return torch.Size(items)


def _decode_slice(content: Any, depth: int) -> slice:
    items = _decode_items(content, depth)
    if len(items) != 3:
        raise IRFormatError("a slice has three parts")
    return slice(*items)


def _decode_dict(content: Any, depth: int) -> dict[Any, Any]:
    found = {}
    for pair in _decode_items(content, depth):
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], (str, int))):
            raise IRFormatError("a dict is a list of [key, value] with string or integer keys")
        found[pair[0]] = pair[1]
    return found


def _decode_device(content: Any, _depth: int) -> torch.device:
    if not (isinstance(content, str) and _DEVICE.match(content)):
        raise IRFormatError(f"not a device: {str(content)[:40]!r}")
    return torch.device(content)


def _from_table(table: dict[str, Any]) -> Callable[[Any, int], Any]:
    def decode(content: Any, _depth: int) -> Any:
        if not isinstance(content, str) or content not in table:
            raise IRFormatError(f"unknown name {str(content)[:40]!r}")
        return table[content]

    return decode


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "node": _decode_node,
    "float": _decode_float,
    "complex": _decode_complex,
    "size": _decode_size,
    "tuple": lambda content, depth: tuple(_decode_items(content, depth)),
    "slice": _decode_slice,
    "dict": _decode_dict,
    "ellipsis": lambda content, depth: Ellipsis,
    "device": _decode_device,
    "dtype": _from_table(_DTYPES),
    "memory_format": _from_table(_MEMORY_FORMATS),
    "layout": _from_table(_LAYOUTS),
    "type": _from_table(_TYPES),
}
