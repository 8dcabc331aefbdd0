"""What a worker prints: drained so that it never blocks, the first and the last part kept, text only."""

from __future__ import annotations

import contextlib
import os
import select
import threading

KEPT_HEAD_BYTES = 48 << 10
KEPT_TAIL_BYTES = 16 << 10
_CHUNK_BYTES = 1 << 20


class OutputReader:
    """Reads a pipe in a thread of its own until its last writer is gone or close() is called.

    However much is printed, at most the head, the tail and one chunk are held.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._head = bytearray()
        self._tail = bytearray()
        self._num_bytes = 0
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(descriptor, False)
        self._thread = threading.Thread(target=self._drain, daemon=True, name="worker-output")
        self._thread.start()

    def _drain(self) -> None:
        buffer = bytearray(_CHUNK_BYTES)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        try:
            while True:
                is_closing = any(descriptor == self._wake for descriptor, _ in poll.poll())
                # what was printed before close() is still taken, once
                with contextlib.suppress(BlockingIOError):
                    count = os.readv(self._descriptor, [buffer])
                    if count == 0:
                        return
                    self._keep(memoryview(buffer)[:count])
                if is_closing:
                    return
        finally:
            os.close(self._descriptor)
            os.close(self._wake)

    def _keep(self, chunk: memoryview) -> None:
        self._num_bytes += len(chunk)
        room = KEPT_HEAD_BYTES - len(self._head)
        self._head += chunk[: max(room, 0)]
        rest = chunk[max(room, 0) :]
        self._tail += rest[-KEPT_TAIL_BYTES:]
        del self._tail[:-KEPT_TAIL_BYTES]

    def text(self) -> str:
        """What was printed so far; the middle of a long output is left out and counted."""
        head, tail = bytes(self._head), bytes(self._tail)
        left_out = self._num_bytes - len(head) - len(tail)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out > 0 else b""
        return (head + gap + tail).decode(errors="replace")

    def close(self) -> None:
        """Stop reading, whoever still holds the other end."""
        if self._waker >= 0:
            with contextlib.suppress(BrokenPipeError):  # the last writer was gone, and so is the thread
                os.write(self._waker, b"x")
            self._thread.join(timeout=1.0)
            os.close(self._waker)
            self._waker = -1
