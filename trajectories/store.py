"""TrajectoryStore: the folder of one collection, runs/collect/<name>/. Plain files, each written whole or not at all.

    manifest.json               what is collected: configuration, its hash, task hashes, versions
    trajectories/<id>.json      one attempt, rewritten after every turn
    ledger.jsonl                one line an answer: what it cost (ledger.py)
    summary.json                written at the end of a run; its absence says nothing else

A file is written beside its place, synced and renamed, so a kill or a full disk leaves the old one as it was. One
process at a time may write to a collection (flock on `lock`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from eval_harness.errors import UserError
from eval_harness.machine import describe_versions
from trajectories.record import INFRASTRUCTURE_STOPS, SCHEMA_VERSION, StopReason, Trajectory

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
SUMMARY_FILE = "summary.json"
LEDGER_FILE = "ledger.jsonl"
LOCK_FILE = "lock"
TRAJECTORIES_DIR = "trajectories"
_TEMPORARY = ".tmp-"
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

TAKEN_UP_AGAIN = INFRASTRUCTURE_STOPS | {StopReason.BUDGET_LIMIT}
"""Stops that a resume does not count as finished."""


class TrajectoryStore:
    """Reads and writes the trajectories of one collection. Thread-safe: each file has one writing attempt."""

    def __init__(self, root: Path | str) -> None:
        """Does not touch the disk; see open_for_writing, or just read."""
        self.root = Path(root)
        self._lock: IO[str] | None = None

    def open_for_writing(self, identity: Mapping[str, Any], *, resume: bool = True) -> None:
        """Create the collection, or take it up again.

        identity: the configuration and task hashes that make two runs the same collection, as plain data.
        Raises UserError: another process writes to it; it holds another configuration; it exists and resume is False.
        """
        with disk_errors(self.root):
            (self.root / TRAJECTORIES_DIR).mkdir(parents=True, exist_ok=True)
            self._take_lock()
        identity_hash = hash_identity(identity)
        path = self.root / MANIFEST_FILE
        if path.exists():
            manifest = _read_json(path)
            if not resume:
                self.close()
                raise UserError(f"{self.root}: holds a collection already; resume it, or choose another folder")
            if manifest.get("config_hash") != identity_hash:
                self.close()
                changed = _changed_keys(manifest.get("config", {}), json.loads(json.dumps(identity)))
                raise UserError(
                    f"{path}: was begun with another configuration ({', '.join(changed[:4]) or 'unknown'} changed); "
                    "put it back, or collect into another folder"
                )
        else:
            manifest = {
                "schema_version": SCHEMA_VERSION,
                "config": dict(identity),
                "config_hash": identity_hash,
                "versions": describe_versions(),
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write_atomically(path, json.dumps(manifest, indent=1, ensure_ascii=False))
        for leftover in self.root.rglob(f".*{_TEMPORARY}*"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def path(self, trajectory_id: str) -> Path:
        """Where an attempt is stored; ids with unusual characters get a readable name and a hash."""
        name = re.sub(r"[^A-Za-z0-9_.\-]", "_", trajectory_id).lstrip(".")[:150]
        if name != trajectory_id:
            name += "-" + hashlib.sha256(trajectory_id.encode()).hexdigest()[:12]
        return self.root / TRAJECTORIES_DIR / f"{name}.json"

    def write(self, trajectory: Trajectory) -> None:
        """Raises UserError if the disk is full; the file on disk is then the one before."""
        write_atomically(self.path(trajectory.trajectory_id), trajectory.model_dump_json(indent=1))

    def load(self, trajectory_id: str) -> Trajectory | None:
        """The record, or None if the attempt has not begun."""
        path = self.path(trajectory_id)
        return load_trajectory(path) if path.exists() else None

    def __iter__(self) -> Iterator[Trajectory]:
        """Every stored record, by file name."""
        for path in sorted((self.root / TRAJECTORIES_DIR).glob("*.json")):
            yield load_trajectory(path)

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.root / MANIFEST_FILE
        if not path.exists():
            raise UserError(f"{path}: missing; {self.root} is not a folder that `passwright collect` wrote")
        return _read_json(path)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.root / SUMMARY_FILE, json.dumps(summary, indent=1, ensure_ascii=False))

    def _take_lock(self) -> None:
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
    """Read one record. Raises UserError naming the file."""
    data = _read_json(path)
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {version}; this version of Passwright reads {SCHEMA_VERSION}")
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


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by its new text, synced. Raises UserError if the disk is full, with the old file untouched."""
    temporary = path.with_name(f".{path.name}{_TEMPORARY}{os.getpid()}")
    with disk_errors(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a disk that is full or not writable into a UserError that names the path and the cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise UserError(
                f"{path}: the disk is full; free some space, then run the same command again: it goes on from there"
            ) from error
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            raise UserError(f"{path}: cannot be written ({error.strerror}); choose another folder by --out") from error
        raise


def _sync_folder(folder: Path) -> None:
    """Without it a rename can be lost in a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
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
