"""FileTree: text files by path, whether they lie in a folder or in rows of {path, content}. FolderTree is the first.

Paths are text with forward slashes. A tree also says which of its folders are tasks (graph_list.txt) and which are
graphs (graph_net.json and model.py), and follows links, those too that a checkout without symlinks left as one-line
text files.
"""

from __future__ import annotations

import os
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from data.graph import GRAPH_NET_FILE, MODEL_FILE

GRAPH_LIST_FILE = "graph_list.txt"
MAX_LINK_BYTES = 4096
"""A text file beyond this is no link."""
MAX_LEVELS_UP = 8
"""Folders above a task in which a graph that its own folder lacks is looked for; PassNet's tasks lie 6 deep."""


class MalformedTaskError(ValueError):
    """A task folder, Parquet file or reference cannot be read. The message names the file, the fault and the cure."""


class NotText(ValueError):
    """A file's bytes are not UTF-8. `start` is the first byte that is not."""

    def __init__(self, start: int) -> None:
        super().__init__(f"not UTF-8 (byte {start})")
        self.start = start


class FileTree(ABC):
    """Text files by path."""

    in_blocks = False
    """Is a file read with others around it, so that a `fetch` of many saves time?"""

    @abstractmethod
    def is_file(self, path: str) -> bool: ...

    @abstractmethod
    def is_dir(self, path: str) -> bool: ...

    @abstractmethod
    def read(self, path: str) -> str:
        """The file's text with its newlines as they are. Raises FileNotFoundError and NotText."""

    @abstractmethod
    def folders(self) -> Iterator[tuple[str, frozenset[str]]]:
        """(folder, names of its files) in order; nothing below a task's folder, whose links lead to shared graphs."""

    def shown(self, path: str) -> str:
        """The path as a message names it."""
        return path

    def relative(self, path: str) -> str:
        """The path below the tree's root."""
        return path

    def fetch(self, paths: Iterable[str]) -> None:
        """Hint: these files are read next."""
        del paths

    def task_dirs(self) -> list[str]:
        """Every folder with a graph_list.txt, sorted."""
        return sorted(folder for folder, files in self.folders() if GRAPH_LIST_FILE in files)

    def graph_dirs(self) -> list[str]:
        """Every folder that counts as a graph, sorted."""
        return sorted(folder for folder, files in self.folders() if {GRAPH_NET_FILE, MODEL_FILE} <= files)

    def is_graph_dir(self, path: str) -> bool:
        return self.is_file(posixpath.join(path, GRAPH_NET_FILE)) and self.is_file(posixpath.join(path, MODEL_FILE))

    def follow(self, folder: str, name: str) -> str:
        """folder / name, through links left as text too; the path may not exist."""
        path = folder
        for part in name.split("/"):
            path = posixpath.join(path, part)
            path = self.link_target(path) or path
        return path

    def link_target(self, path: str) -> str | None:
        """The folder that a one-line text file names, if that is what the path is."""
        if not self.is_file(path) or self.size(path) > MAX_LINK_BYTES:
            return None
        try:
            target = self.read(path).strip()
        except NotText:
            return None
        if not target or "\n" in target or "\0" in target:
            return None
        found = posixpath.join(posixpath.dirname(path), target)
        return found if self.is_dir(found) else None

    @abstractmethod
    def size(self, path: str) -> int:
        """Bytes, or characters where only text is known."""

    def find_graph(self, task_dir: str, name: str) -> str:
        """The folder of the graph that a task's list names.

        Relative to the task's folder; a copy without links (rows, an archive) has it in the nearest folder above
        instead. Where no folder is a graph, one that exists, or the path in the task's own folder.
        """
        own = self.follow(task_dir, name)
        if self.is_dir(own):
            return own
        incomplete, above = None, task_dir
        for _ in range(MAX_LEVELS_UP):
            below, above = above, self.parent(above)
            if above == below:
                break
            found = self.follow(above, name)
            if self.is_graph_dir(found):
                return found
            incomplete = incomplete or (found if self.is_dir(found) else None)
        return incomplete or own

    def parent(self, path: str) -> str:
        """The folder above; the root's is itself."""
        return posixpath.dirname(path)


class FolderTree(FileTree):
    """A folder of the file system; paths are those of the system."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).as_posix()

    def relative(self, path: str) -> str:
        return posixpath.relpath(path, self.root)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)  # noqa: PTH113  a million calls on an import, half the price

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)  # noqa: PTH112

    def parent(self, path: str) -> str:
        return posixpath.dirname(os.path.abspath(path))  # noqa: PTH100  Path.resolve would follow the task's own link

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def read(self, path: str) -> str:
        data = Path(path).read_bytes()  # read_text would turn \r\n into \n
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotText(error.start) from None

    def folders(self) -> Iterator[tuple[str, frozenset[str]]]:
        return self._walk(self.root, set())

    def _walk(self, folder: str, visited: set[str]) -> Iterator[tuple[str, frozenset[str]]]:
        real = os.path.realpath(folder)
        if real in visited:  # a link to a folder above
            return
        visited.add(real)
        with os.scandir(folder) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        files = frozenset(entry.name for entry in children if entry.is_file())
        yield folder, files
        if GRAPH_LIST_FILE in files:
            return
        for entry in children:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from self._walk(entry.path, visited)
            elif "." not in entry.name and (target := self.link_target(entry.path)) is not None:
                yield from self._walk(posixpath.normpath(target), visited)
