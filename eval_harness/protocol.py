"""Messages between the judge and the processes it drives, and their framing.

A message is a JSON object behind a four-byte length; file descriptors travel beside it (SCM_RIGHTS). Nothing that is
received is ever unpickled or evaluated. Tensors do not travel here: see tensor_exchange.py.

    judge -> zygote   fork {role, settings} + [channel, output]   -> {ok, pid | message}
                      status {pid}                                -> {status: null | exit code | -signal}
    judge -> worker   hello, load_pass, load_graph, attach, load_set, load_pool, load_windows, pin, compile_ahead, call,
                      deliver, deliver_inputs, ready, run_block, run_trials, gpu_time, time_in_process, oracle,
                      time_nodes, probe
                                                                  -> {ok: true, ...} | {ok: false, kind, message}
                      with a ticket, drawn anew each time, that the answer must carry
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

MAX_MESSAGE_BYTES = 64 << 20
MAX_DESCRIPTORS = 8
_LENGTH = struct.Struct(">I")


class ChannelError(RuntimeError):
    """The peer broke the framing."""


class ChannelClosedError(ChannelError):
    """The peer is gone."""


class ChannelTimeoutError(ChannelError):
    """No whole message came in time."""


class Channel:
    """A framed, descriptor-passing connection over a Unix stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), cls(theirs)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: dict[str, Any], descriptors: tuple[int, ...] = (), *, timeout_s: float = 60.0) -> None:
        """Send one message. Raises ChannelClosedError or ChannelTimeoutError (the peer does not read)."""
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ChannelError(f"message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        data = _LENGTH.pack(len(body)) + body
        self._socket.settimeout(timeout_s)
        try:
            if descriptors:
                sent = socket.send_fds(self._socket, [data], list(descriptors))
                data = data[sent:]
            if data:
                self._socket.sendall(data)
        except TimeoutError:
            raise ChannelTimeoutError(f"the peer took no message for {timeout_s:.0f} s") from None
        except OSError as error:
            raise ChannelClosedError(str(error)) from None

    def receive(
        self, *, timeout_s: float | None = None, max_bytes: int = MAX_MESSAGE_BYTES
    ) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it. Raises ChannelError; descriptors are closed then."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._arm(deadline)
        header, descriptors = self._receive_header()
        try:
            if len(header) < _LENGTH.size:
                header += self._receive_exactly(_LENGTH.size - len(header), deadline)
            (length,) = _LENGTH.unpack(header)
            if length > max_bytes:
                raise ChannelError(f"the peer announced a message of {length} bytes")
            message = _parse(self._receive_exactly(length, deadline))
        except ChannelError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return message, descriptors

    def _receive_header(self) -> tuple[bytes, list[int]]:
        try:
            header, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, MAX_DESCRIPTORS)
        except TimeoutError:
            raise ChannelTimeoutError("no answer in time") from None
        except OSError as error:
            raise ChannelClosedError(str(error)) from None
        if not header:
            raise ChannelClosedError("the peer closed the connection")
        return header, descriptors

    def _receive_exactly(self, count: int, deadline: float | None) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        got = 0
        while got < count:
            self._arm(deadline)
            try:
                step = self._socket.recv_into(view[got:])
            except TimeoutError:
                raise ChannelTimeoutError("no whole answer in time") from None
            except OSError as error:
                raise ChannelClosedError(str(error)) from None
            if step == 0:
                raise ChannelClosedError("the peer closed the connection in the middle of a message")
            got += step
        return bytes(data)

    def _arm(self, deadline: float | None) -> None:
        if deadline is None:
            self._socket.settimeout(None)
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise ChannelTimeoutError("no answer in time")
        self._socket.settimeout(left)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
        if b"\\ud" in body.lower():
            # half a surrogate pair is JSON, but no text that could be written down
            message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        raise ChannelError("the peer sent something that is not JSON") from None
    if not isinstance(message, dict):
        raise ChannelError("the peer sent JSON that is not an object")
    return message


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
