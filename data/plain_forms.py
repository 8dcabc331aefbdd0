"""Fast readers for the forms in which PassNet and GraphNet write their files; anything else is answered with None.

A syntax tree of a full graph's metas takes 20 times as long as this, and most graphs are plain. The caller then reads
the file the slow way, which knows every form and makes the error messages: nothing is refused here.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from data.syntax import parse_source

_CLASS = re.compile(r"class (\w+):")
_FIELD = re.compile(r"[ \t]+(\w+) = (.*)")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_REAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]?\d+)?|float\([\"'](-?(?:nan|inf))[\"']\)")
_TEXT = re.compile(r"\"([^\"\\\n]*)\"|'([^'\\\n]*)'")
_HEADER = re.compile(
    r"^class GraphModule\(torch\.nn\.Module\):\n\s*def forward\(\s*self\b(?P<arguments>[^()]*)\):\n", re.MULTILINE
)
_NOT_PLAIN = object()


def read_plain_metas(text: str) -> list[tuple[str, dict[str, Any]]] | None:
    """(class name, field -> value) of each meta class, or None where a line has another form."""
    metas: list[tuple[str, dict[str, Any]]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line or line.isspace():
            continue
        if (field := _FIELD.fullmatch(line)) is not None and metas:
            name, written = field.groups()
            value = _block(lines, written) if written in ("[", "(") else _value(written.rstrip())
            if value is _NOT_PLAIN:
                return None
            metas[-1][1][name] = value
        elif (header := _CLASS.fullmatch(line)) is not None:
            metas.append((header[1], {}))
        else:
            return None
    # a class with no field is no Python
    return metas if all(fields for _, fields in metas) else None


def plain_forward_arguments(source: str) -> tuple[str, ...] | None:
    """Names of forward's arguments where the file is Python and begins its one GraphModule with forward, or None."""
    headers = list(_HEADER.finditer(source))
    if len(headers) != 1 or source.count("GraphModule") != 1 or source.count("def ") != 1:
        return None
    try:
        signature = parse_source(f"def forward(self{headers[0]['arguments']}): pass").body
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "model.py", "exec", dont_inherit=True)  # half the price of a syntax tree; runs nothing
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(signature) != 1 or not isinstance(signature[0], ast.FunctionDef):
        return None
    return tuple(argument.arg for argument in signature[0].args.args[1:])


def _block(lines: Any, opening: str) -> Any:
    """A value over several lines: `[`, one item or several a line, `]`; or one text in parentheses."""
    closing = "]" if opening == "[" else ")"
    inside: list[str] = []
    for line in lines:
        stripped = line.strip()
        if stripped == closing:
            joined = " ".join(inside)
            if opening == "(":
                return _NOT_PLAIN if joined.endswith(",") else _value(joined)
            return _items(joined.removesuffix(","))
        inside.append(stripped)
    return _NOT_PLAIN


def _value(written: str) -> Any:
    if written == "None":
        return None
    if (text := _TEXT.fullmatch(written)) is not None:
        return text[1] if text[1] is not None else text[2]
    if written.startswith("[") and written.endswith("]"):
        return _items(written[1:-1])
    return _number(written)


def _items(written: str) -> Any:
    """A flat list of numbers."""
    if not written.strip():
        return []
    values = [_number(item.strip()) for item in written.split(",")]
    return _NOT_PLAIN if _NOT_PLAIN in values else values


def _number(written: str) -> Any:
    if _INTEGER.fullmatch(written):
        return int(written)
    if (real := _REAL.fullmatch(written)) is not None:
        return float(real[1] or written)
    return _NOT_PLAIN
