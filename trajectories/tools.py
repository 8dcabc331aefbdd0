"""The two tools of an agent: their JSON schemas in OpenAI's form, the reading of a call, and file_editor's execution.

    file_editor    {"command": "view", "path": "graphs/0/model.py"}                  also "view_range": [first, last]
                   {"command": "create", "path": "pass_dir/Fuse.py", "file_text": "..."}   creates or overwrites
                   {"command": "str_replace", "path": ..., "old_str": ..., "new_str": ...} old_str must occur once
                   {"command": "insert", "path": ..., "insert_line": 3, "insert_text": "..."}  after line 3; 0: on top
                   {"command": "undo", "path": ...}                                  takes back that file's last edit
    pass_evaluator {}    judges pass_dir as it is now; its result is the text of the verdict

Which paths there are: see workspace.py. pass_evaluator needs the evaluator and is executed by environment.py. A
malformed call (unknown tool, not JSON, a wrong argument) is a MalformedCallError; a well-formed call that fails (no
such file) is an observation like any other. Both are answered with what was wrong; only the first is a format error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trajectories.record import ToolCall
from trajectories.workspace import Workspace, WorkspaceError

FILE_EDITOR = "file_editor"
PASS_EVALUATOR = "pass_evaluator"
MAX_REPLY_CHARS = 4_000

_COMMAND_ARGUMENTS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "view": (frozenset(), frozenset({"view_range"})),
    "create": (frozenset({"file_text"}), frozenset()),
    "str_replace": (frozenset({"old_str"}), frozenset({"new_str"})),
    "insert": (frozenset({"insert_line", "insert_text"}), frozenset()),
    "undo": (frozenset(), frozenset()),
}
"""Command -> arguments that it needs, arguments that it may have; path goes with each."""

_ARGUMENT_SCHEMAS: dict[str, dict[str, Any]] = {
    "command": {"type": "string", "enum": list(_COMMAND_ARGUMENTS)},
    "path": {"type": "string"},
    "file_text": {"type": "string", "description": "create: the whole text"},
    "old_str": {"type": "string", "description": "str_replace: must occur exactly once"},
    "new_str": {"type": "string"},
    "insert_line": {"type": "integer", "description": "insert: after this line, 0 for the top"},
    "insert_text": {"type": "string"},
    "view_range": {"type": "array", "items": {"type": "integer"}, "description": "view: [first, last], -1: end"},
}

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": FILE_EDITOR,
            "description": "View files and folders; create and edit files below pass_dir/.",
            "parameters": {
                "type": "object",
                "properties": _ARGUMENT_SCHEMAS,
                "required": ["command", "path"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": PASS_EVALUATOR,
            "description": "Judge pass_dir as it is now: matching, correctness, speed.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


class MalformedCallError(ValueError):
    """A tool call that cannot be read; the text says what was wrong, for the agent."""


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The call's arguments, checked against its schema. Raises MalformedCallError."""
    if call.name not in (FILE_EDITOR, PASS_EVALUATOR):
        raise MalformedCallError(f"no tool {call.name!r}; the tools are {FILE_EDITOR} and {PASS_EVALUATOR}")
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise MalformedCallError(f"{call.name}: the arguments are not JSON: {error}") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise MalformedCallError(f"{call.name}: the arguments must be a JSON object, not {type(arguments).__name__}")
    # null stands for "not given": some endpoints fill in every property of the schema
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if call.name == PASS_EVALUATOR:
        if arguments:
            raise MalformedCallError(f"{PASS_EVALUATOR} takes no arguments; it judges pass_dir as it is")
        return arguments
    return _check_editor_arguments(arguments)


def _check_editor_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    command = arguments.get("command")
    if not isinstance(command, str) or command not in _COMMAND_ARGUMENTS:
        raise MalformedCallError(f"{FILE_EDITOR}: command {command!r}; choose one of {', '.join(_COMMAND_ARGUMENTS)}")
    needed, optional = _COMMAND_ARGUMENTS[command]
    for name in ("path", *sorted(needed)):
        if name not in arguments:
            raise MalformedCallError(f"{FILE_EDITOR} {command}: argument {name!r} is missing")
    for name, value in arguments.items():
        if name not in _ARGUMENT_SCHEMAS:
            raise MalformedCallError(f"{FILE_EDITOR}: unknown argument {name!r}")
        if name not in needed | optional | {"command", "path"} and value not in ("", 0, []):
            raise MalformedCallError(f"{FILE_EDITOR} {command}: argument {name!r} does not belong to it")
        if not _has_type(value, _ARGUMENT_SCHEMAS[name]["type"]):
            raise MalformedCallError(f"{FILE_EDITOR} {command}: {name!r} must be {_ARGUMENT_SCHEMAS[name]['type']}")
    return arguments


def _has_type(value: Any, schema_type: str) -> bool:
    if schema_type == "string":
        return isinstance(value, str)
    if schema_type == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def edit_files(workspace: Workspace, arguments: Mapping[str, Any], *, max_chars: int = MAX_REPLY_CHARS) -> str:
    """Execute one file_editor call whose arguments parse_arguments has checked; the reply, clipped to max_chars."""
    try:
        reply = _COMMANDS[arguments["command"]](workspace, arguments)
    except WorkspaceError as error:
        reply = f"error: {error}"
    return clip(reply, max_chars, "view_range shows the rest")


def clip(text: str, max_chars: int, hint: str) -> str:
    """The text if it fits, else its start, whole lines where possible, and how much was left out."""
    if len(text) <= max_chars:
        return text
    note = f"\n... {len(text)} characters in all; {hint}"
    kept = text[: max(0, max_chars - len(note))]
    newline = kept.rfind("\n")
    return (kept[:newline] if newline > len(kept) // 2 else kept) + note[:max_chars]


def _view(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
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


def _create(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    existed = workspace.exists(arguments["path"])
    path = workspace.write(arguments["path"], arguments["file_text"])
    return f"{'overwrote' if existed else 'created'} {path}"


def _str_replace(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    text, old = workspace.read(arguments["path"]), arguments["old_str"]
    if not old:
        raise WorkspaceError("old_str is empty; use insert to add text")
    if text.count(old) != 1:
        found = "does not occur" if text.count(old) == 0 else f"occurs {text.count(old)} times"
        raise WorkspaceError(f"old_str {found} in {arguments['path']}; it must occur exactly once")
    path = workspace.write(arguments["path"], text.replace(old, arguments.get("new_str", "")))
    return f"edited {path} at line {text[: text.index(old)].count(chr(10)) + 1}"


def _insert(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
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


def _undo(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    text = workspace.undo(arguments["path"])
    return f"{arguments['path']} is gone again" if text is None else f"{arguments['path']} is as before its last edit"


_COMMANDS = {"view": _view, "create": _create, "str_replace": _str_replace, "insert": _insert, "undo": _undo}
