"""PassNet / GraphNet folders and our Parquet files <-> Graph and Task. Text in, text out: no torch, nothing executed.

A task reference is `DIR` (a task folder with graph_list.txt), `FILE.parquet[:split][/task_id]` or
`NAME[:split][/task_id]`, NAME being a file of data/bundled/. Files are read and written as bytes, so a graph that is
read and written again is the same to the last newline.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from data.graph import GRAPH_FILES, GRAPH_NET_FILE, MODEL_FILE, Graph, MalformedGraphError
from data.task import Task

GRAPH_LIST_FILE = "graph_list.txt"
SAMPLE_UIDS_FILE = "sample_uids.txt"
TASK_FACTS_FILE = "task.json"
"""Ours, and optional: task_id, split and facts, which upstream's folder has no place for."""
PASS_DIR = "pass_dir"
MAX_LINK_BYTES = 4096
BUNDLED_DIR = Path(__file__).parent / "bundled"

_FILE_REF = re.compile(r"^(?P<source>.+?\.parquet)(?::(?P<split>[^:/]+))?(?:/(?P<task_id>[^/]+))?$")
_NAME_REF = re.compile(r"^(?P<source>[\w.-]+)(?::(?P<split>[^:/]+))?(?:/(?P<task_id>[^/]+))?$")


class MalformedTaskError(ValueError):
    """A task folder, Parquet file or reference cannot be read. The message names the file, the fault and the cure."""


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
    files = {file: _read_text(path / file, MalformedGraphError) for file in GRAPH_FILES if (path / file).is_file()}
    name = name or path.name
    try:
        return Graph(name, files)
    except MalformedGraphError as error:
        # the message starts with the graph's name; say which folder that is
        raise MalformedGraphError(f"{path}{str(error).removeprefix(name)}") from None


