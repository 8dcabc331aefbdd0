"""TrajectoryStore: the folder of one collection, runs/collect/<name>/. Plain files; a kill leaves none half written.

    manifest.json                   what is collected: configuration, its hash, task hashes, shard, versions
    trajectories/<id>.json          one attempt
    trajectories/<id>.turns.jsonl   what a running attempt has added to it since (journal.py)
    ledger.jsonl                    one line an answer: what it cost (ledger.py)
    index.jsonl                     one line an attempt, found again from the records (collect_index.py)
    progress.jsonl                  one line a minute (progress.py)
    summary.json, costs.json        written at the end of a run; their absence says nothing else

A record is written beside its place, synced and renamed. One process at a time may write to a collection (flock on
`lock`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from eval_harness.errors import UserError
from eval_harness.machine import describe_versions
from trajectories.journal import Journal, journal_path, remove_left_over, with_journal
from trajectories.record import INFRASTRUCTURE_STOPS, SCHEMA_VERSION, StopReason, Trajectory
from trajectories.store_files import TEMPORARY, disk_errors, write_atomically

__all__ = ["TrajectoryStore", "disk_errors", "load_trajectories", "load_trajectory", "write_atomically"]

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
SUMMARY_FILE = "summary.json"
COSTS_FILE = "costs.json"
LEDGER_FILE = "ledger.jsonl"
LOCK_FILE = "lock"
TRAJECTORIES_DIR = "trajectories"

TAKEN_UP_AGAIN = INFRASTRUCTURE_STOPS | {StopReason.BUDGET_LIMIT}
"""Stops that a resume does not count as finished."""


class TrajectoryStore:
    """Reads and writes the trajectories of one collection. Thread-safe: each file has one writing attempt."""

    def __init__(self, root: Path | str) -> None:
        """Does not touch the disk; see open_for_writing, or just read."""
        self.root = Path(root)
        self._lock: IO[str] | None = None
        self._journals: dict[str, Journal] = {}

    def open_for_writing(
        self,
        identity: Mapping[str, Any],
        *,
        resume: bool = True,
        shard: str | None = None,
        upgrade: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda config: config,
        is_more: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda stored, wanted: False,
    ) -> None:
        """Create the collection, or take it up again.

        identity: the configuration and task hashes that make two runs the same collection, as plain data. shard: "i/n"
        when the folder holds this share of it. upgrade: an identity that an older version wrote, as this one would.
        is_more: whether the identity wanted now only asks for more of the stored one; the manifest then says the new.
        Raises UserError: another process writes to it; it holds another configuration or shard; it exists and resume
        is False.
        """
        with disk_errors(self.root):
            (self.root / TRAJECTORIES_DIR).mkdir(parents=True, exist_ok=True)
            self.lock()
        identity_hash = hash_identity(identity)
        path = self.root / MANIFEST_FILE
        if path.exists():
            manifest = _read_json(path)
            if not resume:
                self.close()
                raise UserError(f"{self.root}: holds a collection already; resume it, or choose another folder")
            stored = manifest.get("config", {})
            wanted = json.loads(json.dumps(identity))
            is_same = manifest.get("config_hash") == identity_hash or hash_identity(upgrade(stored)) == identity_hash
            has_grown = not is_same and is_more(upgrade(stored), wanted)
            if not is_same and not has_grown:
                self.close()
                changed = _changed_keys(dict(upgrade(stored)), wanted)
                raise UserError(
                    f"{path}: was begun with another configuration ({', '.join(changed[:4]) or 'unknown'} changed); "
                    "put it back, or collect into another folder"
                )
            if manifest.get("shard") != shard:
                self.close()
                begun = f"with --shard {manifest['shard']}" if manifest.get("shard") else "without --shard"
                raise UserError(f"{path}: was begun {begun}; go on like that, or collect into another folder")
            if has_grown:
                grown = manifest | {"config": wanted, "config_hash": identity_hash}
                write_atomically(path, json.dumps(grown, indent=1, ensure_ascii=False))
        else:
            manifest = {
                "schema_version": SCHEMA_VERSION,
                "config": dict(identity),
                "config_hash": identity_hash,
                "shard": shard,
                "versions": describe_versions(),
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write_atomically(path, json.dumps(manifest, indent=1, ensure_ascii=False))
        for leftover in self.root.rglob(f".*{TEMPORARY}*"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)
        remove_left_over(self.root / TRAJECTORIES_DIR)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._journals.clear()

    def path(self, trajectory_id: str) -> Path:
        """Where an attempt is stored; ids with unusual characters get a readable name and a hash."""
        name = re.sub(r"[^A-Za-z0-9_.\-]", "_", trajectory_id).lstrip(".")[:150]
        if name != trajectory_id:
            name += "-" + hashlib.sha256(trajectory_id.encode()).hexdigest()[:12]
        return self.root / TRAJECTORIES_DIR / f"{name}.json"

    def write(self, trajectory: Trajectory) -> None:
        """Keep the record as it is now. While the attempt runs, a change costs what it adds.

        Raises UserError if the disk is full; what was kept before is then still there.
        """
        path, journal = self.path(trajectory.trajectory_id), self._journals.get(trajectory.trajectory_id)
        if trajectory.stop_reason is None and journal is not None and journal.continues_to(trajectory):
            journal.append(trajectory)
            return
        text = trajectory.model_dump_json(indent=1)
        write_atomically(path, text)
        journal_path(path).unlink(missing_ok=True)
        if trajectory.stop_reason is None:
            self._journals[trajectory.trajectory_id] = Journal(path, trajectory, text)
        else:
            self._journals.pop(trajectory.trajectory_id, None)

    def load(self, trajectory_id: str) -> Trajectory | None:
        """The record, or None if the attempt has not begun."""
        path = self.path(trajectory_id)
        return load_trajectory(path) if path.exists() else None

    def __iter__(self) -> Iterator[Trajectory]:
        """Every stored record, by file name."""
        for path in self.record_paths():
            yield load_trajectory(path)

    def record_paths(self) -> list[Path]:
        """The files of all records, sorted."""
        return sorted((self.root / TRAJECTORIES_DIR).glob("*.json"))

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.root / MANIFEST_FILE
        if not path.exists():
            raise UserError(f"{path}: missing; {self.root} is not a folder that `passwright collect` wrote")
        return _read_json(path)

    def write_summary(self, summary: Mapping[str, Any], costs: Mapping[str, Any] | None = None) -> None:
        """summary.json, and costs.json where the answers cost something to tell."""
        write_atomically(self.root / SUMMARY_FILE, json.dumps(summary, indent=1, ensure_ascii=False))
        if costs is not None:
            write_atomically(self.root / COSTS_FILE, json.dumps(costs, indent=1, ensure_ascii=False))

    def lock(self) -> None:
        """Keep other processes from writing to the collection, until close. Raises UserError if one does."""
        self._lock = (self.root / LOCK_FILE).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise UserError(f"{self.root}: another process is collecting into it; wait for it, or stop it") from None


def is_finished(trajectory: Trajectory) -> bool:
    """Whether a resume leaves the attempt as it is."""
    return trajectory.stop_reason is not None and trajectory.stop_reason not in TAKEN_UP_AGAIN


def load_trajectory(path: Path) -> Trajectory:
    """Read one record, with what a running attempt has added to it. Raises UserError naming the file."""
    text = _read_text(path)
    data = with_journal(path, text, _parse_json(path, text))
    version = data.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {version}; this version of Passwright reads 1 to {SCHEMA_VERSION}")
    try:
        return Trajectory.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {where}: {first['msg']}; restore the file or remove it to redo the attempt") from None


def load_trajectories(folder: Path | str) -> list[Trajectory]:
    """All records of a collection's folder. Raises UserError if there is none."""
    store = TrajectoryStore(folder)
    if not (store.root / TRAJECTORIES_DIR).is_dir():
        raise UserError(f"{store.root}: no {TRAJECTORIES_DIR}/ in it; give the folder that `passwright collect` wrote")
    return list(store)


def hash_identity(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    return _parse_json(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it or remove it") from None


def _parse_json(path: Path, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it or remove it") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object; restore it or remove it")
    return data


def _changed_keys(before: Any, after: Any, prefix: str = "") -> list[str]:
    """Dotted keys whose values differ."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [prefix] if before != after else []
    changed = []
    for key in dict.fromkeys([*before, *after]):
        changed += _changed_keys(before.get(key), after.get(key), f"{prefix}.{key}" if prefix else key)
    return changed
