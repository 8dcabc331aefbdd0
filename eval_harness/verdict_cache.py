"""VerdictCache: verdicts on disk by content, and CachedEvaluator, which serves repeats from it. Loads without torch.

The key holds everything that decides a verdict but chance: candidate, task, protocol, device, machine, versions of what
computes, and the text of data/ and eval_harness/. A repeat then costs milliseconds and has the same noise as before. So
it never serves where a fresh number is asked for: a request with a seed of its own goes through (the final evaluation
of an attempt has one), and what is served says so (`Verdict.from_cache`). Kept are verdicts that would come out alike:
not UNSTABLE ones, and none that a busy machine may have caused.

Covered: concurrent writers (an entry is written whole or not at all), damaged entries (dropped), a size limit (least
recently used first). Not covered: a candidate that may write to this folder, where confinement is degraded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from eval_harness.machine import describe_versions
from eval_harness.presets import EvaluationProtocol
from eval_harness.retries import BROUGHT_DOWN
from eval_harness.verdict import Outcome, Verdict

log = logging.getLogger(__name__)

DEFAULT_DIR = Path("runs/cache/verdicts")
DEFAULT_MAX_MB = 256
ENTRY_VERSION = 1
KEPT_SHARE = 0.9
"""Of the size limit: what an eviction leaves, so that not every entry causes one."""
_MACHINE_FACTS = ("cpu", "num_cores", "kernel", "gpu", "driver", "gpu_memory")
_COMPUTING = ("python", "torch", "triton", "numba", "numpy")
_SHORT = "of host memory were left"
"""The watchdog's words where the machine, not certainly the candidate, was short."""
_BUSY_MACHINE = frozenset({Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY, Outcome.UNSTABLE})


class VerdictCache:
    """Verdicts in a folder, one JSON file each. Safe between threads and processes."""

    def __init__(self, root: Path | str = DEFAULT_DIR, *, max_mb: float = DEFAULT_MAX_MB) -> None:
        """Creates the folder. Raises UserError where it cannot."""
        self.root = Path(root)
        self.max_bytes = int(max_mb * (1 << 20))
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.root}: no place for the verdict cache ({error.strerror}); give another") from None
        self._mutex = threading.Lock()
        self._num_bytes = sum(size for _, size, _ in self._entries())

    def get(self, key: str) -> Verdict | None:
        """The stored verdict, or None. An entry that cannot be read is dropped."""
        path = self._path(key)
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["entry_version"] != ENTRY_VERSION or entry["key"] != key:
                raise ValueError("not the entry that its name says")
            verdict = Verdict.model_validate(entry["verdict"])
            os.utime(path)  # used now: evicted last
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s: dropped from the verdict cache (%s)", path, error)
            path.unlink(missing_ok=True)
            return None
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Store a verdict. A full or read-only disk is logged; the verdict is good without a cache."""
        path = self._path(key)
        entry = {"entry_version": ENTRY_VERSION, "key": key, "verdict": verdict.model_dump(mode="json")}
        data = json.dumps(entry, ensure_ascii=False).encode()
        try:
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
                file.write(data)
            Path(file.name).replace(path)
        except OSError as error:
            log.warning("%s: not stored in the verdict cache (%s)", path, error)
            return
        with self._mutex:
            self._num_bytes += len(data)
            if self._num_bytes > self.max_bytes:
                self._evict()

    def _evict(self) -> None:
        entries = self._entries()
        left = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if left <= KEPT_SHARE * self.max_bytes:
                break
            path.unlink(missing_ok=True)
            left -= size
        self._num_bytes = left

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every file."""
        found = []
        for path in self.root.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"


def is_kept(verdict: Verdict) -> bool:
    """Whether a repeat would come out alike, but for the noise of the clock."""
    return (
        verdict.complete
        and not verdict.disabled_layers
        and not any(
            graph.outcome in _BUSY_MACHINE or graph.message.startswith(BROUGHT_DOWN) or _SHORT in graph.message
            for graph in verdict.graphs
        )
    )


def verdict_key(
    subject: Candidate | str, task: Task, protocol: EvaluationProtocol, *, device: str, machine: Mapping[str, Any]
) -> str:
    """sha256 over everything that decides a verdict but chance. machine: facts of where it is evaluated."""
    versions = describe_versions()
    content = {
        "subject": subject.candidate_hash if isinstance(subject, Candidate) else f"baseline:{subject}",
        "task": [task.task_id, task.content_hash, [graph.name for graph in task.graphs]],
        "protocol": protocol.model_dump(mode="json"),
        "device": device.partition(":")[0],
        "machine": {name: machine.get(name) for name in _MACHINE_FACTS},
        "versions": {name: versions.get(name) for name in _COMPUTING},
        "source": source_hash(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@functools.cache
def source_hash() -> str:
    """sha256 over the Python files of data/ and eval_harness/: another harness gives other verdicts."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted([*(root / "data").rglob("*.py"), *(root / "eval_harness").rglob("*.py")]):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
