"""Tasks from elsewhere -> a named set: read from a folder tree or rows, checked, copied as one Parquet file, pinned.

Checked is the format of every file and model.py against the allow-list; nothing is executed and no torch is imported
(`passwright tasks check NAME` runs every graph). Tasks go through one at a time, so memory does not grow with the set.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from data.file_trees import GRAPH_LIST_FILE, FileTree, FolderTree, MalformedTaskError
from data.graph import MalformedGraphError
from data.model_check import check_model_source
from data.rows import RowsTree, find_row_files
from data.task import Task
from data.task_folders import read_graphs, read_tasks, task_ids
from data.task_lists import Listed, choose, read_list, read_split_file
from data.task_pins import Pin, Pins, load_pins, pin_of, pins_path, write_pins
from data.task_sets import DEFAULT_MAX_MB, NAME_PATTERN, bundled_sets, default_tasks_dir, folder_mb, imported_sets

KINDS = {"fusible_subgraphs": "fusible", "typical_subgraphs": "classical", "sole_op_subgraphs": "single_op"}
"""Folder in PassNet's paths -> the kind of its tasks."""


class ImportConfig(BaseModel):
    """What to import, and where to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Path
    """A folder tree with task folders, or rows of {path, content}: see rows.py."""
    name: str = Field(pattern=f"^{NAME_PATTERN.pattern}$")
    """References to the set begin with it."""
    into: Path | None = None
    """The data folder; default: $XDG_DATA_HOME or ~/.local/share, then passwright/tasks."""
    max_mb: float = Field(default=DEFAULT_MAX_MB, gt=0)
    """Of the data folder, with the new set."""
    lists: dict[str, Path] = {}
    """Split -> list of its tasks; only listed ones are imported. The split "" keeps each task's own."""
    split_file: Path | None = None
    """Instead of lists: a file that gives each task its split."""
    pins: Path | None = None
    """Import exactly the tasks of this file, with its contents and splits."""
    write_pins: Path | None = None
    """Another place for the pins that are made."""
    each_graph: bool = False
    """The tree holds graphs and no tasks: each graph becomes a task of its own."""
    skip_refused: bool = False
    """Import what is well formed; default: nothing is written if anything is refused."""
    replace: bool = False
    """A set of that name gives way."""


class ImportSummary(BaseModel):
    """What came of it."""

    name: str
    path: Path
    """The Parquet file; not there if `written` is false."""
    pins: Path
    written: bool
    num_tasks: int
    num_graphs: int
    splits: dict[str, int]
    refusals: dict[str, str]
    """Task folder -> reason."""
    size_mb: float
    duration_s: float


def import_tasks(config: ImportConfig, *, progress: Callable[[int], None] | None = None) -> ImportSummary:
    """Copy the tasks and pin them. Raises MalformedTaskError where the source or a list is at fault.

    progress: told the number of task folders first, then 1 after each.
    """
    started = time.monotonic()
    into = config.into or default_tasks_dir()
    path = into / f"{config.name}.parquet"
    _check_name(config, path)
    tree = open_tree(config.source)
    pins = load_pins(config.pins) if config.pins else None
    chosen = _choose(config, tree, pins)
    if progress:
        progress(len(chosen))
    refusals: dict[str, str] = {}
    made: dict[str, Pin] = {}
    counts: Counter[str] = Counter()

    def checked() -> Iterator[Task]:
        for task in _tasks(config, tree, chosen, refusals, progress):
            if pins:
                pins.verify(task, config.source)
            made[task.task_id] = pin_of(task)
            counts.update({"graphs": len(task.graphs)})
            yield task

    temporary = into / f".{config.name}.importing.parquet"
    try:
        size_mb = _write(checked(), temporary)
        if pins:
            pins.verify_keys(((task_id, pin.split) for task_id, pin in made.items()), config.source)
        written = bool(made) and (config.skip_refused or not refusals)
        if written:
            _make_room(into, path, config.max_mb)
            about = {"name": config.name, "source": config.source.name, "refused": refusals}
            temporary.replace(path)
            for target in (pins_path(path), config.write_pins):
                if target is not None:
                    write_pins(target, made, about)
    finally:
        temporary.unlink(missing_ok=True)
    return ImportSummary(
        name=config.name, path=path, pins=pins_path(path), written=written, num_tasks=len(made),
        num_graphs=counts["graphs"], splits=dict(Counter(pin.split for pin in made.values())), refusals=refusals,
        size_mb=size_mb, duration_s=time.monotonic() - started,
    )  # fmt: skip


def open_tree(source: Path) -> FileTree:
    """The tree of a folder or of rows. Raises MalformedTaskError."""
    if files := find_row_files(source):
        return RowsTree(files)
    if source.is_dir():
        return FolderTree(source)
    what = "no rows of path and content" if source.is_file() else "no such file or folder"
    raise MalformedTaskError(
        f"{source}: {what}; give a folder with task folders, or rows as .parquet, .jsonl or a dataset saved to disk"
    )


