"""Comparison of a candidate's outputs with the reference's: shape, dtype, stride, device, and the tolerance curve.

Runs on the trusted side, on tensors that the judge owns. It says at which tolerance level an output is first correct;
what that is worth is in scores.py. Tolerances are PassNet's (section on ES_t).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from eval_harness.scores import LAST_COMPARED_LEVEL
from eval_harness.verdict import STRICT_LEVEL, TOLERANCE_LEVELS, Outcome
from eval_harness.wrong_elements import WrongElements

_ATOL_EXPONENT = {"float32": 1.0, "float16": 1.0, "bfloat16": 1.0, "complex64": 1.0, "complex32": 1.0}
_ATOL_EXPONENT |= {"float64": 1.4, "complex128": 1.4}
_RTOL_EXPONENT = {
    "float32": 1.1772,
    "complex64": 1.1772,
    "float16": 0.6,
    "complex32": 0.6,
    "bfloat16": 0.3592,
    "float64": 1.4,
    "complex128": 1.4,
}

MAX_OUTPUTS_NAMED = 6
"""Outputs of which a difference in shape, dtype or stride is told."""

_CHUNK_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 24}
"""Elements compared at once: float64 copies of two tensors and three temporaries, so 40 bytes an element."""


@dataclass(frozen=True)
class OutputMeta:
    """What an output looks like from outside."""

    shape: tuple[int, ...]
    dtype: str
    """With or without "torch."."""
    stride: tuple[int, ...]
    """In elements."""
    device: str
    """Kind of device: "cpu" or "cuda"; an index is ignored."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> OutputMeta:
        return cls(tuple(tensor.shape), str(tensor.dtype), tuple(tensor.stride()), tensor.device.type)


def tolerances(dtype: str, level: int) -> tuple[float, float]:
    """(atol, rtol) for a dtype ("torch.float32" or "float32") at a tolerance level; (0, 0) means must be equal."""
    name = dtype.removeprefix("torch.")
    if name not in _RTOL_EXPONENT:
        return 0.0, 0.0
    return 10.0 ** (_ATOL_EXPONENT[name] * level), 10.0 ** (_RTOL_EXPONENT[name] * level)


def compare_meta(candidate: OutputMeta, reference: OutputMeta) -> tuple[Outcome | None, str]:
    """The first difference as an outcome and what to say of it; (None, "") if there is none.

    Strides of dimensions of size 0 or 1 do not matter. An output on another device is WRONG_DTYPE: both are a tensor of
    the wrong kind.
    """
    if candidate.shape != reference.shape:
        return Outcome.WRONG_SHAPE, f"shape {_text(candidate.shape)}, expected {_text(reference.shape)}"
    candidate_dtype, dtype = candidate.dtype.removeprefix("torch."), reference.dtype.removeprefix("torch.")
    if candidate_dtype != dtype:
        return Outcome.WRONG_DTYPE, f"dtype {candidate_dtype}, expected {dtype}"
    candidate_device, device = candidate.device.split(":")[0], reference.device.split(":")[0]
    if candidate_device != device:
        return Outcome.WRONG_DTYPE, f"on device {candidate_device}, expected {device}"
    if 0 not in reference.shape:
        for size, stride, expected in zip(reference.shape, candidate.stride, reference.stride, strict=True):
            if size > 1 and stride != expected:
                return Outcome.WRONG_STRIDE, (
                    f"strides {_text(candidate.stride)}, expected {_text(reference.stride)} for shape "
                    f"{_text(reference.shape)}: later code may rely on the memory layout"
                )
    return None, ""


def compare_metas(candidate: Sequence[OutputMeta], reference: Sequence[OutputMeta]) -> tuple[Outcome | None, str]:
    """compare_meta over all outputs of a graph: the first one's outcome, a line for each output that differs.

    Another number of outputs is WRONG_SHAPE.
    """
    if len(candidate) != len(reference):
        return Outcome.WRONG_SHAPE, f"{len(candidate)} output(s), expected {len(reference)}"
    first: Outcome | None = None
    lines = []
    for index, (ours, expected) in enumerate(zip(candidate, reference, strict=True)):
        outcome, message = compare_meta(ours, expected)
        if outcome is not None:
            first = first or outcome
            lines.append(message if len(reference) == 1 else f"output {index}: {message}")
    return first, "\n".join(lines[:MAX_OUTPUTS_NAMED])


