"""An audit of released kernels: how many of each source have a batch axis, and how many change a row's bits with it.

BIEvolve's Table 1 (a line a source) and Table A1 (a line an artifact). Pure: what was found comes in as records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from eval_harness.batch_invariance.kernel_files import KERNEL_FILE, SPEC_FILE, source_files

HIGH_SHARE = 0.5
"""Of a source's applicable artifacts, confirmed variant: the evidence is High."""
HEADER_SUFFIXES = frozenset({".h", ".hpp"})
"""Outside of a kernel folder these are no artifacts by themselves."""


class Evidence(StrEnum):
    """How sure it is that a source's kernels follow the batch (BIEvolve, Table 1)."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"
    NOT_APPLICABLE = "N/A"
    NONE = "none"
    """Applicable, and neither a risk nor a variant: no class of the paper's."""


@dataclass(frozen=True)
class Artifact:
    """One released kernel."""

    source: str
    """Where it was released: the first folder below the audited one."""
    name: str
    files: tuple[Path, ...]
    folder: Path | None = None
    """With kernel.py and kernel.json: it can be run."""


@dataclass
class AuditRow:
    """What was found of an artifact."""

    source: str
    name: str
    findings: list[str] = field(default_factory=list)
    """"file:line: mechanism: parameter" of each static finding: a risk until a run confirms it."""
    mechanisms: list[str] = field(default_factory=list)
    unresolved: int = 0
    dynamic: str | None = None
    """The validator's outcome; None where it was not run."""
    message: str = ""

    @property
    def is_applicable(self) -> bool | None:
        """Whether it has a batch axis; None where only running could tell."""
        return None if self.dynamic is None else self.dynamic != "not applicable"

    @property
    def is_confirmed(self) -> bool:
        return self.dynamic == "variant"

    @property
    def evidence(self) -> Evidence:
        """Of this artifact alone."""
        if self.is_confirmed:
            return Evidence.HIGH
        if self.is_applicable is False:
            return Evidence.NOT_APPLICABLE
        return Evidence.LOW if self.findings else Evidence.NONE


@dataclass(frozen=True)
class SourceRow:
    """A line of Table 1."""

    source: str
    num_artifacts: int
    num_applicable: int
    """With a batch axis; those that were not run count if the static rules see a risk."""
    num_at_risk: int
    num_confirmed: int
    evidence: Evidence

    @property
    def confirmed_share(self) -> float | None:
        return self.num_confirmed / self.num_applicable if self.num_applicable else None


def find_artifacts(root: Path) -> list[Artifact]:
    """Kernel folders (kernel.py), and each other source file outside of them, by source and name."""
    folders = sorted(path.parent for path in root.rglob(KERNEL_FILE))
    found = [
        Artifact(_source(root, folder), str(folder.relative_to(root)), tuple(source_files(folder)),
                 folder if (folder / SPEC_FILE).is_file() else None)
        for folder in folders
    ]  # fmt: skip
    inside = set(folders)
    for path in source_files(root):
        if path.suffix not in HEADER_SUFFIXES and not inside & set(path.parents):
            found.append(Artifact(_source(root, path), str(path.relative_to(root)), (path,)))
    return sorted(found, key=lambda artifact: (artifact.source, artifact.name))


def _source(root: Path, path: Path) -> str:
    parts = path.relative_to(root).parts
    return parts[0] if len(parts) > 1 else root.name


def by_source(rows: Sequence[AuditRow]) -> list[SourceRow]:
    """Table 1, with a last line for all sources together."""
    sources = sorted({row.source for row in rows})
    lines = [_line(source, [row for row in rows if row.source == source]) for source in sources]
    return [*lines, _line("all", rows)] if len(sources) > 1 else lines


def _line(name: str, rows: Sequence[AuditRow]) -> SourceRow:
    applicable = [row for row in rows if row.is_applicable or (row.is_applicable is None and row.findings)]
    confirmed = sum(row.is_confirmed for row in rows)
    at_risk = sum(bool(row.findings) for row in rows)
    if not applicable:
        evidence = Evidence.NOT_APPLICABLE
    elif confirmed:
        evidence = Evidence.HIGH if confirmed >= HIGH_SHARE * len(applicable) else Evidence.MEDIUM
    else:
        evidence = Evidence.LOW if at_risk else Evidence.NONE
    return SourceRow(name, len(rows), len(applicable), at_risk, confirmed, evidence)
