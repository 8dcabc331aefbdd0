"""What was asked of one model's extraction, and how it ended: the record that result.json holds. No torch.

A model's folder is complete when its result.json is there; it is written last, and as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FORMAT_VERSION = 1
"""Raised when the worker writes something else for the same configuration: earlier results are then done again."""
RESULT_FILE = "result.json"
PHASE_FILE = "phase.txt"
"""What the worker was doing last, for the message about one that was stopped."""
LOG_FILE = "worker.log"
FUSIBLE_FILE = "fusible.json"
"""Beside the variants of a full graph: K and its ranges."""
DEFAULT_ZOO = "data.construct.model_zoo"
MAX_ERROR_CHARS = 400
_SHORT_DTYPE = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


class Status(StrEnum):
    """How one model ended."""

    DONE = "done"
    FAILED = "failed"
    """It raised, crashed, or gave no graph."""
    TIMEOUT = "timeout"


class ModelConfig(BaseModel):
    """What is asked of every model of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shapes: int = Field(default=10, ge=1)
    """Sizes to capture in float32, the base among them."""
    dtypes: tuple[Literal["float16", "bfloat16", "float64"], ...] = ("float16", "bfloat16")
    """Further dtypes to capture at the base sizes."""
    seed: int = 0
    """Of the random weights and inputs."""
    fusible: bool = True
    """Whether to look for fusible ranges, which takes compilations."""
    backend: Literal["cpu", "cuda"] = "cpu"
    """Where those compilations count kernels: "cpu" or "cuda"."""
    threads: int = Field(default=1, ge=1)
    """Of each worker."""
    zoo: str = DEFAULT_ZOO
    """Module with find_model, symbols_of, size_variants and build_example."""

    @property
    def config_hash(self) -> str:
        """Equal for configurations that give the same files: threads do not count, versions of the libraries do."""
        versions = {name: _version(name) for name in ("torch", "transformers", "timm")}
        about = {"format": FORMAT_VERSION, "versions": versions, **self.model_dump(exclude={"threads"})}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


class Rejection(BaseModel):
    """A graph that is left out."""

    model_config = ConfigDict(extra="forbid")

    graph: int
    constraint: str
    """One of PassNet's five."""
    reason: str


class ModelResult(BaseModel):
    """result.json."""

    model_config = ConfigDict(extra="forbid")

    model_id: str
    source: str = ""
    """The library: "transformers", "timm"."""
    architecture: str = ""
    domain: str = "other"
    origin: str = ""
    """Dotted path of the class."""
    licence: str = ""
    status: Status
    error: str | None = None
    """One line; None if it is done."""
    seconds: float = 0.0
    """By the clock, imports included."""
    cpu_s: dict[str, float] = {}
    """Phase (import, build, capture, write, check, fusible) -> seconds of processor time, compilers included."""
    peak_rss_mb: float | None = None
    time_limit_s: float | None = None
    """The limit that was set; a model that met it is tried again under a higher one."""
    num_parameters: int = 0
    symbols: dict[str, int] = {}
    """The base sizes."""
    graphs: list[int] = []
    """Numbers of the graphs that were written."""
    variants: dict[str, dict[str, int]] = {}
    """Variant ("s1_f32") -> its sizes, for each that has at least one graph."""
    skipped: dict[str, str] = {}
    """Variant, or "graph_0/s1_f32" -> why it is missing."""
    rejected: list[Rejection] = []
    graph_breaks: dict[str, int] = {}
    """Dynamo's reason for ending a graph -> how often, at the base size."""
    config: ModelConfig
    config_hash: str


def variant_name(size_index: int, dtype: str) -> str:
    """ "s0_f32" for the base."""
    return f"s{size_index}_{_SHORT_DTYPE[dtype]}"


BASE = variant_name(0, "float32")


def model_dir_of(out: str | Path, model_id: str) -> Path:
    """Where a model's files go. Raises ValueError for an id that is no folder name."""
    if not model_id or model_id.startswith(".") or Path(model_id).name != model_id:
        raise ValueError(f"{model_id!r} is no model id; an id is a folder's name, such as transformers.bert")
    return Path(out) / model_id


def read_result(model_dir: Path) -> ModelResult | None:
    """The model's result, or None if there is none or it cannot be read: then the model is not complete."""
    try:
        return ModelResult.model_validate_json((model_dir / RESULT_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_result(result: ModelResult, model_dir: Path) -> None:
    """Atomically, after everything else of the model is written."""
    model_dir.mkdir(parents=True, exist_ok=True)
    staged = model_dir / f".{RESULT_FILE}.partial"
    with staged.open("w", encoding="utf-8") as file:
        file.write(result.model_dump_json(indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.replace(model_dir / RESULT_FILE)
    (model_dir / PHASE_FILE).unlink(missing_ok=True)


class PhaseClock:
    """Says what a worker is doing, for whoever has to stop it, and keeps how much processor time each phase took."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        self.cpu_s: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str, detail: str = "") -> Iterator[None]:
        """While the block runs, this is the phase; phases do not nest."""
        (self.model_dir / PHASE_FILE).write_text(f"{name} {detail}".strip(), encoding="utf-8")
        start = sum(os.times()[:4])  # of this process and its compilers: what others do on the machine does not count
        try:
            yield
        finally:
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + sum(os.times()[:4]) - start


def clear_model_dir(model_dir: Path) -> None:
    """Remove what an earlier or a stopped worker left, its log apart."""
    for path in model_dir.iterdir() if model_dir.is_dir() else ():
        if path.name.startswith("graph_") and path.is_dir():
            shutil.rmtree(path)
        elif path.name in (RESULT_FILE, PHASE_FILE, f".{RESULT_FILE}.partial"):
            path.unlink()


def one_line(error: Exception) -> str:
    """The kind of an exception and the beginning of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR_CHARS]}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