def first_correct_level(
    candidate: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor | None = None
) -> tuple[int | None, float, str]:
    """The lowest t in -10..1 with |c - r| <= atol(t) + rtol(t) * |r| everywhere: (t or None, max |c - r|, message).

    Both have one shape and one dtype, which fixes the tolerances. A NaN must be where the reference has one, and an
    infinity must be the same. Dtypes without tolerances must be equal. From t = 1 on the levels use correctness at
    t = 1, so 2 to 4 are never returned. The message (wrong_elements.py) is empty if t <= -5. max |c - r| is over
    positions where both are finite.

    With an oracle (the same in float64) an element counts by the nearer of r and the oracle: rtol of float16 at t = -5
    is one unit in the last place, and a pass that rounds once is right where eager, which rounds at every operator, is
    a unit away. Finiteness is judged against r alone.
    """
    if candidate.shape != reference.shape or candidate.dtype != reference.dtype:
        raise ValueError(f"compare_meta comes first: {OutputMeta.of(candidate)} against {OutputMeta.of(reference)}")
    dtype = str(reference.dtype)
    exact = tolerances(dtype, STRICT_LEVEL) == (0.0, 0.0)
    level: int | None = TOLERANCE_LEVELS[0]
    largest = 0.0
    wrong = WrongElements(reference.shape, dtype)
    for offset, ours, expected in _chunks(candidate, reference):
        unlike, difference = _differences(ours, expected)
        if unlike is not None:
            wrong.add(torch.full_like(difference, math.inf), unlike, offset, ours, expected)
            level = None
        largest = max(largest, float(difference.max()))
        if oracle is not None:
            exact_values = _wide(oracle.detach().reshape(-1)[offset : offset + ours.numel()].to(ours.device))
            to_oracle = (_wide(ours) - exact_values).abs().nan_to_num(nan=math.inf)
            difference = torch.minimum(difference, to_oracle)
        if float(difference.max()) == 0.0:
            continue
        magnitude = _finite_magnitude(expected)
        atol, rtol = tolerances(dtype, STRICT_LEVEL)
        allowed = magnitude * rtol + atol
        beyond = difference > allowed
        if bool(beyond.any()):
            wrong.add(difference / allowed, beyond, offset, ours, expected)
        level = None if exact else _raised_level(level, difference, magnitude, dtype)
    allowed_at = (0.0, 0.0) if exact else tolerances(dtype, LAST_COMPARED_LEVEL if level is None else level)
    return level, largest, wrong.message(level, largest, allowed_at)


def oracle_ok(
    eager: torch.Tensor,
    oracle: torch.Tensor,
    dtype: str | torch.dtype,
    *,
    level: int = STRICT_LEVEL,
    spare: float = 2.0,
) -> bool:
    """Whether eager itself is within tolerance/spare of a float64 (complex128) oracle at a level.

    If it is not, the draw is ill-conditioned for this graph: a correct candidate that rounds otherwise would be called
    wrong, so the draw does not count. dtype is that of the eager output.
    """
    atol, rtol = tolerances(str(dtype), level)
    for _, ours, expected in _chunks(eager, oracle):
        unlike, difference = _differences(ours, expected)
        if unlike is not None:
            return False
        if bool((difference > (_finite_magnitude(expected) * rtol + atol) / spare).any()):
            return False
    return True


def _chunks(candidate: torch.Tensor, reference: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """(offset, candidate, reference) as flat chunks in the reference's order, on its device, in their own dtypes."""
    ours, expected = candidate.detach().reshape(-1), reference.detach().reshape(-1)
    size = _CHUNK_ELEMENTS.get(reference.device.type, _CHUNK_ELEMENTS["cpu"])
    for offset in range(0, expected.numel(), size):
        part = ours[offset : offset + size].to(expected.device)
        yield offset, part, expected[offset : offset + size]


def _differences(ours: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(mask of positions that differ in finiteness or in an infinity, or None; |c - r| with 0 at non-finite ones)."""
    if not (ours.dtype.is_floating_point or ours.dtype.is_complex):
        difference = (_wide(ours) - _wide(expected)).abs()
        if ours.dtype == torch.int64:  # float64 cannot tell neighbours above 2^53
            difference = torch.where(ours.to(expected.dtype) != expected, difference.clamp(min=1.0), 0.0)
        return None, difference
    wide_ours, wide_expected = _wide(ours), _wide(expected)
    difference = (wide_ours - wide_expected).abs()
    finite = torch.isfinite(difference)
    if bool(finite.all()):
        return None, difference
    # a finite pair may overflow in the subtraction: such a difference stays infinite, and is beyond any tolerance
    both_finite = torch.isfinite(wide_ours) & torch.isfinite(wide_expected)
    unlike = ~both_finite & ~_same(wide_ours, wide_expected)
    return (unlike if bool(unlike.any()) else None), torch.where(both_finite, difference, 0.0)


def _same(ours: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if ours.is_complex():
        return _same(ours.real, expected.real) & _same(ours.imag, expected.imag)
    return (ours == expected) | (ours.isnan() & expected.isnan())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _finite_magnitude(expected: torch.Tensor) -> torch.Tensor:
    return _wide(expected).abs().nan_to_num(nan=0.0, posinf=0.0)


def _raised_level(level: int | None, difference: torch.Tensor, magnitude: torch.Tensor, dtype: str) -> int | None:
    """The lowest level from `level` on that allows every difference; None if t = 1 does not.

    Tolerances grow with t, so only elements beyond one level are looked at for the next.
    """
    while level is not None:
        atol, rtol = tolerances(dtype, level)
        beyond = difference > magnitude * rtol + atol
        if not bool(beyond.any()):
            return level
        difference, magnitude = difference[beyond], magnitude[beyond]
        level = level + 1 if level < LAST_COMPARED_LEVEL else None
    return None


def _text(values: Sequence[int]) -> str:
    return "(" + ", ".join(str(value) for value in values) + ")"
