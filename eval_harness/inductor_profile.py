"""What TorchInductor does with many graphs, after PassNet's Appendix G: records of graphs -> its tables.

Two speedups over plain eager: of the compiled form called directly, and through torch.compile, whose guards and
dispatch are then in the time (the paper's end to end). The kernels' own is of GPU time; on a CPU, which has none, it is
that of the compiled form called directly.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from eval_harness.verdict import GraphVerdict, Outcome

KERNEL_RANGES: tuple[tuple[str, float, float], ...] = (
    ("below 1", 0.0, 1.0), ("1 to 1.2", 1.0, 1.2), ("1.2 to 2", 1.2, 2.0), ("2 and more", 2.0, float("inf")),
)  # fmt: skip
"""Of the paper's Table 7: name, from, up to."""
NODE_BINS: tuple[tuple[str, int, int], ...] = (
    ("1-5", 1, 5), ("6-14", 6, 14), ("15-29", 15, 29), ("30-50", 30, 50), ("51 and more", 51, 10**9),
)  # fmt: skip
FEW_NODES = 15
SHORT_US = 2000.0
CAUSES = ("kernels slower", f"under {FEW_NODES} nodes", "eager under 2 ms", "other")
"""Of a slowdown through torch.compile, the first that holds; the paper's Table 8 has them in another order."""
NOISE = 0.02
"""A GPU time this much longer than eager's still counts as no slower: two profiles of a graph differ by about that. A
speedup by the host's clock has its own interval."""


class ProfiledGraph(BaseModel):
    """One graph through TorchInductor."""

    model_config = ConfigDict(extra="forbid")

    task_id: str
    graph: str
    graph_hash: str
    num_nodes: int
    """Operators of its forward."""
    dtype: str
    direct: GraphVerdict | None = None
    guarded: GraphVerdict | None = None
    outcomes: dict[str, Outcome] = {}
    """Kind of draws ("passnet", "robust") -> outcome, correctness alone."""
    error: str | None = None
    """Our failure: the graph is in no figure, and a resumed run tries it again."""

    @property
    def is_measured(self) -> bool:
        """In the figures: neither we nor the machine failed."""
        found = (self.direct, self.guarded)
        return self.error is None and all(v is not None and v.outcome is not Outcome.UNSTABLE for v in found)

    @property
    def kernel_speedup(self) -> float | None:
        """Of GPU time, or of the compiled form called directly."""
        return None if self.direct is None else self.direct.gpu_speedup or self.direct.speedup

    @property
    def dispatch_us(self) -> float | None:
        """Microseconds a call that torch.compile adds; both times are by eager's of the same minute."""
        if self.direct is None or self.guarded is None or not self.direct.speedup or not self.guarded.speedup:
            return None
        reference_us = self.direct.reference_latency_us or 0.0
        return reference_us / self.guarded.speedup - reference_us / self.direct.speedup

    @property
    def cause(self) -> str | None:
        """Why it is slower through torch.compile than plain eager; None where it is not, or was not timed."""
        guarded = self.guarded
        if guarded is None or guarded.speedup is None or guarded.speedup >= 1:
            return None
        if self._has_slower_kernels():
            return CAUSES[0]
        if self.num_nodes < FEW_NODES:
            return CAUSES[1]
        if (guarded.reference_latency_us or 0.0) < SHORT_US:
            return CAUSES[2]
        return CAUSES[3]

    def _has_slower_kernels(self) -> bool:
        direct = self.direct
        if direct is None:
            return False
        if direct.gpu_speedup is not None:
            return direct.gpu_speedup < 1 - NOISE
        return direct.speedup_interval is not None and direct.speedup_interval[1] < 1


def summarise(records: Sequence[ProfiledGraph]) -> dict[str, Any]:
    """All tables as plain data; shares are of the graphs named beside them, None of none."""
    measured = [record for record in records if record.is_measured]
    directs = [record.direct for record in measured if record.direct is not None]
    correct = [verdict for verdict in directs if verdict.outcome is Outcome.CORRECT]
    kernels = [speedup for record in measured if (speedup := record.kernel_speedup) is not None]
    ends = [r.guarded.speedup for r in measured if r.guarded is not None and r.guarded.speedup is not None]
    differences = [v.max_abs_difference for v in directs if v.max_abs_difference is not None]
    outcomes = [str(verdict.outcome) for verdict in directs]
    return {
        "num_graphs": len(records),
        "num_measured": len(measured),
        "num_failed_by_us": sum(record.error is not None for record in records),
        "success": _share(len(correct), len(directs)),
        "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
        "num_kernel_speedups": len(kernels),
        "kernel_speedups": {name: _share(sum(low <= s < high for s in kernels), len(kernels))
                            for name, low, high in KERNEL_RANGES},
        "num_end_to_end": len(ends),
        "slowdowns": _share(sum(speedup < 1 for speedup in ends), len(ends)),
        "causes": _causes(measured),
        "by_nodes": _by_nodes(measured),
        "dispatch_us": _median([extra for record in measured if (extra := record.dispatch_us) is not None]),
        "precision": {
            "num": len(differences),
            "bitwise_equal": _share(sum(value == 0 for value in differences), len(differences)),
            "within_1e-6": _share(sum(value <= 1e-6 for value in differences), len(differences)),
            "from_1e-3": _share(sum(value >= 1e-3 for value in differences), len(differences)),
        },
        "draws": _by_draws(measured),
    }  # fmt: skip


def _causes(measured: Sequence[ProfiledGraph]) -> list[dict[str, Any]]:
    slow = [record for record in measured if record.cause is not None]
    return [
        {
            "cause": cause,
            "num": len(mine),
            "share": _share(len(mine), len(slow)),
            "median_speedup": _median([r.guarded.speedup for r in mine if r.guarded and r.guarded.speedup]),
        }
        for cause in CAUSES
        for mine in [[record for record in slow if record.cause == cause]]
    ]


def _by_nodes(measured: Sequence[ProfiledGraph]) -> list[dict[str, Any]]:
    def is_slow(record: ProfiledGraph) -> bool:
        return record.cause is not None

    return [
        {"nodes": name, "num": len(mine), "slow": _share(sum(map(is_slow, mine)), len(mine))}
        for name, low, high in NODE_BINS
        for mine in [[r for r in measured if low <= r.num_nodes <= high and r.guarded and r.guarded.speedup]]
    ]


def _by_draws(measured: Sequence[ProfiledGraph]) -> dict[str, Any]:
    """Success by kind of draws, over the graphs that have every kind."""
    kinds = sorted({kind for record in measured for kind in record.outcomes})
    both = [record for record in measured if all(kind in record.outcomes for kind in kinds)]
    right = {kind: sum(record.outcomes[kind] is Outcome.CORRECT for record in both) for kind in kinds}
    return {"num": len(both), **{kind: _share(right[kind], len(both)) for kind in kinds}}


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
