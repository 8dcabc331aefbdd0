"""Our messages and tools as Anthropic's content blocks, and back; and where the cache's breakpoints go.

Thinking blocks are signed and must go back as they came, in their place. The record keeps them (`provider_blocks`) with
a placeholder for each text and each call, whose contents the message holds already: {"type": "text", "num_chars": n},
{"type": "tool_use"}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajectories.policies.server_events import Pieces, joined
from trajectories.record import Message, ToolCall

MAX_BREAKPOINTS = 4
"""The API's limit of cache_control marks a request."""
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
_NO_TEXT = "(no text)"
"""The API refuses empty text."""
_UNREADABLE = "unreadable_arguments"
"""Key under which arguments that are no JSON object go back: the API wants an object."""

Block = dict[str, Any]


def to_request(messages: Sequence[Message]) -> tuple[list[Block], list[Block]]:
    """System blocks and the conversation. Neighbours of one side become one message, tool results before text."""
    system: list[Block] = []
    turns: list[Block] = []
    for message in messages:
        if message.role == "system":
            system.append(_text_block(message.content))
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _assistant_blocks(message) if role == "assistant" else [_user_block(message)]
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return system, turns


def to_tools(tools: Sequence[Mapping[str, Any]]) -> list[Block]:
    """OpenAI's tool schemas in Anthropic's form."""
    return [
        {
            "name": tool["function"]["name"],
            "description": tool["function"].get("description", ""),
            "input_schema": tool["function"].get("parameters", {"type": "object", "properties": {}}),
        }
        for tool in tools
    ]


def mark_for_cache(tools: list[Block], system: list[Block], turns: list[Block], ttl: str) -> None:
    """Set the breakpoints, in place: last tool, last system block, and the last two messages that are not the model's.

    The last one is written for the next request; the one before is where this request's cached prefix ends.
    """
    mark = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    others = [turn["content"] for turn in turns if turn["role"] == "user"]
    ends = [blocks[-1] for blocks in (tools, system, *others[-2:]) if blocks]
    for block in ends[-MAX_BREAKPOINTS:]:
        block["cache_control"] = mark


def kept_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[Block] | None:
    """What the record keeps of an answer's blocks; None if plain text and calls are all there is."""
    if not any(block["type"] in THINKING_TYPES for block in blocks):
        return None
    kept: list[Block] = []
    for block in blocks:
        if block["type"] in THINKING_TYPES:
            kept.append({key: value for key, value in block.items() if value is not None})
        elif block["type"] == "text":
            kept.append({"type": "text", "num_chars": len(block["text"])})
        else:
            kept.append({"type": "tool_use"})
    return kept


def _user_block(message: Message) -> Block:
    if message.role != "tool":
        return _text_block(message.content)
    result: Block = {"type": "tool_result", "tool_use_id": _call_id(message.tool_call_id or "")}
    if message.content:
        result["content"] = [{"type": "text", "text": message.content}]
    return result


def _assistant_blocks(message: Message) -> list[Block]:
    texts, calls = message.content, list(message.tool_calls)
    kept = message.provider_blocks or []
    blocks: list[Block] = []
    if _fits(kept, message):
        position = 0
        for block in kept:
            if block["type"] == "text":
                text = texts[position : position + block["num_chars"]]
                position += len(text)
                blocks += [{"type": "text", "text": text}] if text.strip() else []
            elif block["type"] == "tool_use":
                blocks.append(_call_block(calls.pop(0)))
            else:
                blocks.append(dict(block))
        return _ended(blocks)
    # the message was changed since (or never had signed blocks): thinking first, as the API wants it
    blocks += [dict(block) for block in kept if block.get("type") in THINKING_TYPES]
    blocks += [{"type": "text", "text": texts}] if texts.strip() else []
    blocks += [_call_block(call) for call in calls]
    return _ended(blocks)


def _ended(blocks: list[Block]) -> list[Block]:
    """The blocks of an answer so that the API takes them back, though it was cut off in the middle of a thought: the
    last thought then has no signature, and no answer may end with one."""
    while blocks and blocks[-1]["type"] == "thinking" and not blocks[-1].get("signature"):
        blocks.pop()
    if not blocks or blocks[-1]["type"] in THINKING_TYPES:
        blocks.append(_text_block(""))
    return blocks


