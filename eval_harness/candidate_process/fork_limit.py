"""A limit on processes and threads that holds for root too: every clone waits for an answer from outside.

The kernel's own limit (RLIMIT_NPROC) exempts processes whose real user is root on the host, in a user namespace as
well. So where a probe shows that it does not hold, seccomp hands each fork, vfork and clone to the process that waits
outside the namespaces (namespaces.py), which lets it go on or answers EAGAIN. Needs Linux 5.5 and no other listener
(some container runtimes have one). When the outside process dies, forks fail with ENOSYS.

Not covered: memory and processor time of the processes that are allowed (the judge's deadline and watchdog).
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import time
from pathlib import Path

from eval_harness.process_tree import descendants

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
"""ioctls SECCOMP_IOCTL_NOTIF_RECV and _SEND."""
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
_RECOUNT_S = 0.02
"""While the limit is reached, processes are counted no more often than this."""
_READY, _LIMIT = b"r", struct.Struct("=I")


class Gate:
    """The confined process's end: hand the listener over, then open the gate."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def hand_over(self, listener: int) -> None:
        """Give the listener to the process outside; from now on every fork fails. Raises OSError."""
        try:
            socket.send_fds(self._channel, [_READY], [listener])
        finally:
            os.close(listener)

    def open(self, max_processes: int) -> None:
        """Let forks pass up to this many processes and threads."""
        self._channel.send(_LIMIT.pack(max_processes))

    def close(self) -> None:
        self._channel.close()


def can_start_thread() -> bool:
    """Whether one more task is granted right now: a thread that ends at once, which the limits count like a process."""
    ended = _thread.allocate_lock()
    ended.acquire()
    try:
        _thread.start_new_thread(ended.release, ())
    except RuntimeError:
        return False
    ended.acquire()
    return True


def wait_and_answer(child: int, channel: socket.socket) -> int:
    """Wait for the child and answer its forks meanwhile; its wait status."""
    try:
        ended = os.pidfd_open(child)
    except OSError:  # before Linux 5.3: no notifications either
        return _wait(child)
    counter = _Counter()
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(channel, select.POLLIN)
    listener = -1
    while True:
        for descriptor, events in poller.poll():
            if descriptor == ended:
                return _wait(child)
            if descriptor == channel.fileno():
                message, passed = _receive(channel)
                if passed:
                    listener = passed[0]
                    poller.register(listener, select.POLLIN)
                elif len(message) == _LIMIT.size:
                    counter.limit = _LIMIT.unpack(message)[0]
                else:
                    poller.unregister(channel)
            elif events & select.POLLIN:
                _answer(listener, counter)
            else:
                poller.unregister(descriptor)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """What the confined process sent, with descriptors; nothing when it closed its end."""
    try:
        message, passed, _, _ = socket.recv_fds(channel, 64, 2)
    except OSError:
        return b"", []
    return message, passed


def _wait(child: int) -> int:
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:
        return 0


def _answer(listener: int, counter: _Counter) -> None:
    notice = bytearray(_NOTICE.size)
    with contextlib.suppress(OSError):  # whoever asked is gone
        fcntl.ioctl(listener, _RECEIVE, notice)
        identifier = _NOTICE.unpack(notice)[0]
        if counter.may_grow():
            answer = _ANSWER.pack(identifier, 0, 0, _CONTINUE)
        else:
            answer = _ANSWER.pack(identifier, 0, -errno.EAGAIN, 0)
        fcntl.ioctl(listener, _SEND, bytearray(answer))


class _Counter:
    """An upper bound of the processes and threads below this one, counted anew only when it reaches the limit."""

    def __init__(self) -> None:
        self.limit = 0
        self._bound = 1
        self._counted_at = 0.0

    def may_grow(self) -> bool:
        if self._bound >= self.limit > 0 and time.monotonic() - self._counted_at > _RECOUNT_S:
            self._bound = _count_below(os.getpid())
            self._counted_at = time.monotonic()
        if self._bound >= self.limit:
            return False
        self._bound += 1
        return True


def _count_below(root: int) -> int:
    """Threads of every process below root that this /proc shows; a zombie is one."""
    total = 0
    for process in descendants(root):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{process}/stat").read_bytes().rsplit(b")", 1)[1].split()
            total += max(1, int(fields[17]))  # num_threads, field 20 of proc(5)
    return total
