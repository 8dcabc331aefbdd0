"""`python -m training.serve_guard COMMAND...`: runs a server as long as its starter lives, and leaves nothing behind.

The starter holds the other end of this process's stdin. When that closes, be it by SIGKILL, everything below this
process is ended: the server's workers would otherwise keep a GPU's memory. Loads without torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

from eval_harness.process_tree import become_subreaper, children, is_running, kill_below

STOP_GRACE_S = 10.0
"""A server that was asked to end and has not is killed after this time."""
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1


def main(arguments: list[str]) -> int:
    """The server's exit status; 128 + signal if one ended it."""
    become_subreaper()  # workers whose parent died stay below us
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of stdin is the only order
    own_pid, starter = os.getpid(), os.getppid()

    def die_with_guard() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != own_pid:
            os._exit(1)

    # this process has one thread, which the death signal needs: it comes when the thread that forked ends
    server = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, preexec_fn=die_with_guard)
    try:
        while server.poll() is None and not _starter_is_gone(starter):
            _reap_orphans(server.pid)
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_GRACE_S
            while server.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S / 2)
    finally:
        kill_below(own_pid)
    status = server.wait()
    return 128 - status if status < 0 else status


def _starter_is_gone(starter: int) -> bool:
    """Waits a little. The pipe is never written to, so readable means closed; a forked child may hold it open."""
    readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
    return os.getppid() != starter or (bool(readable) and not os.read(sys.stdin.fileno(), 1))


def _reap_orphans(server_pid: int) -> None:
    """Collect what we adopted and has ended; the server itself is subprocess's to collect."""
    for pid in children(os.getpid()):
        if pid != server_pid and not is_running(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
