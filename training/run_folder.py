"""RunFolder: runs/<stage>/<name>/ of one training or evaluation run: what it was run with, and whether it is finished.

config.json    resolved configuration, its hash, hashes of the inputs, versions, machine; written first
summary.json   written last: the mark of a finished run
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from eval_harness.errors import UserError
from eval_harness.machine import describe_machine, describe_versions
from trajectories.store import disk_errors, hash_identity, write_atomically

CONFIG_FILE = "config.json"
SUMMARY_FILE = "summary.json"
_PACKAGES = ("accelerate", "datasets", "peft", "tokenizers", "trl")


class RunFolder:
    """The folder of one run. Does not touch the disk until `open`."""

    def __init__(
        self,
        path: Path,
        config: BaseModel,
        *,
        inputs: Mapping[str, Path] | None = None,
        ignored_fields: frozenset[str] = frozenset({"out"}),
        identity: BaseModel | None = None,
    ) -> None:
        """inputs: name -> file or folder that the run reads. ignored_fields: do not make it another run. identity: the
        configuration without what does not, where that lies deeper."""
        self.path = path
        self.config = config
        self.identity = identity or config
        self.inputs = dict(inputs or {})
        self.ignored_fields = ignored_fields

    def open(self, *, resume: bool = True) -> None:
        """Make the folder, or take it up again; without resume an earlier run in it is removed.

        Raises UserError if it holds a run of another configuration or of other inputs, or if the disk is full.
        """
        identity = self._identity()
        path = self.path / CONFIG_FILE
        with disk_errors(self.path):
            if path.exists() and not resume:
                # only what has our mark in it: a mistyped --out must not cost a user's files
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._refuse_other(identity, path)
            return
        record = {
            "schema_version": 1,
            "config": self.config.model_dump(mode="json"),
            "config_hash": hash_identity(identity),
            "identity": identity,
            "versions": describe_versions() | _training_versions(),
            "machine": describe_machine("cpu"),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomically(path, json.dumps(record, indent=1) + "\n")

    @property
    def is_finished(self) -> bool:
        return (self.path / SUMMARY_FILE).exists()

    def read_summary(self) -> dict[str, Any]:
        return _read_json(self.path / SUMMARY_FILE)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.path / SUMMARY_FILE, json.dumps(summary, indent=1) + "\n")

    def _identity(self) -> dict[str, Any]:
        """What makes two runs the same: configuration without places, and the contents of the inputs."""
        config = self.identity.model_dump(mode="json")
        kept = {key: value for key, value in config.items() if key not in self.ignored_fields}
        return {"config": kept, "inputs": {name: hash_files(path) for name, path in sorted(self.inputs.items())}}

    def _refuse_other(self, identity: dict[str, Any], path: Path) -> None:
        before = _read_json(path)
        if before.get("config_hash") == hash_identity(identity):
            return
        old = before.get("identity", {})
        changed = [
            f"{part}.{key}"
            for part in ("config", "inputs")
            for key in sorted({*old.get(part, {}), *identity[part]})
            if old.get(part, {}).get(key) != identity[part].get(key)
        ]
        raise UserError(
            f"{path}: was begun with another configuration ({', '.join(changed[:4]) or 'unknown'} changed); "
            "put it back, choose another name, or start anew with --no-resume"
        )


def last_checkpoint(folder: Path, num_processes: int, *, also: Sequence[str] = ()) -> Path | None:
    """The newest checkpoint that every process wrote to its end; one that a kill left half written is passed over.

    also: names of further files without which it is not whole.
    """
    random_states = ["rng_state.pth"] if num_processes == 1 else [f"rng_state_{i}.pth" for i in range(num_processes)]
    wanted = ["trainer_state.json", *random_states, *also]
    found = [path for path in folder.glob("checkpoint-*") if all((path / name).is_file() for name in wanted)]
    return max(found, key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    """The optimizer steps of a checkpoint, by its name."""
    return int(path.name.rpartition("-")[2])


def hash_files(path: Path) -> str:
    """sha256 over a file, or over the names and contents of a folder's files. Raises UserError if there is none."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; correct the path")
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file())
    for file in files:
        digest.update(f"{file.relative_to(path).as_posix()}\n".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _training_versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it or start anew with --no-resume") from None
    if not isinstance(read, dict):
        raise UserError(f"{path}: expected a JSON object; restore it or start anew with --no-resume")
    return read
