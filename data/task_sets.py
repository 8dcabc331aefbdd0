"""Named sets of tasks: those that ship with the repository, and those that a user imported into his data folder.

A set NAME is NAME.parquet, with NAME.pins.json beside it if its tasks are pinned. The data folder has a size limit that
an import keeps; nothing in it is ever dropped by itself, since it is data and no cache.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

BUNDLED_DIR = Path(__file__).parent / "bundled"
DEFAULT_MAX_MB = 8192.0
"""Of the data folder. All of PassNet's published rows are about 1,000 MB as Parquet."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*")


def default_tasks_dir() -> Path:
    """$XDG_DATA_HOME/passwright/tasks, the XDG convention; ~/.local/share/passwright/tasks without it."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # the convention: a relative path is invalid and ignored
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "passwright" / "tasks"


def bundled_sets() -> dict[str, Path]:
    """Name -> file of each set that ships."""
    return _sets_in(BUNDLED_DIR)


def imported_sets(tasks_dir: Path | None = None) -> dict[str, Path]:
    """Name -> file of each imported set; none where the folder is not there."""
    return _sets_in(tasks_dir or default_tasks_dir())


def folder_mb(folder: Path) -> float:
    """Size of the files that lie in the data folder."""
    if not folder.is_dir():
        return 0.0
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / (1 << 20)


def _sets_in(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {file.stem: file for file in sorted(folder.glob("*.parquet")) if NAME_PATTERN.fullmatch(file.stem)}
