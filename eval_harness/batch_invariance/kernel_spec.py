"""kernel.json: the inputs of a kernel, where its batch lies, and its label in the pool; and inputs drawn from it.

    {"family": "normalization", "label": "variant", "mechanism": "work partitioning", "what": "...", "base_batch": 8,
     "inputs": [{"shape": ["B", 1024], "dtype": "float16", "like": "normal", "batch_dim": 0}, ...],
     "outputs": [{"batch_dim": 0}]}

Sizes: a number, B, B*n or n*B (folded), B+1 (row pointers), TOTAL (ragged: the last row pointer).
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from eval_harness.batch_invariance.contexts import BatchLimits
from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.kernel_files import KERNEL_FILE, SPEC_FILE
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.batch_invariance.row_pool import Layout
from eval_harness.batch_invariance.rows import Axis, PointerAxis, RaggedAxis, RaggedLayout
from eval_harness.errors import UserError

DEFAULT_MAX_BATCH = 160
_FOLDED = re.compile(r"B(?:\*(\d+))?|(\d+)\*B")
_RANGE = re.compile(r"(index_between|indptr):(\d+)-(\d+)")
_INDEX = re.compile(r"index:(\d+)")
_PLAIN = ("normal", "uniform", "ones", "positive")

Label = Literal["variant", "invariant", "harmless"]


class InputSpec(BaseModel):
    """One argument of run."""

    model_config = ConfigDict(extra="forbid")

    shape: list[int | str]
    dtype: str = "float32"
    like: str = "normal"
    """normal, uniform (0..1), ones, positive (|normal| + 0.1), index:N, index_between:LO-HI, indptr:LO-HI."""
    batch_dim: int | None = Field(default=None, ge=0)
    """None: shared by all rows."""
    order: Literal["outer", "inner"] = "outer"
    """Of a folded batch: index = row * n + j, or j * B + row."""
    name: str | None = None
    """What ragged tensors call these row pointers."""
    ragged: str | None = None
    """Name of the row pointers that cut this tensor along batch_dim."""

    @model_validator(mode="after")
    def _is_drawable(self) -> InputSpec:
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            raise ValueError(f"dtype {self.dtype!r} is no dtype of torch; give float16, bfloat16, float32, int32, ...")
        if self.like not in _PLAIN and not _RANGE.fullmatch(self.like) and not _INDEX.fullmatch(self.like):
            raise ValueError(
                f"like {self.like!r}: give {', '.join(_PLAIN)}, index:N, index_between:LO-HI, indptr:LO-HI"
            )
        if (match := _RANGE.fullmatch(self.like)) and int(match[2]) > int(match[3]):
            raise ValueError(f"like {self.like!r}: LO is over HI")
        for size in self.shape:
            if isinstance(size, str) and size not in ("B+1", "TOTAL") and not _FOLDED.fullmatch(size):
                raise ValueError(f"size {size!r}: give a number, B, B*n, n*B, B+1 or TOTAL")
        if self.is_pointers:
            if self.shape != ["B+1"]:
                raise ValueError(f"row pointers have the shape ['B+1'], not {self.shape}")
            return self
        if self.batch_dim is None:
            if any(isinstance(size, str) for size in self.shape):
                raise ValueError(f"shape {self.shape} follows the batch; say which dimension by batch_dim")
            return self
        if self.batch_dim >= len(self.shape):
            raise ValueError(f"batch_dim {self.batch_dim} of shape {self.shape}: there is no such dimension")
        if (self.ragged is not None) != (self.shape[self.batch_dim] == "TOTAL"):
            raise ValueError("a ragged input has TOTAL along batch_dim and names its row pointers by ragged")
        others = [size for dim, size in enumerate(self.shape) if dim != self.batch_dim]
        if any(isinstance(size, str) for size in others) or not isinstance(self.shape[self.batch_dim], str):
            raise ValueError(
                f"shape {self.shape} must follow the batch along batch_dim {self.batch_dim} and nowhere else"
            )
        return self

    @property
    def is_pointers(self) -> bool:
        return self.like.startswith("indptr:")

    @property
    def factor(self) -> int:
        """Indices of the batch dimension that one row owns."""
        match = _FOLDED.fullmatch(str(self.shape[self.batch_dim or 0]))
        return int(match[1] or match[2] or 1) if match else 1

    def sizes(self, batch: int, total: int) -> list[int]:
        """The shape for that many rows, and that many elements of ragged rows."""
        symbols = {"B+1": batch + 1, "TOTAL": total}
        return [
            size if isinstance(size, int) else symbols[size] if size in symbols else batch * self.factor
            for size in self.shape
        ]


class OutputSpec(BaseModel):
    """One tensor that run returns."""

    model_config = ConfigDict(extra="forbid")

    batch_dim: int | None = Field(default=None, ge=0)
    factor: int = Field(default=1, ge=1)
    """Indices of the batch dimension that one row owns; 1 is corrected by the output itself."""
    order: Literal["outer", "inner"] = "outer"
    ragged: str | None = None


class KernelSpec(BaseModel):
    """A kernel folder's kernel.json."""

    model_config = ConfigDict(extra="forbid")

    family: str | None = None
    label: Label | None = None
    """Of the labelled pool: variant, invariant, or harmless (depends on the batch, and cannot change a bit)."""
    mechanism: Mechanism | None = None
    what: str = ""
    """One sentence."""
    inputs: list[InputSpec] = Field(min_length=1)
    outputs: list[OutputSpec] = Field(min_length=1)
    base_batch: int = Field(default=8, ge=1)
    min_batch: int = Field(default=1, ge=1)
    max_batch: int = Field(default=DEFAULT_MAX_BATCH, ge=1)
    batch_multiple_of: int = Field(default=1, ge=1)
    compile_s: Literal["short", "long"] = "short"
    """long: it compiles CUDA C++."""

    @model_validator(mode="after")
    def _fits_together(self) -> KernelSpec:
        for ragged in (*(spec.ragged for spec in self.inputs), *(spec.ragged for spec in self.outputs)):
            if ragged is not None and ragged not in self._pointers:
                raise ValueError(f"ragged {ragged!r}: no input of that name is like indptr:LO-HI")
        if not any(spec.batch_dim is not None for spec in self.outputs):
            raise ValueError("outputs: none has a batch_dim, so no row can be compared")
        if not any(spec.batch_dim is not None or spec.is_pointers for spec in self.inputs):
            raise ValueError("inputs: none has a batch_dim")
        if not self.min_batch <= self.base_batch <= self.max_batch or self.base_batch % self.batch_multiple_of:
            raise ValueError("base_batch must lie in min_batch..max_batch and be a multiple of batch_multiple_of")
        return self

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(self.min_batch, self.max_batch, self.batch_multiple_of)

    def layout(self, batch: int) -> Layout:
        """Where the rows of a batch of that size lie."""
        inputs = tuple(self._axis(spec) for spec in self.inputs)
        outputs = tuple(
            None
            if spec.batch_dim is None
            else RowAxis(spec.batch_dim, spec.factor, spec.order)
            if spec.ragged is None
            else RaggedAxis(self._pointers[spec.ragged], spec.batch_dim)
            for spec in self.outputs
        )
        if self._pointers:
            return RaggedLayout(inputs, outputs, batch)
        return BatchLayout(inputs, outputs, batch, resizable=True)  # type: ignore[arg-type]

    def draw_inputs(self, batch: int, *, seed: int, device: torch.device | str = "cpu") -> list[torch.Tensor]:
        """Inputs of a batch of that size, drawn on the CPU: the same seed gives the same values on every device."""
        generator = torch.Generator().manual_seed(seed)
        totals: dict[str | None, int] = {}
        pointers: dict[int, torch.Tensor] = {}
        for name, index in self._pointers.items():
            spec = self.inputs[index]
            lengths = _integers(spec.like, (batch,), generator)
            pointers[index] = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
            totals[name] = int(pointers[index][-1])
        drawn = []
        for index, spec in enumerate(self.inputs):
            values = pointers.get(index)
            if values is None:
                values = _draw(spec.like, spec.sizes(batch, totals.get(spec.ragged, 0)), generator)
            drawn.append(values.to(getattr(torch, spec.dtype)).to(device))
        return drawn

    @cached_property
    def _pointers(self) -> dict[str, int]:
        """Name of row pointers -> position among the inputs."""
        return {spec.name or f"input {i}": i for i, spec in enumerate(self.inputs) if spec.is_pointers}

    def _axis(self, spec: InputSpec) -> Axis | None:
        if spec.is_pointers:
            return PointerAxis()
        if spec.batch_dim is None:
            return None
        if spec.ragged is not None:
            return RaggedAxis(self._pointers[spec.ragged], spec.batch_dim)
        return RowAxis(spec.batch_dim, spec.factor, spec.order)


def load_kernel_spec(path: Path) -> KernelSpec:
    """Read kernel.json, or that of a folder. Raises UserError: one line that names the file, the key and the cure."""
    path = path / SPEC_FILE if path.is_dir() else path
    try:
        record: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a kernel folder holds {KERNEL_FILE} and {SPEC_FILE}") from None
    except ValueError as error:
        raise UserError(f"{path}: no JSON: {error}") from None
    try:
        return KernelSpec.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {key + ': ' if key else ''}{first['msg']}") from None


def _draw(like: str, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if like == "ones":
        return torch.ones(shape)
    if like == "uniform":
        return torch.rand(shape, generator=generator)
    if like in ("normal", "positive"):
        normal = torch.randn(shape, generator=generator)
        return normal if like == "normal" else normal.abs() + 0.1
    return _integers(like, tuple(shape), generator)


def _integers(like: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if match := _INDEX.fullmatch(like):
        return torch.randint(0, int(match[1]), shape, generator=generator)
    match = _RANGE.fullmatch(like)
    assert match is not None  # checked when it was read
    return torch.randint(int(match[2]), int(match[3]) + 1, shape, generator=generator)
