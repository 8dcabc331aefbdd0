"""Workspace: the folder of text files that an agent sees and edits. It is not the sandbox of the candidate process.

The folder lives in memory: path -> text. So there is nothing to escape into: no links, no devices, no other user's
files, and a thousand attempts side by side need no disk. What an agent sees:

    graphs/index.txt              one line a graph: its folder here, a tab, its name in the task
    graphs/<i>/model.py           the i-th graph of the task, from 0, in the order of the task
    graphs/<i>/weight_meta.py     and input_meta.py: shapes, dtypes, statistics of its arguments
    pass_dir/                     the pass folder; the only place that can be written

Paths are relative, with "/" as separator. Everything that an agent does wrong here is a WorkspaceError, whose text is
shown to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from data.graph import INPUT_META_FILE, MODEL_FILE, WEIGHT_META_FILE
from data.task import Task
from eval_harness.candidate import MAX_FILES, Candidate

PASS_DIR = "pass_dir"
GRAPHS_DIR = "graphs"
INDEX_FILE = f"{GRAPHS_DIR}/index.txt"

MAX_FILE_CHARS = 100_000
MAX_TOTAL_CHARS = 1_000_000
"""Of everything below pass_dir."""
MAX_PATH_CHARS = 200
MAX_UNDO = 50
"""Edits of one file that can be taken back."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class WorkspaceError(ValueError):
    """The agent's mistake: what was wrong and what to do instead, as text for the agent."""


class Workspace:
    """The files of one attempt. Not thread-safe: one attempt edits it, one call at a time."""

    def __init__(self, task: Task, *, pass_files: Mapping[str, str] | None = None) -> None:
        """pass_files: files to start from, paths below pass_dir -> text; empty by default."""
        self._task_files = _task_files(task)
        self._files: dict[str, str] = {}
        self._history: dict[str, list[str | None]] = {}
        for path, text in (pass_files or {}).items():
            self.write(f"{PASS_DIR}/{path}", text)
        self._history.clear()

    @property
    def pass_files(self) -> dict[str, str]:
        """Path below pass_dir -> text, sorted by path."""
        return {path.removeprefix(f"{PASS_DIR}/"): self._files[path] for path in sorted(self._files)}

    @property
    def task_files(self) -> Mapping[str, str]:
        return MappingProxyType(self._task_files)

    def freeze(self) -> Candidate:
        """The pass folder as a candidate. Raises MalformedCandidateError (no manifest, a missing rule)."""
        return Candidate(self.pass_files)

    def is_dir(self, path: str) -> bool:
        clean = clean_path(path)
        return clean in ("", PASS_DIR, GRAPHS_DIR) or any(name.startswith(f"{clean}/") for name in self._all_paths())

    def list_dir(self, path: str) -> list[str]:
        """Paths of the files below a folder, sorted by name, numbers by value."""
        clean = clean_path(path)
        prefix = f"{clean}/" if clean else ""
        return sorted((name for name in self._all_paths() if name.startswith(prefix)), key=_natural_key)

    def read(self, path: str) -> str:
        clean = clean_path(path)
        for files in (self._files, self._task_files):
            if clean in files:
                return files[clean]
        if self.is_dir(clean):
            raise WorkspaceError(f"{clean or '.'} is a folder; name a file in it")
        raise WorkspaceError(f"{clean}: no such file; view {PASS_DIR} or {GRAPHS_DIR} to see what there is")

    def exists(self, path: str) -> bool:
        clean = clean_path(path)
        return clean in self._files or clean in self._task_files

    def write(self, path: str, text: str) -> str:
        """Create or overwrite a file below pass_dir; returns the clean path. undo takes it back."""
        clean = self._writable(path)
        if "\x00" in text or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise WorkspaceError(f"{clean}: only UTF-8 text without NUL can be written")
        if len(text) > MAX_FILE_CHARS:
            raise WorkspaceError(f"{clean}: {len(text)} characters; a file may hold {MAX_FILE_CHARS}")
        others = sum(len(content) for name, content in self._files.items() if name != clean)
        if others + len(text) > MAX_TOTAL_CHARS:
            raise WorkspaceError(f"{clean}: {PASS_DIR} would hold more than {MAX_TOTAL_CHARS} characters")
        if clean not in self._files:
            if len(self._files) >= MAX_FILES:
                raise WorkspaceError(f"{clean}: {PASS_DIR} already holds {MAX_FILES} files, the most it may")
            if self.is_dir(clean):
                raise WorkspaceError(f"{clean} is a folder; choose another name")
            for parent in _parents(clean):
                if parent in self._files:
                    raise WorkspaceError(f"{parent} is a file; it cannot hold {clean}")
        history = self._history.setdefault(clean, [])
        history.append(self._files.get(clean))
        del history[:-MAX_UNDO]
        self._files[clean] = text
        return clean

    def undo(self, path: str) -> str | None:
        """Take back the last edit of a file; returns its text now, None if that edit had created it."""
        clean = self._writable(path)
        if not self._history.get(clean):
            raise WorkspaceError(f"{clean}: no edit to undo")
        before = self._history[clean].pop()
        if before is None:
            del self._files[clean]
        else:
            self._files[clean] = before
        return before

    def _all_paths(self) -> list[str]:
        return [*self._task_files, *self._files]

    def _writable(self, path: str) -> str:
        clean = clean_path(path)
        if not clean.startswith(f"{PASS_DIR}/"):
            raise WorkspaceError(f"{clean or '.'}: read-only; only files below {PASS_DIR}/ can be written")
        return clean


def clean_path(path: str) -> str:
    """The path in its one spelling ("" is the workspace itself). Raises WorkspaceError for anything that leaves it."""
    if len(path) > MAX_PATH_CHARS:
        raise WorkspaceError(f"path of {len(path)} characters; at most {MAX_PATH_CHARS}")
    if path.startswith(("/", "~")) or "\\" in path:
        raise WorkspaceError(f"{path!a}: give a path relative to the workspace, such as {PASS_DIR}/Fuse.py")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise WorkspaceError(f"{path!a}: '..' leaves the workspace; give a path such as {PASS_DIR}/Fuse.py")
        if not _PART.fullmatch(part):
            raise WorkspaceError(f"{path!a}: file names may hold letters, digits, '_', '-' and '.' only")
    return "/".join(parts)


def graph_dir(index: int) -> str:
    """Folder of the task's index-th graph in the workspace."""
    return f"{GRAPHS_DIR}/{index}"


def _task_files(task: Task) -> dict[str, str]:
    files = {INDEX_FILE: "".join(f"{graph_dir(i)}\t{graph.name}\n" for i, graph in enumerate(task.graphs))}
    for index, graph in enumerate(task.graphs):
        for name in (MODEL_FILE, WEIGHT_META_FILE, INPUT_META_FILE):
            if graph.files.get(name):
                files[f"{graph_dir(index)}/{name}"] = graph.files[name]
    return files


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _natural_key(path: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", path) if part]
