"""StopSignals: the first Ctrl-C or SIGTERM asks a run to finish cleanly, the second interrupts it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""SIGTERM is what schedulers and containers send before they kill."""


class StopSignals:
    """Takes the signals while it is entered; outside the main thread it takes none."""

    def __init__(self) -> None:
        self.num_seen = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.num_seen += 1
        if self.num_seen > 1:
            raise KeyboardInterrupt
