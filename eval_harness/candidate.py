"""Candidate: a submitted pass folder as immutable files, with its rule order and hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from eval_harness.errors import UserError

MANIFEST_FILE = "sorted_output_pass_rule_names.json"
MAX_FILES = 64
MAX_FILE_BYTES = 1_000_000
_IGNORED_PARTS = {"__pycache__", ".git", ".gitkeep"}


class MalformedCandidateError(UserError):
    """The folder is no candidate: no manifest, a rule without a file, not text. Names the file and the cure."""


@dataclass(frozen=True)
class Candidate:
    """A pass folder, frozen."""

    files: Mapping[str, str]
    """Relative path ("/" as separator) -> text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(sorted(self.files.items()))))
        for path, text in self.files.items():
            parts = PurePosixPath(path).parts
            if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
                raise MalformedCandidateError(f"{path!r}: not a plain path inside the pass folder")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise MalformedCandidateError(f"{path}: holds characters that UTF-8 cannot encode") from None
        _ = self.rule_names

    @classmethod
    def from_dir(cls, pass_dir: Path | str) -> Candidate:
        """Read a pass_dir. Raises MalformedCandidateError."""
        root = Path(pass_dir)
        if not root.is_dir():
            raise MalformedCandidateError(f"{root}: no such pass folder; give the folder that holds {MANIFEST_FILE}")
        files: dict[str, str] = {}
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if path.is_dir() or _IGNORED_PARTS & set(relative.parts):
                continue
            if path.is_symlink():
                raise MalformedCandidateError(f"{path}: a link; a pass folder holds plain files only")
            if len(files) >= MAX_FILES:
                raise MalformedCandidateError(f"{root}: more than {MAX_FILES} files; remove what the rules do not need")
            if path.stat().st_size > MAX_FILE_BYTES:
                raise MalformedCandidateError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
            try:
                files[relative.as_posix()] = path.read_bytes().decode()
            except UnicodeDecodeError:
                raise MalformedCandidateError(f"{path}: not UTF-8 text; a pass folder holds sources only") from None
        return cls(files)

    @cached_property
    def rule_names(self) -> tuple[str, ...]:
        """Stems of the rule files, in the order in which they are applied."""
        if f"pass_dir/{MANIFEST_FILE}" in self.files and MANIFEST_FILE not in self.files:
            raise MalformedCandidateError(f"{MANIFEST_FILE}: not here, but in pass_dir/ below; give that folder")
        if MANIFEST_FILE not in self.files:
            raise MalformedCandidateError(
                f"{MANIFEST_FILE}: missing; write a JSON list of the rule files' stems, such as [\"FuseGelu\"]"
            )
        try:
            names = json.loads(self.files[MANIFEST_FILE])
        except json.JSONDecodeError as error:
            raise MalformedCandidateError(f"{MANIFEST_FILE}: not JSON ({error}); write a list of file stems") from None
        if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
            raise MalformedCandidateError(f"{MANIFEST_FILE}: expected a list of at least one file stem")
        for name in names:
            if f"{name}.py" not in self.files:
                raise MalformedCandidateError(f"{MANIFEST_FILE}: names {name!r}, but there is no {name}.py")
            if not name.isidentifier():
                raise MalformedCandidateError(f"{name}.py: a rule's file stem must be a Python identifier")
        if len(set(names)) != len(names):
            raise MalformedCandidateError(f"{MANIFEST_FILE}: names a rule twice")
        return tuple(names)

    @cached_property
    def candidate_hash(self) -> str:
        """sha256 over paths and texts."""
        digest = hashlib.sha256()
        for path, text in self.files.items():
            data = text.encode()
            digest.update(f"{path}\n{len(data)}\n".encode())
            digest.update(data)
        return digest.hexdigest()

    def write_to(self, pass_dir: Path) -> None:
        """Write the files below pass_dir (created)."""
        for path, text in self.files.items():
            target = pass_dir / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
