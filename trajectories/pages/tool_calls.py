"""What a tool call asked, for a reader: a title and blocks of text, code or changes. Not the call's execution.

The HTML page and the terminal show the same blocks. A tool has its own reader in READERS (another agent's tools are
added there); a tool without one, and a call that cannot be read, is shown argument by argument, or as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trajectories.record import ToolCall
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR


@dataclass(frozen=True)
class Block:
    """One piece of text of a call."""

    text: str
    path: str = ""
    """Of the file it goes to; tells the language."""
    before: str | None = None
    """The text that it stands in for: shown as a diff."""
    label: str = ""


@dataclass(frozen=True)
class CallView:
    """A call as it is shown."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    is_readable: bool = True
    """False for arguments that are not a JSON object."""


def read_call(call: ToolCall) -> CallView:
    """The call for a reader; never raises: models write calls of any form."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return CallView(f"{call.name}: arguments that are no JSON object", [Block(call.arguments)], is_readable=False)
    view = READERS[call.name](arguments) if call.name in READERS else None
    return view or CallView(call.name, _plain_blocks(arguments))


def _read_file_editor(arguments: Mapping[str, Any]) -> CallView | None:
    command, path = arguments.get("command"), arguments.get("path")
    if not (isinstance(command, str) and isinstance(path, str)):
        return None

    def text(name: str) -> str:
        value = arguments.get(name)
        return value if isinstance(value, str) else "" if value is None else json.dumps(value)

    if command == "create":
        return CallView(f"create {path}", [Block(text("file_text"), path)])
    if command == "str_replace":
        return CallView(f"replace in {path}", [Block(text("new_str"), path, before=text("old_str"))])
    if command == "insert":
        after = arguments.get("insert_line")
        return CallView(f"insert into {path} after line {after}", [Block(text("insert_text"), path, before="")])
    if command == "view":
        lines = arguments.get("view_range")
        shown = f", lines {lines[0]} to {lines[1]}" if isinstance(lines, list) and len(lines) == 2 else ""
        return CallView(f"view {path}{shown}")
    if command == "undo":
        return CallView(f"undo the last edit of {path}")
    return None


def _read_pass_evaluator(arguments: Mapping[str, Any]) -> CallView | None:
    return CallView("evaluate pass_dir") if not arguments else None


READERS: dict[str, Callable[[Mapping[str, Any]], CallView | None]] = {
    FILE_EDITOR: _read_file_editor,
    PASS_EVALUATOR: _read_pass_evaluator,
}
"""Tool name -> its reader, which returns None for arguments that it does not know."""


def _plain_blocks(arguments: Mapping[str, Any]) -> list[Block]:
    return [
        Block(value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False), label=str(name))
        for name, value in arguments.items()
    ]
