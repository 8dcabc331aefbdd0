"""The Parquet form of tasks: its schema and the rows. References, names and messages are passbench.py's.

Row groups are small, so that one task is read without decoding the others: its group is found in the two key columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.graph import GRAPH_FILES, Graph
from data.task import Task

SCHEMA_VERSION = "1"
VERSION_KEY = b"passwright.tasks"
"""Of the file's metadata: which version of the schema it has."""
GROUP_BYTES = 2 << 20
"""Text in a row group, before compression: smaller groups are read faster one by one and compress less."""
GROUP_TASKS = 64
"""Rows in a row group at most."""

_FILE_COLUMNS = {file: file.replace(".", "_") for file in GRAPH_FILES}
"""File name -> column: model.py -> model_py. A file that the graph lacks is null."""

SCHEMA = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("uids", pa.list_(pa.string())),
        pa.field("facts", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        pa.field(
            "graphs",
            pa.list_(pa.struct([("name", pa.string()), *((column, pa.string()) for column in _FILE_COLUMNS.values())])),
        ),
    ],
    metadata={VERSION_KEY.decode(): SCHEMA_VERSION},
)


def write_table(tasks: Iterable[Task], path: Path) -> None:
    """Write one row a task, in the order given, holding one row group at a time.

    Raises ValueError on a task_id that appears twice. The file appears whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".parquet.partial")
    try:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd", compression_level=9) as writer:
            for group in _groups(tasks, path):
                table = pa.Table.from_pylist([_row(task) for task in group], schema=SCHEMA)
                writer.write_table(table, row_group_size=len(group))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class TaskTable:
    """One file of tasks, opened for reading."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError (pyarrow's too) where the file is none of ours."""
        self._file = pq.ParquetFile(path, memory_map=True)
        version = (self._file.schema_arrow.metadata or {}).get(VERSION_KEY, b"").decode()
        if not {"task_id", "split", "graphs"} <= set(self._file.schema_arrow.names):
            raise ValueError("no columns task_id, split and graphs")
        if version != SCHEMA_VERSION:
            raise ValueError(f"its schema has version {version or 'none'}, this Passwright reads {SCHEMA_VERSION}")
        keys = self._file.read(columns=["task_id", "split"])
        self.keys: list[tuple[str, str]] = list(
            zip(keys["task_id"].to_pylist(), keys["split"].to_pylist(), strict=True)
        )
        """(task_id, split) of every row, in order."""

    def read(
        self, wanted: Collection[str], *, refuse: Callable[[str, ValueError], None] | None = None
    ) -> Iterator[Task]:
        """The tasks whose task_id is wanted, in the order of the file; only the groups that hold one are decoded.

        A task with a malformed graph is handed to `refuse` by its id, or raises without it.
        """
        chosen, first = set(wanted), 0
        for group in range(self._file.num_row_groups):
            num_rows = self._file.metadata.row_group(group).num_rows
            rows = [row for row in range(num_rows) if self.keys[first + row][0] in chosen]
            first += num_rows
            if rows:
                table = self._file.read_row_group(group)
                for row in rows:
                    entry = table.slice(row, 1).to_pylist()[0]
                    try:
                        task = _task(entry)
                    except ValueError as error:
                        if refuse is None:
                            raise
                        refuse(entry["task_id"], error)
                    else:
                        yield task


def _groups(tasks: Iterable[Task], path: Path) -> Iterator[list[Task]]:
    seen: set[str] = set()
    group: list[Task] = []
    num_bytes = 0
    for task in tasks:
        if task.task_id in seen:
            raise ValueError(f"{path}: task_id {task.task_id!r} appears twice; task ids are unique in a file")
        seen.add(task.task_id)
        size = sum(len(text) for graph in task.graphs for text in graph.files.values())
        if group and (num_bytes + size > GROUP_BYTES or len(group) == GROUP_TASKS):
            yield group
            group, num_bytes = [], 0
        group.append(task)
        num_bytes += size
    if group:
        yield group


def _row(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "split": task.split,
        "uids": list(task.uids),
        "facts": [{"name": name, "value": value} for name, value in task.facts.items()],
        "graphs": [
            {"name": graph.name, **{column: graph.files.get(file) for file, column in _FILE_COLUMNS.items()}}
            for graph in task.graphs
        ],
    }


def _task(row: dict[str, Any]) -> Task:
    graphs = []
    for entry in row["graphs"]:
        files = {file: entry[column] for file, column in _FILE_COLUMNS.items() if entry[column] is not None}
        graphs.append(Graph(entry["name"], files))
    facts = {entry["name"]: entry["value"] for entry in row["facts"] or ()}
    return Task(row["task_id"], tuple(graphs), split=row["split"], uids=tuple(row["uids"] or ()), facts=facts)