def write_graph(graph: Graph, directory: str | Path) -> None:
    """Write the graph's files byte for byte; creates the folder."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    for file, text in graph.files.items():
        (path / file).write_bytes(text.encode("utf-8"))


def load_task(ref: str | Path) -> Task:
    """The one task that a reference names. Raises MalformedTaskError if it names none or several."""
    tasks = load_tasks(ref)
    if len(tasks) > 1:
        shown = ", ".join(task.task_id for task in tasks[:4]) + (", ..." if len(tasks) > 4 else "")
        raise MalformedTaskError(f"{ref}: names {len(tasks)} tasks; add /TASK_ID, one of {shown}")
    return tasks[0]


def load_tasks(ref: str | Path) -> list[Task]:
    """Every task that a reference names, at least one; a folder of task folders counts too.

    Raises MalformedTaskError, and MalformedGraphError for a graph's own files.
    """
    text = str(ref)
    path = Path(ref)
    if (path / GRAPH_LIST_FILE).is_file():
        return [_load_task_dir(path)]
    if matched := _FILE_REF.match(text):
        return _load_parquet(Path(matched["source"]), matched["split"], matched["task_id"])
    bundled = sorted(file.stem for file in BUNDLED_DIR.glob("*.parquet"))
    if (matched := _NAME_REF.match(text)) and matched["source"] in bundled:
        return _load_parquet(BUNDLED_DIR / f"{matched['source']}.parquet", matched["split"], matched["task_id"])
    if path.is_dir():
        if is_graph_dir(path):
            raise MalformedTaskError(f"{path}: a graph, not a task; name it in the {GRAPH_LIST_FILE} of a task folder")
        task_dirs = sorted(file.parent for file in path.glob(f"*/{GRAPH_LIST_FILE}"))
        if task_dirs:
            return [_load_task_dir(task_dir) for task_dir in task_dirs]
        raise MalformedTaskError(f"{path}/{GRAPH_LIST_FILE}: missing; list one graph folder a line, relative to {path}")
    nearest = _nearest(matched["source"] if matched else text, bundled)
    raise MalformedTaskError(
        f"{text}: no such task folder, Parquet file or bundled set{nearest}; "
        f"a task is DIR, FILE.parquet[:split][/task_id] or NAME[:split][/task_id] with NAME one of {', '.join(bundled)}"
    )


def write_task(task: Task, directory: str | Path) -> None:
    """Write a task folder: graph_list.txt, graphs, sample_uids.txt if any, pass_dir/ for a candidate, task.json."""
    path = Path(directory)
    for graph in task.graphs:
        parts = PurePosixPath(graph.name)
        if parts.is_absolute() or ".." in parts.parts:
            raise MalformedTaskError(f"{path}: graph {graph.name!r} would lie outside of it; rename the graph first")
    (path / PASS_DIR).mkdir(parents=True, exist_ok=True)
    for graph in task.graphs:
        write_graph(graph, path / graph.name)
    if task.uids:
        _write_text(path / SAMPLE_UIDS_FILE, "".join(f"{uid}\n" for uid in task.uids))
    about = {"task_id": task.task_id, "split": task.split, "facts": dict(task.facts)}
    _write_text(path / TASK_FACTS_FILE, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    # last: a folder counts as a task once the list is there
    _write_text(path / GRAPH_LIST_FILE, "".join(f"{graph.name}\n" for graph in task.graphs))


def write_parquet(tasks: Iterable[Task], path: str | Path) -> None:
    """One row a task, graph files as nested text columns; the same tasks give the same bytes."""
    from data.task_table import write_table  # pyarrow is needed for Parquet only

    write_table(list(tasks), Path(path))


def _load_parquet(path: Path, split: str | None, task_id: str | None) -> list[Task]:
    from data.task_table import read_keys, read_table

    if not path.is_file():
        raise MalformedTaskError(f"{path}: no such file; give the path of a Parquet file written by `passwright tasks`")
    try:
        keys = read_keys(path)
        splits = sorted({row_split for _, row_split in keys if row_split})
        if split is not None and split not in splits:
            known = ", ".join(splits) or "none"
            raise MalformedTaskError(f"{path}: no split {split!r}{_nearest(split, splits)}; it has {known}")
        here = [key for key, row_split in keys if split is None or row_split == split]
        if task_id is not None and task_id not in here:
            elsewhere = next((row_split for key, row_split in keys if key == task_id), None)
            hint = f"; it is in split {elsewhere!r}" if elsewhere else _nearest(task_id, here)
            raise MalformedTaskError(f"{path}: no task {task_id!r}{f' in split {split!r}' if split else ''}{hint}")
        tasks = read_table(path, wanted={task_id} if task_id is not None else set(here))
    except MalformedGraphError as error:
        raise MalformedGraphError(f"{path}: {error}") from None
    except (MalformedTaskError, OSError):
        raise
    except ValueError as error:  # pyarrow's errors and Task's own
        reason = _first_line(error)
        raise MalformedTaskError(f"{path}: not a file of tasks ({reason}); write it with write_parquet") from None
    if not tasks:
        raise MalformedTaskError(f"{path}: holds no tasks; build it again")
    return tasks


def _load_task_dir(path: Path) -> Task:
    """Graph paths are relative to the folder and may go through links."""
    list_path = path / GRAPH_LIST_FILE
    names = _lines(list_path)
    if not names:
        raise MalformedTaskError(f"{list_path}: empty; list one graph folder a line, relative to {path}")
    graphs = []
    for name in names:
        if PurePosixPath(name).is_absolute():
            raise MalformedTaskError(f"{list_path}: {name!r} is absolute; write it relative to {path}")
        graph_dir = _follow(path, name)
        if not is_graph_dir(graph_dir):
            missing = GRAPH_NET_FILE if not (graph_dir / GRAPH_NET_FILE).is_file() else MODEL_FILE
            raise MalformedTaskError(f"{graph_dir / missing}: missing, but {list_path} names it; drop the line")
        graphs.append(load_graph(graph_dir, name=name))
    uids = tuple(_lines(path / SAMPLE_UIDS_FILE)) if (path / SAMPLE_UIDS_FILE).is_file() else ()
    about = _read_about(path / TASK_FACTS_FILE)
    task_id = about.get("task_id") or (task_id_of(uids) if uids else path.resolve().name)
    try:
        return Task(task_id, tuple(graphs), split=about.get("split", ""), uids=uids, facts=about.get("facts", {}))
    except ValueError as error:
        raise MalformedTaskError(f"{list_path}: {error}") from None


def _follow(root: Path, name: str) -> Path:
    """root / name, also through links that a checkout without symlinks left as one-line text files."""
    path = root
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_file() and path.stat().st_size <= MAX_LINK_BYTES:
            target = _read_text(path, MalformedTaskError).strip()
            if target and "\n" not in target and (path.parent / target).is_dir():
                path = path.parent / target
    return path


def _read_about(path: Path) -> dict:
    if not path.is_file():
        return {}
    try:
        about = json.loads(_read_text(path, MalformedTaskError))
    except json.JSONDecodeError as error:
        raise MalformedTaskError(f"{path}: not JSON ({error}); correct or remove it") from None
    facts = about.get("facts", {}) if isinstance(about, dict) else None
    if not isinstance(facts, dict) or not all(isinstance(about.get(key, ""), str) for key in ("task_id", "split")):
        raise MalformedTaskError(f"{path}: expected an object with task_id, split and facts; correct or remove it")
    return about


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in _read_text(path, MalformedTaskError).splitlines() if line.strip()]


def _read_text(path: Path, error_type: type[ValueError]) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # read_text would turn \r\n into \n
    except UnicodeDecodeError as error:
        raise error_type(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _write_text(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))


def _nearest(word: str, candidates: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(candidates), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
