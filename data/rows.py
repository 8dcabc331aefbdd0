"""RowsTree: files that lie in rows of {path, content}, as PassNet and GraphNet are published on the Hugging Face hub.

A row is a file: `path` such as "samples/x/graph_list.txt" and `content`, its text; other columns are ignored. Rows come
from a .parquet or .jsonl file, a folder of such files (a downloaded hub repository), or what
`datasets.Dataset.save_to_disk` writes. Only paths are kept; texts are read block by block when they are wanted, so a
file of two million rows needs no memory for their contents. Nothing is downloaded.
"""

from __future__ import annotations

import bisect
import json
import posixpath
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from data.file_trees import GRAPH_LIST_FILE, FileTree, MalformedTaskError

PATH_COLUMN, CONTENT_COLUMN = "path", "content"
_JSONL_BLOCK = 1000
_SAVED_DATASET_FILES = ("dataset_info.json", "dataset_dict.json", "state.json")


def find_row_files(source: Path) -> list[Path]:
    """The files that hold rows: source itself or what lies in the folder; none where it holds something else."""
    if source.is_file():
        return [source] if source.suffix == ".jsonl" or _is_row_parquet(source) else []
    if not source.is_dir():
        return []
    if any((source / name).is_file() for name in _SAVED_DATASET_FILES):
        return sorted(source.rglob("*.arrow"))
    shards = sorted(file for pattern in ("*.parquet", "*.jsonl") for file in source.rglob(pattern))
    return [file for file in shards if file.suffix == ".jsonl" or _is_row_parquet(file)]


def _is_row_parquet(file: Path) -> bool:
    if file.suffix != ".parquet":
        return False
    import pyarrow.parquet as pq

    try:
        return {PATH_COLUMN, CONTENT_COLUMN} <= set(pq.read_schema(file).names)
    except ValueError:  # no Parquet: whoever reads it as tasks says so
        return False


class RowsTree(FileTree):
    """The rows of some files as one tree; a path may appear once. Raises MalformedTaskError."""

    in_blocks = True

    def __init__(self, files: list[Path]) -> None:
        self._blocks = [block for file in files for block in _open_blocks(file)]
        self._starts: list[int] = []
        self._rows: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._last: tuple[int, list[Any]] | None = None
        self._folders: set[str] | None = None
        number = 0
        for block in self._blocks:
            self._starts.append(number)
            for path in block.paths():
                if not isinstance(path, str):
                    raise MalformedTaskError(f"{block.file}: row {number} has no {PATH_COLUMN}; write the file again")
                path = posixpath.normpath(path.lstrip("/"))
                if path in self._rows:
                    raise MalformedTaskError(f"{block.file}: {path} appears in two rows; keep one of them")
                self._rows[path] = number
                number += 1
        self.where = files[0].parent if len(files) > 1 else files[0]

    def __len__(self) -> int:
        return len(self._rows)

    def shown(self, path: str) -> str:
        return f"{self.where}: {path}"

    def is_file(self, path: str) -> bool:
        return posixpath.normpath(path) in self._rows

    def is_dir(self, path: str) -> bool:
        if self._folders is None:
            self._folders = set()
            for known in self._rows:
                folder = posixpath.dirname(known)
                while folder and folder not in self._folders:
                    self._folders.add(folder)
                    folder = posixpath.dirname(folder)
        path = posixpath.normpath(path)
        return path == "." or path in self._folders

    def size(self, path: str) -> int:
        return len(self.read(path))

    def read(self, path: str) -> str:
        path = posixpath.normpath(path)
        if path in self._texts:
            return self._texts[path]
        if path not in self._rows:
            raise FileNotFoundError(path)
        block, row = self._place(path)
        if self._last is None or self._last[0] != block:
            self._last = (block, self._blocks[block].contents())
        return self._text(block, path, self._last[1][row])

    def fetch(self, paths: Iterable[str]) -> None:
        """Read these files now, each block once, and forget those of the fetch before."""
        wanted: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for path in set(map(posixpath.normpath, paths)):
            if path in self._rows:
                block, row = self._place(path)
                wanted[block].append((path, row))
        self._texts = {}
        for block in sorted(wanted):
            contents = self._blocks[block].contents()
            for path, row in wanted[block]:
                self._texts[path] = self._text(block, path, contents[row])

    def folders(self) -> Iterator[tuple[str, frozenset[str]]]:
        inside: str | None = None
        # by its parts, so that what is below a folder follows it
        in_order = sorted(self._rows, key=lambda path: path.rpartition("/")[0].split("/"))
        for folder, paths in groupby(in_order, key=posixpath.dirname):
            if inside is not None and (not inside or folder.startswith(f"{inside}/")):
                continue
            files = frozenset(map(posixpath.basename, paths))
            inside = folder if GRAPH_LIST_FILE in files else None
            yield folder, files

    def _place(self, path: str) -> tuple[int, int]:
        number = self._rows[path]
        block = bisect.bisect_right(self._starts, number) - 1
        return block, number - self._starts[block]

    def _text(self, block: int, path: str, content: Any) -> str:
        if not isinstance(content, str):
            raise MalformedTaskError(
                f"{self._blocks[block].file}: {path}: {CONTENT_COLUMN} is no text; write the row again"
            )
        return content


