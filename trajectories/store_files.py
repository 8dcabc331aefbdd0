"""Files that survive a kill and a full disk: replaced whole, or appended to by whole lines. Knows no record."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError

TEMPORARY = ".tmp-"
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_PLACE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
"""The place is not one to write to."""
_DISK_FAILS = frozenset({errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ENOENT})
"""A disk, most often one of the network, that was there before."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by its new text, synced. Raises UserError if the disk is full, with the old file untouched."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}{os.getpid()}")
    with disk_errors(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def append_synced(path: Path, text: str) -> None:
    """Append text to a file, synced; the file may be new. Raises OSError with the file as it was before."""
    is_new = not path.exists()
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            write_all(file.fileno(), text.encode())
            os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                if is_new:
                    path.unlink(missing_ok=True)
                else:
                    os.ftruncate(file.fileno(), size)
            raise
    if is_new:
        sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """os.write until nothing is left: a disk that fills up takes the first part without an error."""
    while data:
        data = data[os.write(descriptor, data) :]


def ends_torn(path: Path) -> bool:
    """Whether a kill or a full disk has left a last line without its end; the next line must not go on with it."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; a line that a kill has torn is left out. None if there is no file."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a disk that is full, fails or cannot be written into a UserError that names the path and the cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise UserError(
                f"{path}: the disk is full; free some space, then run the same command again: it goes on from there"
            ) from error
        if error.errno in _NO_PLACE:
            raise UserError(f"{path}: cannot be written ({error.strerror}); choose another folder by --out") from error
        if error.errno in _DISK_FAILS:
            raise UserError(
                f"{path}: cannot be written ({error.strerror}); when the disk is there again, run the same command: "
                "it goes on from there"
            ) from error
        raise


def sync_folder(folder: Path) -> None:
    """Without it a rename or a new file can be lost in a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
