"""What the dynamic validator says about one kernel, and the difference that it saw."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from eval_harness.batch_invariance.bits import BitDifference, describe_difference
from eval_harness.batch_invariance.contexts import Context
from eval_harness.batch_invariance.explanation import Explanation
from eval_harness.batch_invariance.row_pool import Filler, RowPool
from eval_harness.batch_invariance.trials import Mismatch

MAX_ROWS_SHOWN = 8


class DynamicOutcome(StrEnum):
    """How a validation ended."""

    INVARIANT = "invariant"
    VARIANT = "variant"
    NOT_DETERMINISTIC = "not deterministic"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Difference:
    """A row whose bits are not those it has in the reference batch."""

    context: Context
    against: Context
    """The reference."""
    output: int
    """Number of the output, among all."""
    rows: tuple[int, ...]
    """Pool rows that differ, at most MAX_ROWS_SHOWN of them."""
    bits: BitDifference
    process: str = "warm"
    """warm, or rising or falling: the fresh process that showed it."""

    @classmethod
    def of(cls, mismatch: Mismatch, against: Context, pool: RowPool, *, process: str = "warm") -> Difference:
        """Waits for the device."""
        with_axis = [index for index, axis in enumerate(pool.layout.outputs) if axis is not None]
        output = with_axis[mismatch.output]
        bits = describe_difference(mismatch.got, mismatch.expected)
        return cls(mismatch.context, against, output, mismatch.rows(pool)[:MAX_ROWS_SHOWN], bits, process)

    def summary(self) -> str:
        """One line: which row, which batches, how much."""
        ulp = f", by up to {self.bits.max_ulp} ulp" if self.bits.max_ulp else ""
        where = "" if self.process == "warm" else f" in a fresh process with sizes {self.process}"
        return (
            f"row {self.rows[0]} of output {self.output} has other bits in {self.context}{where} than in "
            f"{self.against}: {self.bits.num_elements} of {self.bits.num_compared} elements differ{ulp}"
        )

    @property
    def is_nan_leak(self) -> bool:
        """Whether rows became NaN beside a NaN."""
        return self.context.filler is Filler.NAN and self.bits.only_nan_left


@dataclass(frozen=True)
class DynamicResult:
    """The verdict on one kernel."""

    outcome: DynamicOutcome
    witness: Context | None
    """The batch whose bits differ, or that did not repeat itself."""
    num_contexts: int = 0
    """Batches that were compared, the reference included."""
    num_skipped: int = 0
    """Batches that the kernel refused, or that were not begun in time."""
    warm_ms: float = 0.0
    """The gate: launches, comparisons and waits in the warm process, up to the first difference. Building the batches
    is not in it; compilation is, unless repeats were asked for."""
    build_ms: float = 0.0
    """Building the inputs of these batches."""
    confirm_ms: float = 0.0
    """The fresh processes, from start to end; 0 where there was none."""
    confirmed: bool = False
    """Whether fresh processes, rising and falling, gave the same bits too."""
    message: str = ""
    """One line."""
    feedback: str = ""
    """For whoever wrote the kernel: what was seen, what it means, what to do. Empty for what is invariant."""
    is_lost: bool = False
    """Whether the kernel broke the device or the process it ran in: nothing further can run there."""
    difference: Difference | None = None
    explanation: Explanation | None = None

    @property
    def is_violation(self) -> bool:
        """Whether a row's bits are not its own."""
        return self.outcome in (DynamicOutcome.VARIANT, DynamicOutcome.NOT_DETERMINISTIC)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: row lists are left out."""
        record: dict[str, Any] = {
            "outcome": str(self.outcome),
            "witness": str(self.witness) if self.witness else None,
            "num_contexts": self.num_contexts,
            "num_skipped": self.num_skipped,
            "warm_ms": round(self.warm_ms, 4),
            "build_ms": round(self.build_ms, 4),
            "confirm_ms": round(self.confirm_ms, 1),
            "confirmed": self.confirmed,
            "is_lost": self.is_lost,
            "message": self.message,
            "feedback": self.feedback,
        }
        if self.difference is not None:
            record["difference"] = {
                "context": str(self.difference.context),
                "against": str(self.difference.against),
                "output": self.difference.output,
                "rows": list(self.difference.rows),
                "process": self.difference.process,
                **{key: value for key, value in asdict(self.difference.bits).items() if key not in ("left", "right")},
                "values": [repr(self.difference.bits.left), repr(self.difference.bits.right)],
            }
        if self.explanation is not None:
            record["explanation"] = self.explanation.as_dict()
        return record
