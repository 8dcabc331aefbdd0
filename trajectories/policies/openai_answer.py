"""Answers of chat completions, whole or in pieces, as one plain form; and our messages in the form that is sent.

Endpoints differ in what they add to the protocol: reasoning comes as `reasoning_content`, `reasoning` or
`reasoning_details`; streamed calls come without an index, with empty ids, or all under index 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectories.policies.openai_config import OpenAIPolicyConfig
from trajectories.policies.retries import MalformedAnswerError
from trajectories.policies.server_events import Pieces, joined
from trajectories.record import Message

_DETAILS_PREFIX = "reasoning."
"""Types of the items in reasoning_details."""
_JOINED_FIELDS = ("text", "summary", "data")
"""Of an item: what comes in pieces and is joined; of the other fields the last value counts."""
REFUSAL = "refusal"
"""Our finish reason of an answer that declines; endpoints end those with "stop"."""


@dataclass
class RawAnswer:
    """One answer as the endpoint gave it, its pieces joined."""

    content_pieces: Pieces = field(default_factory=Pieces)
    reasoning_pieces: Pieces = field(default_factory=Pieces)
    details_in_pieces: list[dict[str, Any]] = field(default_factory=list)
    calls_in_pieces: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    has_begun: bool = False
    """Whether anything came at all."""

    @property
    def content(self) -> str:
        return str(self.content_pieces)

    @property
    def reasoning(self) -> str:
        return str(self.reasoning_pieces)

    @property
    def reasoning_details(self) -> list[dict[str, Any]]:
        return [joined(item) for item in self.details_in_pieces]

    @property
    def calls(self) -> list[dict[str, str]]:
        """id, name, arguments of each, in order."""
        return [joined(call) for call in self.calls_in_pieces]

    @property
    def num_chars(self) -> int:
        """Of all that the model wrote, for an estimate of its tokens."""
        calls = sum(len(call["name"]) + len(call["arguments"]) for call in self.calls)
        return len(self.content) + len(self.reasoning) + calls

    def visible_reasoning(self) -> str:
        """The reasoning; where the endpoint gave details alone, their text and summaries."""
        if reasoning := self.reasoning:
            return reasoning
        parts = [item.get("text") or item.get("summary") or "" for item in self.reasoning_details]
        return "\n\n".join(part for part in parts if isinstance(part, str) and part)


def read_whole(response: Mapping[str, Any]) -> RawAnswer:
    """An answer in one piece. Raises MalformedAnswerError for one without a choice."""
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedAnswerError(f"the answer has no choices: {response.get('error') or dict(response)}")
    answer = RawAnswer(has_begun=True)
    _add_choice(answer, choices[0], choices[0].get("message"))
    _add_usage(answer, response)
    return _checked(answer, "the answer's only choice has no message")


def add_chunk(answer: RawAnswer, chunk: Mapping[str, Any]) -> None:
    """One piece of a streamed answer. Raises MalformedAnswerError if it says that the answer failed."""
    answer.has_begun = True
    _add_usage(answer, chunk)
    choices = chunk.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        _add_choice(answer, choices[0], choices[0].get("delta"))


def read_stream_end(answer: RawAnswer) -> RawAnswer:
    """The joined answer. Raises MalformedAnswerError if the stream ended before the answer did."""
    return _checked(answer, "the stream ended before the answer did")


def to_sent(message: Message, config: OpenAIPolicyConfig) -> dict[str, Any]:
    """A message as it is sent, its reasoning under the name that this endpoint reads."""
    sent = message.to_openai()
    reasoning = sent.pop("reasoning_content", None)
    if message.role != "assistant" or not config.send_reasoning:
        return sent
    details = [block for block in message.provider_blocks or () if _is_detail(block)]
    if details:
        sent["reasoning_details"] = details
    elif reasoning and message.reasoning_policy != "summarised":  # a rationale was asked for later: not its own
        sent[config.reasoning_field] = reasoning
    return sent


def _checked(answer: RawAnswer, otherwise: str) -> RawAnswer:
    if answer.finish_reason is None:
        raise MalformedAnswerError(otherwise)
    if answer.finish_reason == "error":
        raise MalformedAnswerError("the answer broke off: finish_reason is error")
    return answer


def _add_choice(answer: RawAnswer, choice: Mapping[str, Any], part: Any) -> None:
    if choice.get("error"):
        raise MalformedAnswerError(f"the answer broke off: {choice['error']}")
    finish_reason = choice.get("finish_reason")
    if isinstance(finish_reason, str) and finish_reason and answer.finish_reason != REFUSAL:
        answer.finish_reason = finish_reason
    if not isinstance(part, Mapping):
        return
    answer.content_pieces.append(_text(part.get("content")))
    answer.reasoning_pieces.append(_text(part.get("reasoning_content")) or _text(part.get("reasoning")))
    refusal = _text(part.get("refusal"))
    if refusal:
        answer.content_pieces.append(refusal)
        answer.finish_reason = REFUSAL
    for item in _dicts(part.get("reasoning_details")):
        _add_detail(answer.details_in_pieces, item)
    for call in _dicts(part.get("tool_calls")):
        _add_call(answer.calls_in_pieces, call)
    if answer.finish_reason is None and "delta" not in choice and (answer.content or answer.calls):
        answer.finish_reason = "tool_calls" if answer.calls else "stop"  # some servers leave it out of whole answers


def _add_call(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    function = piece.get("function")
    function = function if isinstance(function, Mapping) else {}
    call_id, name = _text(piece.get("id")), _text(function.get("name"))
    index = piece.get("index")
    position = index if isinstance(index, int) else (len(calls) - 1 if not (call_id or name) else len(calls))
    known = next((call for call in reversed(calls) if call["position"] == str(position)), None)
    # a new id and name under a known index is the next call: some endpoints give every call index 0
    if known is None or (name and call_id and known["id"] and call_id != known["id"]):
        known = {"position": str(position), "id": "", "name": "", "arguments": Pieces()}
        calls.append(known)
    known["id"] = known["id"] or call_id
    known["name"] = known["name"] or name
    arguments = function.get("arguments")  # the protocol says text; some servers send the object itself
    text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else _text(arguments)
    known["arguments"].append(text)


def _add_detail(details: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    last = details[-1] if details else None
    is_next = last is None or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index"))
    if last is None or is_next or (last.get("id") and piece.get("id") and last["id"] != piece["id"]):
        last = dict.fromkeys(piece)
        details.append(last)
    for key, value in piece.items():
        if key in _JOINED_FIELDS and isinstance(value, str):
            if not isinstance(last.get(key), Pieces):
                last[key] = Pieces()
            last[key].append(value)
        elif value is not None:
            last[key] = value


def _add_usage(answer: RawAnswer, part: Mapping[str, Any]) -> None:
    usage = part.get("usage")
    if isinstance(usage, Mapping) and usage.get("prompt_tokens") is not None:
        answer.usage = usage


def _is_detail(block: Mapping[str, Any]) -> bool:
    return str(block.get("type", "")).startswith(_DETAILS_PREFIX)


def _text(value: Any) -> str:
    """Text, or the text parts of a list of content parts; "" for anything else."""
    if isinstance(value, str):
        return value
    return "".join(_text(part.get("text")) for part in _dicts(value))


def _dicts(value: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else ()
