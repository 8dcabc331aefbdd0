"""PassNet / GraphNet folders <-> Graph and Task, read from any FileTree. Text in, text out: no torch, nothing executed.

Files are read and written as bytes, so a graph that is read and written again is the same to the last newline.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from data.file_trees import GRAPH_LIST_FILE, FileTree, FolderTree, MalformedTaskError, NotText
from data.graph import GRAPH_FILES, GRAPH_NET_FILE, MODEL_FILE, Graph, MalformedGraphError
from data.task import Task

SAMPLE_UIDS_FILE = "sample_uids.txt"
TASK_FACTS_FILE = "task.json"
"""Ours, and optional: task_id, split and facts, which upstream's folder has no place for."""
PASS_DIR = "pass_dir"
FOLDERS_AT_ONCE = 200
"""Tasks or graphs whose files are fetched together: from rows, each block is then read once for all of them."""
Refuse = Callable[[str, ValueError], None]
"""Told the folder and the reason."""
Read = TypeVar("Read")
_UID_SEPARATOR = re.compile(r"[,\r\n]")


def task_id_of(uids: Iterable[str]) -> str:
    """Upstream's name of a task: sha256 (hex) of the sorted uids joined with newlines."""
    return hashlib.sha256("\n".join(sorted(uids)).encode()).hexdigest()


def is_graph_dir(path: Path) -> bool:
    """A folder counts as a graph if graph_net.json and model.py exist."""
    return (path / GRAPH_NET_FILE).is_file() and (path / MODEL_FILE).is_file()


def load_graph(directory: str | Path, *, name: str | None = None) -> Graph:
    """Read one graph folder; optional files that are missing stay missing. Raises MalformedGraphError."""
    path = Path(directory)
    if not path.is_dir():
        raise MalformedGraphError(f"{path}: no such folder; a graph is a folder with {GRAPH_NET_FILE} and {MODEL_FILE}")
    return read_graph(FolderTree(path), path.as_posix(), name=name or path.name)


def read_graph(tree: FileTree, folder: str, *, name: str) -> Graph:
    """One graph of a tree, under the name that a list gives it. Raises MalformedGraphError."""
    files = {}
    for file in GRAPH_FILES:
        text = _read_if_there(tree, posixpath.join(folder, file), MalformedGraphError)
        if text is not None:
            files[file] = text
    try:
        return Graph(name, files)
    except MalformedGraphError as error:
        # the message starts with the graph's name; say which folder that is
        raise MalformedGraphError(f"{tree.shown(folder)}{str(error).removeprefix(name)}") from None


def write_graph(graph: Graph, directory: str | Path) -> None:
    """Write the graph's files byte for byte; creates the folder."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    for file, text in graph.files.items():
        (path / file).write_bytes(text.encode("utf-8"))


def read_task(tree: FileTree, folder: str) -> Task:
    """The task of one folder of a tree; its graphs' paths may go through links.

    Raises MalformedTaskError, and MalformedGraphError for a graph's own files.
    """
    list_path = posixpath.join(folder, GRAPH_LIST_FILE)
    graphs = [_listed_graph(tree, folder, name) for name in _listed_graphs(tree, folder)]
    uids = tuple(_read_uids(tree, posixpath.join(folder, SAMPLE_UIDS_FILE)))
    about = _read_about(tree, posixpath.join(folder, TASK_FACTS_FILE))
    task_id = _task_id(tree, folder, uids, about)
    try:
        return Task(task_id, tuple(graphs), split=about.get("split", ""), uids=uids, facts=about.get("facts", {}))
    except ValueError as error:
        raise MalformedTaskError(f"{tree.shown(list_path)}: {error}") from None


def task_faults(tree: FileTree, folder: str) -> list[ValueError]:
    """Everything that is wrong with the graphs of a task that read_task refuses."""
    faults: list[ValueError] = []
    try:
        for name in _listed_graphs(tree, folder):
            try:
                _listed_graph(tree, folder, name)
            except (MalformedGraphError, MalformedTaskError) as error:
                faults.append(error)
    except MalformedTaskError as error:
        faults.append(error)
    return faults


def read_tasks(tree: FileTree, folders: list[str], *, refuse: Refuse | None = None) -> Iterator[tuple[str, Task]]:
    """(folder, task) for each in order; a task that cannot be read is handed to `refuse`, or raises without it."""
    for start in range(0, len(folders), FOLDERS_AT_ONCE):
        batch = folders[start : start + FOLDERS_AT_ONCE]
        if tree.in_blocks:
            tree.fetch(_task_files(batch))
            tree.fetch([*_task_files(batch), *_graph_files(tree, batch)])
        yield from _read_each(batch, lambda folder: read_task(tree, folder), refuse)


def read_graphs(tree: FileTree, folders: list[str], *, refuse: Refuse | None = None) -> Iterator[tuple[str, Graph]]:
    """(folder, graph) for each in order, named by its path below the tree's root; as read_tasks."""
    for start in range(0, len(folders), FOLDERS_AT_ONCE):
        batch = folders[start : start + FOLDERS_AT_ONCE]
        tree.fetch(posixpath.join(folder, file) for folder in batch for file in GRAPH_FILES)
        yield from _read_each(batch, lambda folder: read_graph(tree, folder, name=tree.relative(folder)), refuse)


