"""Lines of generated Python that stay within a width."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_LINE = 110


def uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def header(name: str, arguments: str) -> str:
    line = f"def {name}({arguments}):"
    if len(line) <= MAX_LINE:
        return line
    return f"def {name}(\n" + "".join(f"    {row}\n" for row in broken(arguments.split(", "))) + "):"


def call(head: str, arguments: Sequence[str]) -> list[str]:
    text = listed(f"{head.strip()}(", list(arguments), ")", indent=8)
    return [f"    {text.splitlines()[0]}", *(line.removeprefix("    ") for line in text.splitlines()[1:])]


def listed(head: str, items: Sequence[str], tail: str, indent: int = 4) -> str:
    """A call or tuple on one line if it fits, else over several; indent: of the line that it begins."""
    comma = "," if len(items) == 1 and head.endswith("= (") else ""
    line = f"{head}{', '.join(items)}{comma}{tail}"
    if indent + len(line) <= MAX_LINE:
        return line
    space = " " * indent
    return f"{head}\n" + "".join(f"{space}    {row}\n" for row in broken(items)) + f"{space}{tail}"


def broken(items: Sequence[str], join: str = ", ") -> list[str]:
    """Items over lines that fit."""
    rows: list[str] = []
    row = ""
    for position, item in enumerate(items):
        if row and len(row) + len(item) > MAX_LINE - 12:
            rows.append(row.rstrip())
            row = ""
        row += item + ("" if join != ", " and position == len(items) - 1 else join)
    return [*rows, row.rstrip()]
