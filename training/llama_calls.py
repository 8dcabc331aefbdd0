"""What a student writes with the template llama3_1, as a Message: calls are bare JSON objects after the text.

{"name": "file_editor", "parameters": {...}}; {"name": "pass_evaluator", "parameters": {}}
"""

from __future__ import annotations

import json
import re

from training.chat_tokens import MALFORMED_CALL_NAME, parse_assistant_text
from trajectories.record import Message, ToolCall

_FIRST_CALL = re.compile(r'(?:\A|\n)(?=\{\s*"name"\s*:)')
_CLOSE = re.compile(r"\s*\}")
_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:parameters|arguments)"\s*:\s*')


def parse_llama_text(text: str, *, call_id_prefix: str = "call") -> Message:
    """The message; argument text is kept character by character, and nothing raises.

    What cannot be read as a call becomes one whose name or arguments the environment reports as malformed.
    """
    thought = text.find("</think>") if text.startswith("<think>") else 0  # a call in it is none
    first = _FIRST_CALL.search(text, max(0, thought))
    if first is None:
        return parse_assistant_text(text, call_id_prefix=call_id_prefix)
    message = parse_assistant_text(text[: first.end()], call_id_prefix=call_id_prefix)
    message.content = message.content.removesuffix("\n")  # the template's, before the first call
    position = first.end()
    calls: list[ToolCall] = []
    while position < len(text):
        call, position = _read_call(text, position, f"{call_id_prefix}_{len(calls)}")
        calls.append(call)
        position += len(text[position:]) - len(text[position:].lstrip("; \n"))
    message.tool_calls = calls
    return message


def _read_call(text: str, start: int, call_id: str) -> tuple[ToolCall, int]:
    """The call that starts here, and where the text after it begins; the rest of the text if it is broken."""
    head = _HEAD.match(text, start)
    if head is None:
        return ToolCall(id=call_id, name=MALFORMED_CALL_NAME, arguments=text[start:]), len(text)
    try:
        name = json.loads(head.group(1))
    except ValueError:  # an escape that is none
        return ToolCall(id=call_id, name=MALFORMED_CALL_NAME, arguments=text[start:]), len(text)
    try:
        _, end = json.JSONDecoder().raw_decode(text, head.end())
    except (ValueError, RecursionError):
        return ToolCall(id=call_id, name=name, arguments=text[head.end() :].rstrip().removesuffix("}")), len(text)
    close = _CLOSE.match(text, end)
    if close is None:
        return ToolCall(id=call_id, name=MALFORMED_CALL_NAME, arguments=text[start:]), len(text)
    return ToolCall(id=call_id, name=name, arguments=text[head.end() : end]), close.end()