def task_ids(tree: FileTree, folders: list[str]) -> Iterator[tuple[str, str]]:
    """(folder, task_id) for each, from the small files alone."""
    tree.fetch(_task_files(folders))
    for folder in folders:
        uids = _read_uids(tree, posixpath.join(folder, SAMPLE_UIDS_FILE))
        yield folder, _task_id(tree, folder, uids, _read_about(tree, posixpath.join(folder, TASK_FACTS_FILE)))


def write_task(task: Task, directory: str | Path) -> None:
    """Write a task folder: graph_list.txt, graphs, sample_uids.txt if any, pass_dir/ for a candidate, task.json."""
    path = Path(directory)
    for graph in task.graphs:
        parts = PurePosixPath(graph.name)
        if parts.is_absolute() or ".." in parts.parts:
            raise MalformedTaskError(f"{path}: graph {graph.name!r} would lie outside of it; rename the graph first")
    if bad := [uid for uid in task.uids if _UID_SEPARATOR.search(uid)]:
        raise MalformedTaskError(f"{path}: the uid {bad[0]!r} holds a comma or a newline; rename it first")
    (path / PASS_DIR).mkdir(parents=True, exist_ok=True)
    for graph in task.graphs:
        write_graph(graph, path / graph.name)
    if task.uids:
        _write_text(path / SAMPLE_UIDS_FILE, ",".join(task.uids))  # as upstream writes it
    about = {"task_id": task.task_id, "split": task.split, "facts": dict(task.facts)}
    _write_text(path / TASK_FACTS_FILE, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    # last: a folder counts as a task once the list is there
    _write_text(path / GRAPH_LIST_FILE, "".join(f"{graph.name}\n" for graph in task.graphs))


def _read_each(folders: list[str], read: Callable[[str], Read], refuse: Refuse | None) -> Iterator[tuple[str, Read]]:
    for folder in folders:
        try:
            made = read(folder)
        except (MalformedGraphError, MalformedTaskError) as error:
            if refuse is None:
                raise
            refuse(folder, error)
        else:
            yield folder, made


def _task_files(folders: list[str]) -> list[str]:
    names = (GRAPH_LIST_FILE, SAMPLE_UIDS_FILE, TASK_FACTS_FILE)
    return [posixpath.join(folder, name) for folder in folders for name in names]


def _graph_files(tree: FileTree, folders: list[str]) -> Iterator[str]:
    """Files of the graphs that these task folders list, as far as they are there."""
    for folder in folders:
        try:
            names = _listed_graphs(tree, folder)
        except MalformedTaskError:
            continue  # read_task says it
        for name in names:
            if not posixpath.isabs(name):
                graph_dir = tree.find_graph(folder, name)
                yield from (posixpath.join(graph_dir, file) for file in GRAPH_FILES)


def _task_id(tree: FileTree, folder: str, uids: Sequence[str], about: Mapping[str, Any]) -> str:
    return about.get("task_id") or (task_id_of(uids) if uids else _folder_name(tree, folder))


def _listed_graph(tree: FileTree, folder: str, name: str) -> Graph:
    """The graph of one line of the list."""
    list_path = tree.shown(posixpath.join(folder, GRAPH_LIST_FILE))
    if posixpath.isabs(name):
        raise MalformedTaskError(f"{list_path}: {name!r} is absolute; write it relative to {tree.shown(folder)}")
    graph_dir = tree.find_graph(folder, name)
    if not tree.is_graph_dir(graph_dir):
        has_net = tree.is_file(posixpath.join(graph_dir, GRAPH_NET_FILE))
        missing = tree.shown(posixpath.join(graph_dir, MODEL_FILE if has_net else GRAPH_NET_FILE))
        raise MalformedTaskError(f"{missing}: missing, but {list_path} names it; drop the line")
    return read_graph(tree, graph_dir, name=name)


def _listed_graphs(tree: FileTree, folder: str) -> list[str]:
    path = posixpath.join(folder, GRAPH_LIST_FILE)
    text = _read_if_there(tree, path, MalformedTaskError)
    names = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not names:
        raise MalformedTaskError(
            f"{tree.shown(path)}: empty; list one graph folder a line, relative to {tree.shown(folder)}"
        )
    return names


def _read_uids(tree: FileTree, path: str) -> list[str]:
    """Upstream separates them with commas; one a line is read too."""
    text = _read_if_there(tree, path, MalformedTaskError) or ""
    return [uid.strip() for uid in _UID_SEPARATOR.split(text) if uid.strip()]


def _folder_name(tree: FileTree, folder: str) -> str:
    if isinstance(tree, FolderTree):
        return Path(folder).resolve().name
    return posixpath.basename(folder) or "task"


def _read_about(tree: FileTree, path: str) -> dict:
    text = _read_if_there(tree, path, MalformedTaskError)
    if text is None:
        return {}
    try:
        about = json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedTaskError(f"{tree.shown(path)}: not JSON ({error}); correct or remove it") from None
    facts = about.get("facts", {}) if isinstance(about, dict) else None
    if not isinstance(facts, dict) or not all(isinstance(about.get(key, ""), str) for key in ("task_id", "split")):
        raise MalformedTaskError(
            f"{tree.shown(path)}: expected an object with task_id, split and facts; correct or remove it"
        )
    return about


def _read_if_there(tree: FileTree, path: str, error_type: type[ValueError]) -> str | None:
    try:
        return tree.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except NotText as error:
        raise error_type(f"{tree.shown(path)}: {error}; save it as UTF-8") from None


def _write_text(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))
