"""A model's answer as both protocols write it: whole, and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.protocol_rules import sign

PIECE_CHARS = 7
"""Streamed text and arguments come in pieces of this length."""


@dataclass(frozen=True)
class Answer:
    """What the model says, in either protocol."""

    content: str | None = ""
    calls: Sequence[tuple[str, str]] = ()
    """Tool name and arguments text of each."""
    reasoning: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """OpenAI: further fields of the message (streamed in one piece)."""
    reasoning_field: str = "reasoning_content"
    redacted: str | None = None
    """Anthropic: data of a redacted_thinking block."""
    finish: str | None = None
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20})
    """OpenAI's; None leaves it out. Anthropic's is counted."""


def openai_message(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, **answer.fields}
    if answer.reasoning is not None:
        message[answer.reasoning_field] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(answer.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    value = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return value | ({"usage": dict(answer.usage)} if answer.usage is not None else {})


def openai_events(answer: Answer, *, with_usage: bool) -> Iterator[bytes]:
    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return _chunk([{"index": 0, "delta": delta, "finish_reason": finish}])

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(answer.reasoning or ""):
        yield chunk({answer.reasoning_field: piece})
    if answer.fields:
        yield chunk(answer.fields)
    for piece in _pieces(answer.content or ""):
        yield chunk({"content": piece})
    for index, (name, arguments) in enumerate(answer.calls):
        head = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for piece in _pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(answer))
    if with_usage and answer.usage is not None:
        yield _chunk([], usage=dict(answer.usage))
    yield b"data: [DONE]\n\n"


def anthropic_message(answer: Answer, usage: dict[str, int]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": sign(answer.reasoning)})
    if answer.redacted is not None:
        blocks.append({"type": "redacted_thinking", "data": answer.redacted})
    if answer.content:
        blocks.append({"type": "text", "text": answer.content})
    for index, (name, arguments) in enumerate(answer.calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": arguments})
    stop = answer.finish or ("tool_use" if answer.calls else "end_turn")
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return {**message, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def anthropic_events(message: dict[str, Any]) -> Iterator[bytes]:
    started = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield _event("message_start", message=started)
    yield _event("ping")
    for index, block in enumerate(message["content"]):
        head, deltas = dict(block), []
        if block["type"] == "text":
            head["text"] = ""
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        elif block["type"] == "thinking":
            head |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] == "tool_use":
            head["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(block["input"])]
        yield _event("content_block_start", index=index, content_block=head)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield _event("message_stop")


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
