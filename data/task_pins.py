"""Pins: which tasks a set consists of, by content hash, so that `passbench:eval` means the same everywhere.

A JSON file beside the Parquet file (`passbench.pins.json`), or anywhere to be handed on: whoever has the data makes one
(`passwright tasks import ... --write-pins FILE`), others import against it (`--pins FILE`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.file_trees import MalformedTaskError
from data.task import Task

PINS_VERSION = 1
PINS_SUFFIX = ".pins.json"
SHOWN_TASKS = 3
"""Of a list of task ids in a message."""


@dataclass(frozen=True)
class Pin:
    """What is fixed of one task."""

    split: str
    sha256: str
    """Task.content_hash: model.py and metas of every graph, in order."""


@dataclass(frozen=True)
class Pins:
    """The tasks of a set."""

    tasks: Mapping[str, Pin]
    """task_id -> pin, in the set's order."""
    path: Path
    """Where it was read, for messages."""

    @property
    def splits(self) -> list[str]:
        return sorted({pin.split for pin in self.tasks.values()})

    def verify(self, task: Task, where: Path) -> None:
        """Raise MalformedTaskError, naming the task, unless it is pinned with this content and split."""
        pin = self.tasks.get(task.task_id)
        if pin is None:
            raise MalformedTaskError(f"{where}: task {task.task_id} is not pinned in {self.path}; import the set again")
        if pin.sha256 != task.content_hash:
            raise MalformedTaskError(
                f"{where}: task {task.task_id} has content {task.content_hash[:12]}, but {self.path} pins "
                f"{pin.sha256[:12]}; its graphs were changed: import the set again from the data that was pinned"
            )
        if pin.split != task.split:
            raise MalformedTaskError(
                f"{where}: task {task.task_id} lies in split {task.split!r}, but {self.path} pins it in {pin.split!r}; "
                "import the set again"
            )

    def verify_keys(self, keys: Iterable[tuple[str, str]], where: Path) -> None:
        """Raise MalformedTaskError unless exactly the pinned tasks are there. keys: (task_id, split)."""
        present = {task_id for task_id, _ in keys}
        if missing := [task_id for task_id in self.tasks if task_id not in present]:
            raise MalformedTaskError(
                f"{where}: lacks {_shown(missing)} pinned in {self.path}; import the set again from complete data"
            )
        if extra := sorted(present - set(self.tasks)):
            raise MalformedTaskError(
                f"{where}: holds {_shown(extra)} that {self.path} does not pin; import the set again"
            )


def pins_path(table: Path) -> Path:
    """Where the pins of a Parquet file of tasks lie."""
    return table.with_name(table.name.removesuffix(".parquet") + PINS_SUFFIX)


def load_pins(path: Path) -> Pins:
    """Raises MalformedTaskError naming the file."""
    try:
        record = json.loads(path.read_bytes())
        version = record["pins_version"]
        tasks = {task_id: Pin(str(pin["split"]), str(pin["sha256"])) for task_id, pin in record["tasks"].items()}
    except FileNotFoundError:
        raise MalformedTaskError(
            f"{path}: no such file; write one with `passwright tasks import --write-pins`"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MalformedTaskError(f"{path}: no file of pins ({reason}); write it again with --write-pins") from None
    if version != PINS_VERSION:
        raise MalformedTaskError(f"{path}: has version {version}, this Passwright reads {PINS_VERSION}; write it again")
    return Pins(tasks, path)


def write_pins(path: Path, pins: Mapping[str, Pin], about: Mapping[str, Any]) -> None:
    """One line a task. about: where the tasks come from; for a reader, never checked."""
    tasks = {task_id: {"split": pin.split, "sha256": pin.sha256} for task_id, pin in pins.items()}
    lines = ",\n".join(f"  {json.dumps(task_id)}: {json.dumps(pin)}" for task_id, pin in tasks.items())
    head = json.dumps({"pins_version": PINS_VERSION, **about}, ensure_ascii=False).removesuffix("}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(f'{head},\n "tasks": {{\n{lines}\n}}}}\n', encoding="utf-8")
    partial.replace(path)


def pin_of(task: Task) -> Pin:
    return Pin(task.split, task.content_hash)


def _shown(task_ids: list[str]) -> str:
    more = f", and {len(task_ids) - SHOWN_TASKS} more" if len(task_ids) > SHOWN_TASKS else ""
    return f"{len(task_ids)} task(s) ({', '.join(task_ids[:SHOWN_TASKS])}{more})"
