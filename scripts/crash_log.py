"""CrashLog: logging to stderr at the chosen level, and a file with everything when the command fails."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import traceback
from pathlib import Path

MAX_KEPT_RECORDS = 5_000
"""Records held in memory for the file; a long collection writes far more, and the last ones tell the cause."""

LOG_DIR = Path("runs/logs")


class CrashLog:
    """Logging of one command, while it is entered. Nothing is written to disk unless `write` is called."""

    def __init__(self, name: str, level: str) -> None:
        self._name = name
        self._debug = level == "debug"
        self._lines: list[str] = []
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        to_stderr = logging.StreamHandler(sys.stderr)
        to_stderr.setLevel(level.upper())
        to_stderr.setFormatter(formatter)
        keep = _KeepLast(self._lines)
        keep.setFormatter(formatter)
        self._handlers = (to_stderr, keep)
        self._root = logging.getLogger()
        self._level_before = self._root.level

    def __enter__(self) -> CrashLog:
        for handler in self._handlers:
            self._root.addHandler(handler)
        self._root.setLevel(logging.DEBUG if self._debug else logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            self._root.removeHandler(handler)
        self._root.setLevel(self._level_before)

    def traceback_if_debug(self) -> None:
        """Print the exception being handled, with --log-level debug only."""
        if self._debug:
            traceback.print_exc()

    def write(self) -> Path:
        """Write the kept records and the traceback of the exception being handled; returns the file's path."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
        name = f"{self._name.replace(' ', '-')}-{stamp}-{os.getpid()}.log"
        text = "\n".join([f"command: {' '.join(sys.argv)}", *self._lines, traceback.format_exc()])
        import tempfile

        for folder in (LOG_DIR, Path(tempfile.gettempdir())):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
                return folder / name
            except OSError:  # read-only or full: the next place
                continue
        return Path("(nowhere: no place could be written; run again with --log-level debug)")


class _KeepLast(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        if len(self._lines) > MAX_KEPT_RECORDS:
            del self._lines[: MAX_KEPT_RECORDS // 2]
