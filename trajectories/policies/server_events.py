"""The events of a streamed answer as plain JSON, read from the SDK's open response.

The SDKs' own readers build a typed object for each token, 0.2 ms of Python each: at 64 answers at a time that takes
the whole process. Requests, connections and errors stay the SDKs'; only the reading of events is here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from trajectories.policies.retries import MalformedAnswerError

_END = b"[DONE]"
MAX_LINE_BYTES = 64 << 20
"""Of a line; an endpoint that never ends one would take the memory, and time in the square of what it sends."""


class Pieces(list[str]):
    """Text that comes in pieces: to add each to the text before it takes time in the square of the answer."""

    def __str__(self) -> str:
        return "".join(self)


def joined(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with whole texts."""
    return {key: str(value) if isinstance(value, Pieces) else value for key, value in fields.items()}


class EventError(Exception):
    """The endpoint reported an error inside an answer that it had begun with status 200."""

    def __init__(self, error: Any) -> None:
        """error: what it said, as plain data."""
        super().__init__(json.dumps(error, ensure_ascii=False) if not isinstance(error, str) else error)
        known = error if isinstance(error, Mapping) else {}
        self.code = str(known.get("code") or "")
        self.type = str(known.get("type") or "")


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether the endpoint streams; some answer in one piece whatever was asked for."""
    return "text/event-stream" in response.headers.get("content-type", "")


def read_json(response: httpx2.Response) -> Mapping[str, Any]:
    """The body of an answer in one piece. Raises MalformedAnswerError for anything but a JSON object."""
    body = response.read()
    try:
        value = json.loads(body)
    except ValueError:
        text = body[:300].decode("utf-8", "replace")
        raise MalformedAnswerError(f"the answer is not JSON (is policy.base_url right?): {text}") from None
    if not isinstance(value, Mapping):
        raise MalformedAnswerError(f"the answer is no JSON object: {str(value)[:200]}")
    _raise_error(value)
    return value


def read_events(response: httpx2.Response) -> Iterator[Mapping[str, Any]]:
    """The JSON object of each event, up to the end mark or the end of the body.

    Raises MalformedAnswerError for an event that is no JSON object, EventError for one that reports an error.
    """
    data: list[bytes] = []
    for line in _lines(response):
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            event = b"\n".join(data)
            data = []
            if event == _END:
                return
            yield _event(event)
    if data and b"\n".join(data) != _END:
        yield _event(b"\n".join(data))


def _event(text: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise MalformedAnswerError(f"an event is not JSON: {text[:200].decode('utf-8', 'replace')}") from None
    if not isinstance(value, Mapping):
        raise MalformedAnswerError(f"an event is no JSON object: {str(value)[:200]}")
    _raise_error(value)
    return value


def _raise_error(value: Mapping[str, Any]) -> None:
    if value.get("error"):
        raise EventError(value["error"])


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """Lines without their ends. Bytes, as text would also break at characters that JSON strings may hold."""
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
        if len(rest) > MAX_LINE_BYTES:
            raise MalformedAnswerError(f"an event is longer than {MAX_LINE_BYTES >> 20} MiB")
    if rest:
        yield rest.rstrip(b"\r")