def _check_name(config: ImportConfig, path: Path) -> None:
    if config.name in bundled_sets():
        raise MalformedTaskError(f"{config.name}: the name of a set that ships; choose another with --name")
    if path.exists() and not config.replace:
        raise MalformedTaskError(f"{path}: there already; add --replace, or choose another --name")
    if sum(1 for given in (config.lists, config.split_file, config.pins) if given) > 1:
        raise MalformedTaskError(f"{config.name}: lists, a split file and pins each say which tasks; give one of them")


def _choose(config: ImportConfig, tree: FileTree, pins: Pins | None) -> dict[str, str | None]:
    """Folder -> split (None: its own) of what is to be imported, in order."""
    folders = tree.graph_dirs() if config.each_graph else tree.task_dirs()
    if not folders:
        raise MalformedTaskError(_nothing_found(config, tree))
    listed: list[Listed] = []
    for split, path in config.lists.items():
        listed += read_list(path, split or None)
    if config.split_file:
        listed += read_split_file(config.split_file)
    if pins:
        listed += [Listed(task_id, pin.split, str(pins.path)) for task_id, pin in pins.tasks.items()]
    if not listed:
        return dict.fromkeys(folders)
    if config.each_graph:
        return choose(listed, {folder: tree.relative(folder).replace("/", "__") for folder in folders})
    return choose(listed, dict(task_ids(tree, folders)))


def _nothing_found(config: ImportConfig, tree: FileTree) -> str:
    if config.each_graph:
        return f"{config.source}: no graph (a folder with graph_net.json and model.py) anywhere below"
    num_graphs = len(tree.graph_dirs())
    cure = (
        f"it holds {num_graphs} graphs: add --each-graph to make each a task" if num_graphs else "is it the right one?"
    )
    return f"{config.source}: no task folder (with {GRAPH_LIST_FILE}) anywhere below; {cure}"


def _tasks(
    config: ImportConfig,
    tree: FileTree,
    chosen: dict[str, str | None],
    refusals: dict[str, str],
    progress: Callable[[int], None] | None,
) -> Iterator[Task]:
    """The chosen tasks that are well formed, in order; reasons for the others go to refusals."""
    reasons: dict[str, str | None] = {}
    first_with: dict[str, str] = {}

    def refuse(folder: str, reason: object) -> None:
        refusals[tree.relative(folder)] = str(reason)
        if progress:
            progress(1)

    read = _each_graph if config.each_graph else read_tasks
    for folder, task in read(tree, list(chosen), refuse=refuse):
        reason = _refusal(task, reasons)
        if reason is None and task.task_id in first_with:
            reason = f"its task_id {task.task_id} is that of {first_with[task.task_id]} too"
        if reason is not None:
            refuse(folder, reason)
            continue
        first_with[task.task_id] = tree.relative(folder)
        split = chosen[folder]
        yield _with_kind(task if split is None else replace(task, split=split), tree.relative(folder))
        if progress:
            progress(1)


def _each_graph(
    tree: FileTree, folders: list[str], *, refuse: Callable[[str, ValueError], None]
) -> Iterator[tuple[str, Task]]:
    """A task of one graph for each folder, named by its path with `__` for each slash."""
    for folder, graph in read_graphs(tree, folders, refuse=refuse):
        yield folder, Task(graph.name.replace("/", "__"), (graph,))


def _refusal(task: Task, reasons: dict[str, str | None]) -> str | None:
    """Why model.py of a graph may not run, if so. reasons: of sources seen before; variants often share one."""
    for graph in task.graphs:
        if graph.graph_hash not in reasons:
            try:
                check_model_source(graph)
                reasons[graph.graph_hash] = None
            except MalformedGraphError as error:
                reasons[graph.graph_hash] = str(error)
        if (reason := reasons[graph.graph_hash]) is not None:
            return reason
    return None


def _with_kind(task: Task, folder: str) -> Task:
    kind = next((KINDS[part] for part in folder.split("/") if part in KINDS), None)
    return replace(task, facts={**task.facts, "kind": kind}) if kind and "kind" not in task.facts else task


def _write(tasks: Iterator[Task], path: Path) -> float:
    """Write the file and return its size in MiB."""
    from data.task_table import write_table  # pyarrow is needed for Parquet only

    write_table(tasks, path)
    return path.stat().st_size / (1 << 20)


def _make_room(into: Path, path: Path, max_mb: float) -> None:
    """Raise MalformedTaskError if the folder, which holds the new file already, outgrows its limit."""
    replaced = path.stat().st_size / (1 << 20) if path.exists() else 0.0
    total = folder_mb(into) - replaced
    if total > max_mb:
        held = ", ".join(
            f"{name} {file.stat().st_size / (1 << 20):.0f} MB" for name, file in imported_sets(into).items()
        )
        raise MalformedTaskError(
            f"{into}: would hold {total:.0f} MB, more than its limit of {max_mb:.0f} (it holds {held or 'no sets'}); "
            "delete a set's files, raise max_mb, or give another folder with --into"
        )
