"""Rules of the two protocols that a request must keep, as the real endpoints check them; Anthropic's prompt cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

CHARS_PER_TOKEN = 4
MAX_CACHE_MARKS = 4


def openai_fault(body: Mapping[str, Any]) -> str | None:
    """What is wrong with a chat completions request; None if nothing is."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"tool message answers no call: {message['tool_call_id']}"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"calls without an answer: {waiting}"
        for call in message.get("tool_calls", []):
            if not isinstance(call["function"]["arguments"], str):
                return "arguments must be text"
            waiting.append(call["id"])
    return f"calls without an answer: {waiting}" if waiting else None


def anthropic_fault(body: Mapping[str, Any]) -> str | None:
    """What is wrong with a messages request; None if nothing is."""
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    if sum("cache_control" in block for block in _blocks(body)) > MAX_CACHE_MARKS:
        return "A maximum of 4 blocks with cache_control may be provided."
    previous: Mapping[str, Any] = {"role": "assistant", "content": []}
    for index, message in enumerate(body["messages"]):
        if message["role"] == previous["role"]:
            return f"messages.{index}: roles must alternate"
        if not message["content"]:
            return f"messages.{index}: all messages must have non-empty content"
        calls = {block["id"] for block in previous["content"] if block["type"] == "tool_use"}
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        if message["role"] == "user" and (calls != set(results) or len(results) != len(calls)):
            return f"messages.{index}: `tool_use` ids were found without `tool_result` blocks, or the other way round"
        if [block["type"] for block in message["content"]][: len(results)] != ["tool_result"] * len(results):
            return f"messages.{index}: tool results must come first"
        for block in message["content"]:
            fault = _block_fault(block)
            if fault:
                return f"messages.{index}: {fault}"
        if message["role"] == "assistant" and message["content"][-1]["type"] in ("thinking", "redacted_thinking"):
            return f"messages.{index}: The final block in an assistant message cannot be `thinking`."
        ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if len(set(ids)) != len(ids):
            return f"messages.{index}: `tool_use` ids must be unique"
        previous = message
    return "the last message must be the user's" if previous["role"] != "user" else None


def sign(thinking: str) -> str:
    """The signature of a thinking block."""
    return hashlib.sha256(f"signed {thinking}".encode()).hexdigest()


class PromptCache:
    """What of a prompt was seen before, up to a mark."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def usage(self, body: Mapping[str, Any]) -> dict[str, int]:
        """Token counts of a request: the longest marked prefix that is known is read, what follows up to the last mark
        is written."""
        text, read, written = "", 0, 0
        new: list[str] = []
        for block in _blocks(body):
            text += json.dumps({key: value for key, value in block.items() if key != "cache_control"})
            if "cache_control" not in block:
                continue
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest in self._seen:
                read = len(text) // CHARS_PER_TOKEN
            new.append(digest)
            written = len(text) // CHARS_PER_TOKEN
        self._seen.update(new)
        total = len(text) // CHARS_PER_TOKEN
        return {
            "input_tokens": total - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written - read,
            "output_tokens": 20,
        }


def _blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Tools, system and messages, in the order in which the prompt has them."""
    yield from body.get("tools", [])
    yield from body.get("system", [])
    for message in body["messages"]:
        yield from message["content"]


def _block_fault(block: Mapping[str, Any]) -> str | None:
    if block["type"] == "text" and not block["text"].strip():
        return "text content blocks must be non-empty"
    if block["type"] == "thinking" and block["signature"] != sign(block["thinking"]):
        return "Invalid `signature` in `thinking` block"
    if block["type"] == "tool_use" and not isinstance(block["input"], dict):
        return "tool_use.input: Input should be a valid dictionary"
    if block["type"] in ("thinking", "redacted_thinking") and "cache_control" in block:
        return "cache_control cannot be set for thinking blocks"
    return None
