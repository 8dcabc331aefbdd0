"""The HTTP client under both SDKs: a limit on silence (a stall) and one on the whole answer, and no redirects.

A read timeout alone never ends an endpoint that sends a comment every ten seconds and nothing else; the whole-answer
limit does. Redirects are not followed: a key in a header of its own (`x-api-key`) would go along to another host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2

CONNECT_TIMEOUT_S = 30.0
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
"""httpx's own limit of 100 connections would hold up a larger number of attempts at a time."""


class DeadlineClient(httpx2.Client):
    """An httpx client whose answers must be read within a time; thread-safe, as httpx clients are."""

    def __init__(self, *, timeout_s: float, stall_timeout_s: float) -> None:
        """timeout_s: a whole answer. stall_timeout_s: between two reads of the socket."""
        self._timeout_s = timeout_s
        timeout = httpx2.Timeout(stall_timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s), pool=timeout_s)
        super().__init__(timeout=timeout, limits=_LIMITS, follow_redirects=False)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send, and read the body unless stream is set. Raises httpx2.ReadTimeout past either limit."""
        deadline = time.monotonic() + self._timeout_s
        response = super().send(request, stream=True, **options)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _WatchedStream(response.stream, deadline, f"no whole answer in {self._timeout_s:g} s")
        if not stream:
            try:
                response.read()
            except BaseException:
                response.close()
                raise
        return response


class _WatchedStream(httpx2.SyncByteStream):
    """A body that may be read until its deadline."""

    def __init__(self, stream: httpx2.SyncByteStream, deadline: float, message: str) -> None:
        self._stream, self._deadline, self._message = stream, deadline, message

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout(self._message)
            yield chunk

    def close(self) -> None:
        self._stream.close()