def _fits(kept: Sequence[Mapping[str, Any]], message: Message) -> bool:
    """Whether the placeholders describe the message as it is."""
    types = [block.get("type") for block in kept]
    num_chars = sum(block.get("num_chars", 0) for block in kept)
    return (
        bool(types)
        and set(types) <= {*THINKING_TYPES, "text", "tool_use"}
        and num_chars == len(message.content)
        and types.count("tool_use") == len(message.tool_calls)
    )


def _call_block(call: ToolCall) -> Block:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {_UNREADABLE: call.arguments}
    return {"type": "tool_use", "id": _call_id(call.id), "name": _name(call.name), "input": arguments}


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text if text.strip() else _NO_TEXT}


def _call_id(call_id: str) -> str:
    """The API takes letters, digits, _ and - alone."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "call"


def _name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:128] or "unnamed"


class BlockCollector:
    """The blocks of one answer, from a stream's events or from a whole message; arguments as the exact text."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self.stop_reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.is_whole = False
        self.has_begun = False
        self._by_index: dict[int, Block] = {}

    @property
    def blocks(self) -> list[Block]:
        """text, thinking, redacted_thinking and tool_use (with "arguments" as text), in order."""
        return [joined(block) for block in self._blocks]

    @property
    def num_chars(self) -> int:
        return sum(len(value) for block in self.blocks for key, value in block.items() if key in _WRITTEN_FIELDS)

    def add_message(self, message: Mapping[str, Any]) -> None:
        """A message in one piece."""
        self.has_begun = True
        for block in _dicts(message.get("content")):
            self._add(block, arguments=json.dumps(block.get("input") or {}, ensure_ascii=False))
        self._end(message)
        self.is_whole = self.stop_reason is not None

    def add_event(self, event: Mapping[str, Any]) -> None:
        """One event of a stream; unknown ones are passed over, as the API's rules for clients say."""
        kind = event.get("type")
        if kind == "message_start":
            self.has_begun = True
            self._end(event.get("message") or {})
        elif kind == "content_block_start":
            block = self._add(event.get("content_block") or {}, arguments="")
            if block is not None:
                self._by_index[event.get("index", -1)] = block
        elif kind == "content_block_delta":
            self._add_delta(self._by_index.get(event.get("index", -1)), event.get("delta") or {})
        elif kind == "message_delta":
            self._end({**(event.get("delta") or {}), "usage": event.get("usage")})
        elif kind == "message_stop":
            self.is_whole = self.stop_reason is not None

    def of_type(self, kind: str) -> Iterator[Block]:
        return (block for block in self.blocks if block["type"] == kind)

    def _add(self, block: Mapping[str, Any], *, arguments: str) -> Block | None:
        kind = block.get("type")
        kept: Block
        if kind == "text":
            kept = {"type": "text", "text": str(block.get("text") or "")}
        elif kind == "tool_use":
            kept = {
                "type": "tool_use",
                "id": str(block.get("id") or ""),
                "name": str(block.get("name") or ""),
                "arguments": arguments,
            }
        elif kind in THINKING_TYPES:
            kept = dict(block)
        else:
            return None
        self._blocks.append(kept)
        return kept

    def _add_delta(self, block: Block | None, delta: Mapping[str, Any]) -> None:
        written = _DELTAS.get(str(delta.get("type")))
        if block is None or written is None:
            return
        source, target = written
        if not isinstance(block.get(target), Pieces):
            block[target] = Pieces([str(block.get(target) or "")])
        block[target].append(str(delta.get(source) or ""))

    def _end(self, part: Mapping[str, Any]) -> None:
        self.stop_reason = part.get("stop_reason") or self.stop_reason
        usage = part.get("usage")
        if isinstance(usage, Mapping):
            self.usage |= {key: value for key, value in usage.items() if value is not None}


_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "arguments"),
}
"""Type of a delta -> its field, and the block's field that it continues."""
_WRITTEN_FIELDS = frozenset({"text", "thinking", "name", "arguments"})


def _dicts(value: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else ()
