"""The commands of file_editor on a workspace. Arguments are checked before (tools.py); replies are clipped after."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trajectories.workspace import Workspace, WorkspaceError

MAX_LINES_NAMED = 8
"""Places that an error about old_str names."""


def view(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """A folder's files, or a file's lines with their numbers."""
    path = arguments["path"]
    if not workspace.exists(path) and workspace.is_dir(path):
        return "\n".join(workspace.list_dir(path)) or f"{path} is empty"
    lines = workspace.read(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    first, last = 1, len(lines)
    if arguments.get("view_range"):
        view_range = arguments["view_range"]
        if len(view_range) != 2:
            raise WorkspaceError("view_range is [first, last]")
        first, last = view_range[0], len(lines) if view_range[1] == -1 else min(view_range[1], len(lines))
        if not 1 <= first <= max(last, 1) or first > len(lines):
            raise WorkspaceError(f"view_range {view_range}: the file has lines 1 to {len(lines)}")
    return "\n".join(f"{number}\t{lines[number - 1]}" for number in range(first, last + 1)) or f"{path} is empty"


def create(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """Write a whole file."""
    existed = workspace.exists(arguments["path"])
    path = workspace.write(arguments["path"], arguments["file_text"])
    return f"{'overwrote' if existed else 'created'} {path}"


def str_replace(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """Replace a text that occurs once."""
    text, old = workspace.read(arguments["path"]), arguments["old_str"]
    if not old:
        raise WorkspaceError("old_str is empty; use insert to add text")
    if text.count(old) != 1:
        raise WorkspaceError(f"old_str {_places(text, old)} in {arguments['path']}; it must occur exactly once")
    path = workspace.write(arguments["path"], text.replace(old, arguments.get("new_str", "")))
    return f"edited {path} at line {_line_of(text, text.index(old))}"


def insert(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """Add text after a line."""
    lines, after = re.findall(r"[^\n]*\n|[^\n]+", workspace.read(arguments["path"])), arguments["insert_line"]
    if not 0 <= after <= len(lines):
        raise WorkspaceError(f"insert_line {after}: the file has {len(lines)} lines; 0 is its top")
    text = arguments["insert_text"]
    if after < len(lines) and not text.endswith("\n"):
        text += "\n"
    if after and not lines[after - 1].endswith("\n"):
        lines[after - 1] += "\n"
    path = workspace.write(arguments["path"], "".join([*lines[:after], text, *lines[after:]]))
    return f"edited {path} after line {after}"


def undo(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """Take back a file's last edit."""
    text = workspace.undo(arguments["path"])
    return f"{arguments['path']} is gone again" if text is None else f"{arguments['path']} is as before its last edit"


COMMANDS: dict[str, Callable[[Workspace, Mapping[str, Any]], str]] = {
    "view": view,
    "create": create,
    "str_replace": str_replace,
    "insert": insert,
    "undo": undo,
}
"""Command -> its execution: the reply. Each raises WorkspaceError for what cannot be done."""


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _places(text: str, old: str) -> str:
    """Why old does not occur exactly once, with lines to look at."""
    count = text.count(old)
    if count:
        lines: list[str] = []
        position = text.find(old)
        while position >= 0 and len(lines) < MAX_LINES_NAMED:
            lines.append(str(_line_of(text, position)))
            position = text.find(old, position + len(old))
        more = ", ..." if count > len(lines) else ""
        return f"occurs {count} times, at lines {', '.join(lines)}{more},"
    # what models get wrong most: indentation, line ends
    wanted = [line.strip() for line in old.strip().split("\n")]
    there = [line.strip() for line in text.split("\n")]
    for start in range(len(there) - len(wanted) + 1):
        if there[start : start + len(wanted)] == wanted:
            return f"does not occur (line {start + 1} is the same but for white space)"
    return "does not occur"
