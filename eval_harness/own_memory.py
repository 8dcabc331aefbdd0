"""Keeping other processes of the same user out of this one's memory. Linux; no torch.

A candidate is kept from /proc/<pid>/mem of others by its PID namespace and by Landlock. Where a container grants
neither, the processes that hold expected values, or from which workers are forked, refuse it themselves.
"""

from __future__ import annotations

import ctypes

_PR_SET_DUMPABLE = 4


def guard_memory() -> bool:
    """Nobody but root outside may trace this process or read its memory, environment and descriptors through /proc;
    it leaves no core file. Whether the kernel granted it. An exec undoes it."""
    return ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
