"""What the static batch-invariance rules say of a pass folder, by the family of each graph of a task. Runs nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from data.graph import Graph
from eval_harness.batch_invariance.registry import ContractRegistry
from eval_harness.batch_invariance.static import Analysis, analyze_all
from eval_harness.candidate import Candidate

MAX_SHOWN = 3
"""Findings told in a message; the record has all."""


class StaticFindings:
    """One analysis a family: graphs without one share the global contract."""

    def __init__(self, analyses: Mapping[str | None, Analysis], seconds: float) -> None:
        self._analyses, self.seconds = analyses, seconds

    @classmethod
    def of(cls, candidate: Candidate, graphs: Sequence[Graph]) -> StaticFindings:
        """Analyse every file of the folder under the contract of each family among the graphs."""
        started = time.perf_counter()
        registry = ContractRegistry.shipped()
        families = dict.fromkeys(graph.family for graph in graphs)
        sources = dict(candidate.files)
        analyses = {family: analyze_all(sources, registry.for_family(family)) for family in families}
        return cls(analyses, time.perf_counter() - started)

    def record(self, graph: Graph) -> dict[str, Any]:
        """For the verdict: findings with their paths, and what only running the pass can decide."""
        analysis = self._analyses[graph.family]
        return {
            "findings": [finding.as_dict() for finding in analysis.findings],
            "unresolved": [f"{item.file}:{item.line}: {item.reason}" for item in analysis.unresolved],
            "ms": round(self.seconds * 1e3, 3),
        }

    def feedback(self, graph: Graph) -> str:
        """What an agent reads: each finding with its path and its cure; empty if there is none."""
        return _text(self._analyses[graph.family])

    def feedback_for_all(self) -> str:
        """The feedback where the contract of no graph is kept; empty if one is kept."""
        texts = [_text(analysis) for analysis in self._analyses.values()]
        return texts[0] if texts and all(texts) else ""


def _text(analysis: Analysis) -> str:
    lines = []
    for finding in analysis.findings[:MAX_SHOWN]:
        lines.append(f"{finding.file}:{finding.line}: {finding.message} ({finding.mechanism}); {finding.repair}")
        lines += [f"  {step.file}:{step.line}: {step.text}" for step in finding.path]
    if len(analysis.findings) > MAX_SHOWN:
        lines.append(f"and {len(analysis.findings) - MAX_SHOWN} more")
    return "\n".join(lines)
