"""What a candidate's process reports of one watched call -> violations: the dispatch guard's and the profiler's.

Which call is watched is chosen here, secretly. The reports are claims; they can only accuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eval_harness.comparison import OutputMeta
from eval_harness.judge.session import Session
from eval_harness.provenance import ReplacementTrace, only_views, own_kernel_names, provenance_violations
from eval_harness.verdict import Violation


def choose_trace_draw(session: Session, guard_draw: int | None) -> int | None:
    """The draw whose kernels are looked at: on CUDA, not the guarded one and not the first, which may compile."""
    protocol = session.protocol
    watches = protocol.integrity == "full" and protocol.checks("provenance") and session.candidate_texts
    if not watches or not session.bench.device.startswith("cuda"):
        return None
    others = [draw for draw in range(1, protocol.num_draws) if draw != guard_draw]
    return session.generator.choice(others) if others else None


def guard_violations(report: Sequence[dict[str, Any]] | None) -> list[Violation]:
    """What torch computed during the guarded call."""
    return [
        Violation(
            rule=str(entry["rule"]), layer="dispatch", file=f"{entry['at']}.py", message=str(entry["message"])[:500]
        )
        for entry in report or []
    ]


def trace_violations(
    session: Session, report: Sequence[dict[str, Any]] | None, metas: Sequence[OutputMeta]
) -> list[Violation]:
    """Kernels of the traced call that are not the candidate's own, and replacements that launched none."""
    if not any(math.prod(meta.shape) for meta in metas):
        return []  # nothing to compute
    traces = [ReplacementTrace.from_json(entry) for entry in report or []]
    trivial = frozenset(rule.rule for rule in session.rules if only_views(rule.pattern))
    return provenance_violations(traces, own_kernel_names(session.candidate_texts), trivial_rules=trivial)
