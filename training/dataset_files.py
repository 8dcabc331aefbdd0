"""Writing a dataset's rows to files of bounded size, beside the old dataset until the new one is whole.

    data/train-00000-of-0000N.parquet    (openai-jsonl: data/train-00000-of-0000N.jsonl)
    data/validation-...                  if a share of the tasks is held out

Rows go to disk in groups, so memory holds one group of each split. Names and bytes depend on the rows alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from eval_harness.errors import UserError
from training.dataset_rows import rows_table
from trajectories.store import disk_errors, write_atomically

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

DATA_DIR = "data"
CARD_FILE = "README.md"
SUMMARY_FILE = "summary.json"
_BUILDING = ".building"
_PARTS = (DATA_DIR, CARD_FILE, SUMMARY_FILE)
"""In the order in which they are put in place: last what makes it a dataset (check_place)."""
_REPLACED = "replaced"
"""Below _BUILDING: the old dataset, once the new one is whole."""
_GROUP_BYTES = 16 << 20
"""Text of a row group."""


def data_file(split: str, index: int, count: int, suffix: str) -> str:
    """Path below the dataset of one file, as `datasets` expects it."""
    return f"{DATA_DIR}/{split}-{index:05d}-of-{count:05d}.{suffix}"


class DatasetFolder:
    """The folder of a dataset while it is being built: `with DatasetFolder(...) as folder`, write, then finish."""

    def __init__(self, root: Path, *, overwrite: bool) -> None:
        """Raises UserError if the place is taken by something else than a dataset, or by one and overwrite is False."""
        self.root = root
        self._overwrite = overwrite
        self._staging = root / _BUILDING
        self._lock: int | None = None

    def __enter__(self) -> Self:
        check_place(self.root, overwrite=self._overwrite)
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.root)
            shutil.rmtree(self._staging, ignore_errors=True)  # of a build that was killed
            for name in (DATA_DIR, _REPLACED):
                (self._staging / name).mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        if error is not None and self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()
        if self._lock is not None:
            os.close(self._lock)

    def writer(self, split: str, *, schema: pyarrow.Schema | None, shard_bytes: float) -> SplitWriter:
        """schema: of Parquet files; None: JSON lines."""
        return SplitWriter(self._staging, split, schema, shard_bytes)

    def finish(self, *, card: str, summary: str) -> None:
        """Put the new data and these texts in the place of the old dataset."""
        write_atomically(self._staging / CARD_FILE, card)
        write_atomically(self._staging / SUMMARY_FILE, summary)
        with disk_errors(self.root):
            # renames alone from here on: no full disk stops them, and no kill falls into a long deletion
            for name in reversed(_PARTS):
                if (self.root / name).exists():
                    (self.root / name).rename(self._staging / _REPLACED / name)
            for name in _PARTS:
                (self._staging / name).rename(self.root / name)


class SplitWriter:
    """The files of one split."""

    def __init__(self, folder: Path, split: str, schema: pyarrow.Schema | None, shard_bytes: float) -> None:
        self._folder = folder
        self._split = split
        self._schema = schema
        self._shard_bytes = shard_bytes
        self._file: IO[str] | pyarrow.parquet.ParquetWriter | None = None
        self._rows: list[dict[str, Any]] = []
        self._num_rows_bytes = 0
        self._num_shard_bytes = 0
        self._num_shards = 0

    def add(self, row: dict[str, Any], line: str | None, num_bytes: int) -> None:
        """row: with encoded messages. line: for JSON lines. num_bytes: of its text."""
        with disk_errors(self._folder):
            if self._num_shard_bytes and self._num_shard_bytes + num_bytes > self._shard_bytes:
                self._end_shard()
            self._num_shard_bytes += num_bytes
            if self._schema is None:
                self._begin_shard().write(f"{line}\n")  # type: ignore[union-attr, arg-type]
                return
            self._rows.append(row)
            self._num_rows_bytes += num_bytes
            if self._num_rows_bytes >= _GROUP_BYTES:
                self._write_group()

    def close(self) -> list[str]:
        """End the last file and give all their names, which tell how many there are. Paths below the dataset."""
        with disk_errors(self._folder):
            if self._num_shard_bytes:
                self._end_shard()
            names = []
            for index in range(self._num_shards):
                names.append(data_file(self._split, index, self._num_shards, self._suffix))
                self._path(index).rename(self._folder / names[-1])
        return names

    @property
    def _suffix(self) -> str:
        return "jsonl" if self._schema is None else "parquet"

    def _path(self, index: int) -> Path:
        return self._folder / DATA_DIR / f"{self._split}-{index:05d}.{self._suffix}"

    def _begin_shard(self) -> IO[str] | pyarrow.parquet.ParquetWriter:
        if self._file is None:
            path = self._path(self._num_shards)
            if self._schema is None:
                self._file = path.open("w", encoding="utf-8", newline="\n")
            else:
                from pyarrow.parquet import ParquetWriter

                self._file = ParquetWriter(path, self._schema, compression="zstd")
        return self._file

    def _write_group(self) -> None:
        if self._rows:
            assert self._schema is not None
            self._begin_shard().write_table(rows_table(self._rows, self._schema))  # type: ignore[union-attr]
        self._rows, self._num_rows_bytes = [], 0

    def _end_shard(self) -> None:
        self._write_group()
        if self._file is not None:
            self._file.close()
        self._file, self._num_shard_bytes, self._num_shards = None, 0, self._num_shards + 1


def check_place(root: Path, *, overwrite: bool) -> None:
    """Raise UserError if a dataset cannot be written here: only one of ours is ever replaced."""
    with disk_errors(root):
        names = {item.name for item in root.iterdir()} if root.exists() else set()
        is_dataset = (root / SUMMARY_FILE).is_file() and (root / DATA_DIR).is_dir()
        # a kill between the renames of `finish` leaves a part of a dataset beside the folder that they came from
        if names <= {_BUILDING} or (not is_dataset and {_BUILDING} < names < {_BUILDING, *_PARTS}):
            return
    if not is_dataset:
        raise UserError(f"{root}: is not empty and holds no dataset; choose another --out")
    if not overwrite:
        raise UserError(f"{root}: holds a dataset already; choose another --out, or build again with --no-resume")


def check_readable(root: Path) -> None:
    """Raise UserError for a folder of which this user may read nothing."""
    if root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{root}: cannot be read (Permission denied); ask its owner, or copy it")


def _lock(root: Path) -> int:
    """Descriptor that keeps other builds out of the folder until it is closed. Raises UserError if one is in it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"{root}: another build writes to it; wait for it, or choose another --out") from None
    except OSError:
        pass  # a file system that knows no locks on folders: then nothing keeps two builds apart
    return descriptor
