"""The two tools of an agent: their JSON schemas in OpenAI's form, and the reading of a call.

    file_editor    {"command": "view", "path": "graphs/0/model.py"}                  also "view_range": [first, last]
                   {"command": "create", "path": "pass_dir/Fuse.py", "file_text": "..."}   creates or overwrites
                   {"command": "str_replace", "path": ..., "old_str": ..., "new_str": ...} old_str must occur once
                   {"command": "insert", "path": ..., "insert_line": 3, "insert_text": "..."}  after line 3; 0: on top
                   {"command": "undo", "path": ...}                                  takes back that file's last edit
    pass_evaluator {}    judges pass_dir as it is now; its result is the text of the verdict

Which paths there are: workspace.py; what file_editor does: file_editor.py; pass_evaluator is run by environment.py.
A malformed call (unknown tool, not JSON, a wrong argument) is a MalformedCallError; a well-formed call that fails (no
such file) is an observation like any other. Both are answered with what was wrong; only the first is a format error.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from trajectories.file_editor import COMMANDS
from trajectories.record import ToolCall, storable
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

_EXAMPLES = {
    "view": '{"command": "view", "path": "graphs/0/model.py"}',
    "create": '{"command": "create", "path": "pass_dir/Fuse.py", "file_text": "..."}',
    "str_replace": '{"command": "str_replace", "path": "pass_dir/Fuse.py", "old_str": "...", "new_str": "..."}',
    "insert": '{"command": "insert", "path": "pass_dir/Fuse.py", "insert_line": 0, "insert_text": "..."}',
    "undo": '{"command": "undo", "path": "pass_dir/Fuse.py"}',
}
"""What a malformed call is told to write."""
_TYPE_NAMES = {"string": "a string", "integer": "an integer", "array": "a list of integers"}
_MAX_SHOWN = 80
"""Characters of what the agent wrote that an error repeats."""

_ARGUMENT_SCHEMAS: dict[str, dict[str, Any]] = {
    "command": {"type": "string", "enum": list(COMMANDS)},
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
    """A tool call that cannot be read; the text says what was wrong and how to write it, for the agent."""


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The call's arguments, checked against its schema. Raises MalformedCallError, and nothing else."""
    if call.name not in (FILE_EDITOR, PASS_EVALUATOR):
        nearest = difflib.get_close_matches(call.name[:_MAX_SHOWN], (FILE_EDITOR, PASS_EVALUATOR, *COMMANDS), n=1)
        hint = f"the tools are {FILE_EDITOR} and {PASS_EVALUATOR}"
        if nearest:
            is_command = nearest[0] in COMMANDS
            hint = f"write {FILE_EDITOR} {_EXAMPLES[nearest[0]]}" if is_command else f"did you mean {nearest[0]!r}?"
        raise MalformedCallError(f"no tool {_shown(call.name)}; {hint}")
    try:
        arguments = json.loads(call.arguments or "{}")
    except json.JSONDecodeError as error:
        raise MalformedCallError(f"{call.name}: the arguments are not JSON: {_json_fault(error)}") from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; thousands of brackets
        raise MalformedCallError(f"{call.name}: the arguments are not JSON: {_shown(str(error))}") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise MalformedCallError(f"{call.name}: the arguments must be a JSON object, not {_json_type(arguments)}")
    # null stands for "not given": some endpoints fill in every property of the schema
    arguments = {name: value for name, value in arguments.items() if value is not None}
    # an escape such as \\ud800 is JSON, and half a character that no file can hold
    arguments = {name: storable(value) if isinstance(value, str) else value for name, value in arguments.items()}
    if call.name == PASS_EVALUATOR:
        if arguments:
            raise MalformedCallError(f"{PASS_EVALUATOR} takes no arguments; it judges pass_dir as it is: write {{}}")
        return arguments
    return _check_editor_arguments(arguments)


def _check_editor_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    command = arguments.get("command")
    if not isinstance(command, str) or command not in COMMANDS:
        if command is None:
            raise MalformedCallError(f"{FILE_EDITOR}: 'command' is missing; choose one of {', '.join(COMMANDS)}")
        nearest = difflib.get_close_matches(str(command)[:_MAX_SHOWN], COMMANDS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise MalformedCallError(
            f"{FILE_EDITOR}: no command {_shown(command)}; {hint}choose one of {', '.join(COMMANDS)}"
        )
    needed, optional = _COMMAND_ARGUMENTS[command]
    allowed = needed | optional | {"command", "path"}
    example = f"; write {_EXAMPLES[command]}"
    for name in arguments:
        if name not in _ARGUMENT_SCHEMAS:
            nearest = difflib.get_close_matches(name[:_MAX_SHOWN], sorted(allowed), n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else example
            raise MalformedCallError(f"{FILE_EDITOR} {command}: unknown argument {_shown(name)}{hint}")
    missing = [name for name in ("path", *sorted(needed)) if name not in arguments]
    if missing:
        names = " and ".join(map(repr, missing))
        raise MalformedCallError(
            f"{FILE_EDITOR} {command}: {names} {'is' if len(missing) == 1 else 'are'} missing{example}"
        )
    for name, value in arguments.items():
        if name not in allowed and value not in ("", 0, []):
            raise MalformedCallError(f"{FILE_EDITOR} {command}: argument {name!r} does not belong to it{example}")
        if not _has_type(value, _ARGUMENT_SCHEMAS[name]["type"]):
            wanted = _TYPE_NAMES[_ARGUMENT_SCHEMAS[name]["type"]]
            raise MalformedCallError(f"{FILE_EDITOR} {command}: {name!r} must be {wanted}, not {_json_type(value)}")
    return arguments


def _has_type(value: Any, schema_type: str) -> bool:
    if schema_type == "string":
        return isinstance(value, str)
    if schema_type == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _json_type(value: Any) -> str:
    """What a JSON value is called, such as "the string '3'"."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {_shown(value)}"
    if isinstance(value, str):
        return f"the string {_shown(value)}"
    return f"the list {_shown(value)}" if isinstance(value, list) else "an object"


def _json_fault(error: json.JSONDecodeError) -> str:
    """What is wrong, the text around it, and the usual cure."""
    text, at = error.doc, error.pos
    said = f"{error.msg.lower()} at character {at} of {len(text)}, near {_shown(text[max(0, at - 20) : at + 20])}"
    if at >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"{said}; the text ends too early: close every string and bracket, or write less in one call"
    if error.msg.startswith("Invalid control"):
        return f"{said}; write a new line in a string as \\n"
    if error.msg.startswith("Invalid \\escape"):
        return f"{said}; write a backslash as \\\\"
    if text[at : at + 1] == "'":
        return f"{said}; strings and names stand in double quotes"
    if error.msg.startswith("Extra data"):
        return f"{said}; one call holds one object"
    return said


def _shown(value: Any) -> str:
    """A short printable form of what the agent wrote."""
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]}...{text[-1]}"


def edit_files(workspace: Workspace, arguments: Mapping[str, Any], *, max_chars: int = MAX_REPLY_CHARS) -> str:
    """Execute one file_editor call whose arguments parse_arguments has checked; the reply, clipped to max_chars."""
    try:
        reply = COMMANDS[arguments["command"]](workspace, arguments)
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
