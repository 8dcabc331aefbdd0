"""References to tasks -> Task, and the public names for reading and writing tasks. No torch; pyarrow for Parquet only.

A task reference is `DIR` (a task folder with graph_list.txt, a tree of them, or rows of {path, content}),
`FILE.parquet[:split][/task_id]` or `NAME[:split][/task_id]`, NAME being a set that ships (data/bundled/) or was
imported (task_sets.py). A file with pins beside it gives exactly the pinned tasks. Folders are task_folders.py's,
Parquet is task_table.py's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from data.file_trees import GRAPH_LIST_FILE, FileTree, FolderTree, MalformedTaskError
from data.graph import MalformedGraphError
from data.rows import RowsTree, find_row_files
from data.task import Task
from data.task_folders import (
    PASS_DIR,
    SAMPLE_UIDS_FILE,
    TASK_FACTS_FILE,
    Refuse,
    is_graph_dir,
    load_graph,
    read_tasks,
    task_faults,
    task_id_of,
    write_graph,
    write_task,
)
from data.task_pins import load_pins, pins_path
from data.task_sets import BUNDLED_DIR, bundled_sets, default_tasks_dir, imported_sets

__all__ = [
    "BUNDLED_DIR",
    "GRAPH_LIST_FILE",
    "PASS_DIR",
    "SAMPLE_UIDS_FILE",
    "TASK_FACTS_FILE",
    "MalformedTaskError",
    "is_graph_dir",
    "load_graph",
    "load_task",
    "load_tasks",
    "task_id_of",
    "write_graph",
    "write_parquet",
    "write_task",
]

_SUFFIX = r"(?::(?P<split>[^:/]+))?(?:/(?P<task_id>[^/]+))?$"
_FILE_REF = re.compile(rf"^(?P<source>.+?\.parquet){_SUFFIX}")
_NAME_REF = re.compile(rf"^(?P<source>[\w.-]+){_SUFFIX}")


def load_task(ref: str | Path) -> Task:
    """The one task that a reference names. Raises MalformedTaskError if it names none or several."""
    tasks = load_tasks(ref)
    if len(tasks) > 1:
        shown = ", ".join(task.task_id for task in tasks[:4]) + (", ..." if len(tasks) > 4 else "")
        raise MalformedTaskError(f"{ref}: names {len(tasks)} tasks; add /TASK_ID, one of {shown}")
    return tasks[0]


def load_tasks(ref: str | Path, *, refuse: Refuse | None = None) -> list[Task]:
    """Every task that a reference names, at least one.

    Raises MalformedTaskError, and MalformedGraphError for a graph's own files. With `refuse`, a malformed task is left
    out and each of its faults is handed over with the task's folder or id; the list may then be empty.
    """
    text = str(ref)
    path = Path(ref)
    if (path / GRAPH_LIST_FILE).is_file():
        tree = FolderTree(path)
        return _read_all(tree, [tree.root], refuse)
    if matched := _FILE_REF.match(text):
        return _load_parquet(Path(matched["source"]), matched["split"], matched["task_id"], refuse)
    if path.suffix == ".jsonl" and path.is_file():
        return _load_rows(path, refuse=refuse)
    sets = imported_sets() | bundled_sets()
    if (matched := _NAME_REF.match(text)) and matched["source"] in sets:
        return _load_parquet(sets[matched["source"]], matched["split"], matched["task_id"], refuse)
    if path.is_dir():
        return _load_tree(path, refuse)
    nearest = _nearest(matched["source"] if matched else text, sets)
    raise MalformedTaskError(
        f"{text}: no such task folder, Parquet file, bundled or imported set{nearest}; a task is DIR, "
        f"FILE.parquet[:split][/task_id] or NAME[:split][/task_id] with NAME one of {', '.join(sorted(sets))} "
        f"(imported ones lie in {default_tasks_dir()})"
    )


def write_parquet(tasks: Iterable[Task], path: str | Path) -> None:
    """One row a task, graph files as nested text columns; the same tasks give the same bytes."""
    from data.task_table import write_table  # pyarrow is needed for Parquet only

    write_table(tasks, Path(path))


def _load_tree(path: Path, refuse: Refuse | None) -> list[Task]:
    if is_graph_dir(path):
        raise MalformedTaskError(f"{path}: a graph, not a task; name it in the {GRAPH_LIST_FILE} of a task folder")
    tree = FolderTree(path)
    if task_dirs := tree.task_dirs():
        return _read_all(tree, task_dirs, refuse)
    if find_row_files(path):
        return _load_rows(path, refuse=refuse)
    raise MalformedTaskError(f"{path}/{GRAPH_LIST_FILE}: missing; list one graph folder a line, relative to {path}")


def _read_all(tree: FileTree, task_dirs: list[str], refuse: Refuse | None) -> list[Task]:
    def refuse_each(folder: str, error: ValueError) -> None:
        assert refuse is not None
        for fault in task_faults(tree, folder) or [error]:
            refuse(tree.shown(folder), fault)

    return [task for _, task in read_tasks(tree, task_dirs, refuse=refuse_each if refuse else None)]


def _load_rows(
    path: Path, split: str | None = None, task_id: str | None = None, refuse: Refuse | None = None
) -> list[Task]:
    """Tasks of rows of {path, content}; slow for millions of them, which one imports instead."""
    tree = RowsTree(find_row_files(path))
    task_dirs = tree.task_dirs()
    tasks = _read_all(tree, task_dirs, refuse)
    if not task_dirs:
        raise MalformedTaskError(
            f"{path}: rows of path and content, but no task (a path that ends in /{GRAPH_LIST_FILE}); "
            "`passwright tasks import --each-graph` makes each graph a task"
        )
    wanted = _wanted(path, [(task.task_id, task.split) for task in tasks], split, task_id)
    return [task for task in tasks if task.task_id in wanted]


def _load_parquet(path: Path, split: str | None, task_id: str | None, refuse: Refuse | None = None) -> list[Task]:
    from data.task_table import TaskTable

    if not path.is_file():
        raise MalformedTaskError(f"{path}: no such file; give the path of a Parquet file written by `passwright tasks`")
    try:
        if find_row_files(path):
            return _load_rows(path, split, task_id, refuse)
        table = TaskTable(path)
        wanted = _wanted(path, table.keys, split, task_id)
        pins = load_pins(pins_path(path)) if pins_path(path).is_file() else None
        if pins is not None:
            pins.verify_keys(table.keys, path)
        tasks = list(table.read(wanted, refuse=refuse))
    except MalformedGraphError as error:
        raise MalformedGraphError(f"{path}: {error}") from None
    except MalformedTaskError:
        raise
    except (ValueError, OSError) as error:  # pyarrow's errors and Task's own
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's: no permission, a broken disk
        raise MalformedTaskError(
            f"{path}: not a file of tasks ({_first_line(error)}); write it with `passwright tasks build` or `import`"
        ) from None
    if not wanted:
        raise MalformedTaskError(f"{path}: holds no tasks; build it again")
    if pins is not None:
        for task in tasks:
            pins.verify(task, path)
    return tasks


def _wanted(path: Path, keys: list[tuple[str, str]], split: str | None, task_id: str | None) -> set[str]:
    """Ids of the tasks that split and task_id name. Raises MalformedTaskError with the nearest name."""
    splits = sorted({row_split for _, row_split in keys if row_split})
    if split is not None and split not in splits:
        known = ", ".join(splits) or "none"
        raise MalformedTaskError(f"{path}: no split {split!r}{_nearest(split, splits)}; it has {known}")
    here = [key for key, row_split in keys if split is None or row_split == split]
    if task_id is None:
        return set(here)
    if task_id not in here:
        elsewhere = next((row_split for key, row_split in keys if key == task_id), None)
        hint = f"; it is in split {elsewhere!r}" if elsewhere else _nearest(task_id, here)
        raise MalformedTaskError(f"{path}: no task {task_id!r}{f' in split {split!r}' if split else ''}{hint}")
    return {task_id}


def _nearest(word: str, candidates: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(candidates), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