class _Block(ABC):
    """Some rows of a file, read together."""

    file: Path

    @abstractmethod
    def paths(self) -> list[Any]: ...

    @abstractmethod
    def contents(self) -> list[Any]: ...


class _ParquetBlock(_Block):
    def __init__(self, file: Path, reader: Any, group: int) -> None:
        self.file, self._reader, self._group = file, reader, group

    def paths(self) -> list[Any]:
        return self._column(PATH_COLUMN)

    def contents(self) -> list[Any]:
        return self._column(CONTENT_COLUMN)

    def _column(self, name: str) -> list[Any]:
        return self._reader.read_row_group(self._group, columns=[name])[name].to_pylist()


class _ArrowBlock(_Block):
    """A record batch of a memory-mapped file."""

    def __init__(self, file: Path, batch: Any) -> None:
        self.file, self._batch = file, batch

    def paths(self) -> list[Any]:
        return self._batch.column(PATH_COLUMN).to_pylist()

    def contents(self) -> list[Any]:
        return self._batch.column(CONTENT_COLUMN).to_pylist()


class _JsonlBlock(_Block):
    """Lines from a byte offset on. Its paths are read once, with the file's other blocks."""

    def __init__(self, file: Path, offset: int, paths: list[Any]) -> None:
        self.file, self._offset, self._paths = file, offset, paths

    def paths(self) -> list[Any]:
        return self._paths

    def contents(self) -> list[Any]:
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            rows: list[Any] = []
            while len(rows) < len(self._paths):
                line = stream.readline()
                if not line:
                    raise MalformedTaskError(f"{self.file}: became shorter while it was read; start again")
                if line.strip():
                    rows.append(json.loads(line)[CONTENT_COLUMN])
        return rows


def _open_blocks(file: Path) -> list[_Block]:
    if file.suffix == ".jsonl":
        return list(_jsonl_blocks(file))
    import pyarrow as pa

    try:
        if file.suffix == ".arrow":
            batches = list(pa.ipc.open_stream(pa.memory_map(str(file))))
            missing = {PATH_COLUMN, CONTENT_COLUMN} - set(batches[0].schema.names if batches else ())
            if batches and missing:
                raise MalformedTaskError(f"{file}: no column {min(missing)!r}; rows of path and content are needed")
            return [_ArrowBlock(file, batch) for batch in batches]
        import pyarrow.parquet as pq

        reader = pq.ParquetFile(file)
        return [_ParquetBlock(file, reader, group) for group in range(reader.num_row_groups)]
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:160]
        raise MalformedTaskError(f"{file}: cannot be read ({reason}); download or save it again") from None


def _jsonl_blocks(file: Path) -> Iterator[_Block]:
    with file.open("rb") as stream:
        start = position = 0
        paths: list[Any] = []
        for number, line in enumerate(stream, start=1):
            position += len(line)
            if line.strip():
                paths.append(_path_of_line(file, number, line))
            if len(paths) == _JSONL_BLOCK:
                yield _JsonlBlock(file, start, paths)
                start, paths = position, []
        if paths:
            yield _JsonlBlock(file, start, paths)


def _path_of_line(file: Path, number: int, line: bytes) -> Any:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise MalformedTaskError(f"{file}:{number}: not JSON ({error}); correct or remove the line") from None
    if not isinstance(row, dict) or not {PATH_COLUMN, CONTENT_COLUMN} <= set(row):
        raise MalformedTaskError(f"{file}:{number}: no object with {PATH_COLUMN} and {CONTENT_COLUMN}; remove the line")
    return row[PATH_COLUMN]
