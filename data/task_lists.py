"""Which tasks of a tree are meant, and in which split: lists of sample paths as PassNet has them, and files of splits.

A list has one task a line: its folder's path ("samples/.../6291d7..."), the end of that path, or its task_id; a CSV
with a column sample_path, task_id or task is a list too. A split file is JSON {split: [task, ...]}, or a CSV with one
of those columns and a column split.
"""

from __future__ import annotations

import csv
import difflib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from data.file_trees import MalformedTaskError

_TASK_COLUMNS = ("task_id", "sample_path", "task")
_SPLIT_COLUMN = "split"


@dataclass(frozen=True)
class Listed:
    """One entry of a list."""

    task: str
    """As written: a path or a task_id."""
    split: str | None
    """None: the split that the task has already."""
    where: str
    """File and line, for messages."""


def read_list(path: Path, split: str | None) -> list[Listed]:
    """Entries of a list, all in one split. Raises MalformedTaskError naming the file."""
    text = _read(path)
    if path.suffix == ".csv":
        return [Listed(task, split, where) for task, _, where in _csv_rows(path, text, with_split=False)]
    lines = enumerate(text.splitlines(), start=1)
    listed = [Listed(line.strip(), split, f"{path}:{number}") for number, line in lines if line.strip()]
    if not listed:
        raise MalformedTaskError(f"{path}: empty; list one task a line")
    return listed


def read_split_file(path: Path) -> list[Listed]:
    """Entries with their splits. Raises MalformedTaskError naming the file."""
    text = _read(path)
    if path.suffix == ".csv":
        return [Listed(task, split, where) for task, split, where in _csv_rows(path, text, with_split=True)]
    try:
        record = json.loads(text)
    except ValueError as error:
        raise MalformedTaskError(f"{path}: neither .csv nor JSON ({error}); write {{split: [task, ...]}}") from None
    entries = record.items() if isinstance(record, dict) else ()
    if not entries or not all(
        isinstance(tasks, list) and all(isinstance(task, str) for task in tasks) for _, tasks in entries
    ):
        raise MalformedTaskError(f"{path}: expected {{split: [task, ...]}}; write it like that, or a CSV task,split")
    return [Listed(task, split, str(path)) for split, tasks in entries for task in tasks]


def choose(listed: Iterable[Listed], known: Mapping[str, str]) -> dict[str, str | None]:
    """Folder -> split of every entry, in the list's order. known: folder -> its task_id.

    Raises MalformedTaskError where an entry is no folder, is several, or stands in a list twice.
    """
    by_name: dict[str, list[str]] = defaultdict(list)
    for folder, task_id in known.items():
        for name in {posixpath.basename(folder), task_id}:
            by_name[name].append(folder)
    chosen: dict[str, str | None] = {}
    first_at: dict[str, str] = {}
    for entry in listed:
        folder = _folder_of(entry, by_name)
        if folder in chosen:
            raise MalformedTaskError(f"{entry.where}: {entry.task} is listed already in {first_at[folder]}; drop one")
        chosen[folder] = entry.split
        first_at[folder] = entry.where
    return chosen


def _folder_of(entry: Listed, by_name: Mapping[str, list[str]]) -> str:
    path = posixpath.normpath(entry.task)
    name = posixpath.basename(path)
    candidates = by_name.get(name, [])
    if len(candidates) > 1:
        # the longer of both paths ends with the shorter: a list may name more or fewer folders above
        candidates = [folder for folder in candidates if _is_end_of(path, folder) or _is_end_of(folder, path)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise MalformedTaskError(
            f"{entry.where}: {entry.task} may be {candidates[0]} or {candidates[1]}; write more of its path"
        )
    near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5) if len(by_name) < 20_000 else []
    hint = f"; did you mean {near[0]}?" if near else "; is the data complete?"
    raise MalformedTaskError(f"{entry.where}: no task {entry.task}{hint}")


def _is_end_of(short: str, long: str) -> bool:
    return short == long or long.endswith(f"/{short}")


def _csv_rows(path: Path, text: str, *, with_split: bool) -> list[tuple[str, str, str]]:
    reader = csv.DictReader(text.splitlines())
    columns = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = columns
    column = next((name for name in _TASK_COLUMNS if name in columns), None)
    if column is None or (with_split and _SPLIT_COLUMN not in columns):
        needed = f"a column {' or '.join(_TASK_COLUMNS)}" + (f" and a column {_SPLIT_COLUMN}" if with_split else "")
        raise MalformedTaskError(f"{path}:1: has columns {', '.join(columns) or 'none'}; {needed} is needed")
    rows = []
    for number, row in enumerate(reader, start=2):
        task, split = (row[column] or "").strip(), (row.get(_SPLIT_COLUMN) or "").strip()
        if not task:
            raise MalformedTaskError(f"{path}:{number}: no {column}; fill it in or drop the line")
        rows.append((task, split, f"{path}:{number}"))
    return rows


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise MalformedTaskError(f"{path}: no such file; give a list of tasks") from None
    except UnicodeDecodeError as error:
        raise MalformedTaskError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
