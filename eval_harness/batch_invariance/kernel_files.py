"""The files of a kernel folder, read as text. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

KERNEL_FILE = "kernel.py"
SPEC_FILE = "kernel.json"
SOURCE_SUFFIXES = frozenset({".py", ".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp"})


def source_files(folder: Path) -> list[Path]:
    """Every source file below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES and path.is_file())


def read_sources(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Path below root -> text, as the static rules take them; bytes that are no UTF-8 are replaced."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace") for path in files}
