"""The Parquet form of tasks: its schema and the rows. References, names and messages are passbench.py's."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.graph import GRAPH_FILES, Graph
from data.task import Task

SCHEMA_VERSION = "1"

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
    metadata={"passwright.tasks": SCHEMA_VERSION},
)


def write_table(tasks: list[Task], path: Path) -> None:
    """Write one row a task, in the order given. Raises ValueError on a task_id that appears twice."""
    seen: set[str] = set()
    for task in tasks:
        if task.task_id in seen:
            raise ValueError(f"{path}: task_id {task.task_id!r} appears twice; task ids are unique in a file")
        seen.add(task.task_id)
    table = pa.Table.from_pylist([_row(task) for task in tasks], schema=SCHEMA)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".parquet.partial")
    # small row groups: one task can be read without decoding the others
    pq.write_table(table, temporary, compression="zstd", compression_level=9, row_group_size=64)
    temporary.replace(path)


def read_keys(path: Path) -> list[tuple[str, str]]:
    """(task_id, split) of every row, in order."""
    table = pq.read_table(path, columns=["task_id", "split"])
    return list(zip(table["task_id"].to_pylist(), table["split"].to_pylist(), strict=True))


def read_table(path: Path, *, wanted: Collection[str]) -> list[Task]:
    """The tasks whose task_id is wanted, in the order of the file."""
    table = pq.read_table(path, filters=[("task_id", "in", list(wanted))])
    return [_task(row) for row in table.to_pylist()]


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
