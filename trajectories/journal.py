"""Journal: what a running attempt adds to its record, appended beside it, so that a turn costs what it adds.

    <id>.json         the record as it was when the attempt was begun or taken up
    <id>.turns.jsonl  {"base": sha256 of the record's bytes}, then a line a change: messages, evaluations, fields

When the attempt ends the record is written whole and the journal goes. A journal whose base is not the record beside
it was left over by a kill between the two, and counts for nothing. `passwright bench collect` prints what this costs,
and what rewriting the record twice a turn would.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from trajectories.record import EvaluationRecord, Message, Trajectory
from trajectories.store_files import append_synced, disk_errors, read_json_lines

_SUFFIX = ".turns.jsonl"
_LISTS = frozenset({"messages", "evaluations"})
_CONSTANT = frozenset({"tools", "graph_hashes", "machine", "versions"})
"""Set when the attempt begins; long, and not looked at again before it ends."""


class Journal:
    """The writing side, of one attempt. Not thread-safe: an attempt is written by the thread that runs it."""

    def __init__(self, record_path: Path, trajectory: Trajectory, text: str) -> None:
        """text: the record as it has just been written to record_path."""
        self._record_path = record_path
        self._base = hashlib.sha256(text.encode()).hexdigest()
        self._is_begun = False
        self._note(trajectory, _fields(trajectory))

    def continues_to(self, trajectory: Trajectory) -> bool:
        """Whether the trajectory is what was written, with more messages and evaluations after it."""
        return _is_prefix(self._messages, trajectory.messages) and _is_prefix(self._evaluations, trajectory.evaluations)

    def append(self, trajectory: Trajectory) -> None:
        """Write what is new. Raises UserError if the disk is full; what was written before stays readable."""
        fields = _fields(trajectory)
        line: dict[str, Any] = {
            "at": len(self._messages),
            "messages": [_plain(message) for message in trajectory.messages[len(self._messages) :]],
            "evaluations": [_plain(record) for record in trajectory.evaluations[len(self._evaluations) :]],
            "fields": {name: value for name, value in fields.items() if value != self._fields[name]},
        }
        if not (line["messages"] or line["evaluations"] or line["fields"]):
            return
        header = "" if self._is_begun else json.dumps({"base": self._base}) + "\n"
        if header:  # an earlier attempt's journal would be in the way
            journal_path(self._record_path).unlink(missing_ok=True)
        with disk_errors(self._record_path):
            append_synced(journal_path(self._record_path), header + json.dumps(line, ensure_ascii=False) + "\n")
        self._is_begun = True
        self._note(trajectory, fields)

    def _note(self, trajectory: Trajectory, fields: dict[str, Any]) -> None:
        self._messages: list[Message] = list(trajectory.messages)
        self._evaluations: list[EvaluationRecord] = list(trajectory.evaluations)
        self._fields = fields


def journal_path(record_path: Path) -> Path:
    return record_path.with_name(record_path.stem + _SUFFIX)


def with_journal(record_path: Path, text: str, data: dict[str, Any]) -> dict[str, Any]:
    """The record's data (parsed from text) with what its journal adds; as it is without one."""
    lines = read_json_lines(journal_path(record_path))
    if not _continues(text, next(lines, None)):
        return data
    data = data | {name: list(data.get(name, [])) for name in _LISTS}
    for line in lines:
        # a line before it cannot be read, or it is none of ours
        if line.get("at") != len(data["messages"]) or not line.keys() >= {"fields", *_LISTS}:
            break
        data |= line["fields"]
        for name in _LISTS:
            data[name] += line[name]
    return data


def remove_left_over(folder: Path) -> None:
    """Remove the journals of a folder that continue no record: a kill came before they were removed."""
    for path in folder.glob(f"*{_SUFFIX}"):
        record_path = path.with_name(f"{path.name.removesuffix(_SUFFIX)}.json")
        text = record_path.read_text(encoding="utf-8") if record_path.exists() else ""
        if not _continues(text, next(read_json_lines(path), None)):
            path.unlink()


def _continues(text: str, header: dict[str, Any] | None) -> bool:
    """Whether a journal that begins like this was begun on this text of a record."""
    return header is not None and header.get("base") == hashlib.sha256(text.encode()).hexdigest()


def _fields(trajectory: Trajectory) -> dict[str, Any]:
    return trajectory.model_dump(mode="json", exclude=set(_LISTS | _CONSTANT))


def _plain(record: Message | EvaluationRecord) -> dict[str, Any]:
    return record.model_dump(mode="json")


def _is_prefix(written: list[Any], now: list[Any]) -> bool:
    """By identity: the agent hands over the same objects again, and comparing long texts would cost what is saved."""
    return len(written) <= len(now) and all(a is b for a, b in zip(written, now, strict=False))
