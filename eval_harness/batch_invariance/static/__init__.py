"""Static analysis: does a protected parameter follow the batch? Reads sources and a contract; never executes anything.

Every function that is called from outside runs on abstract values (values.py); a kernel runs with what its launches
pass. A sink is a place that fixes the order of a sum: see loops.py, triton_library.py, contractions.py, branches.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval_harness.batch_invariance.contract import Contract
from eval_harness.batch_invariance.findings import Finding, Unresolved
from eval_harness.batch_invariance.static import expressions, loops, statements  # they fill the tables of state
from eval_harness.batch_invariance.static.project import load_sources, run_sources
from eval_harness.batch_invariance.static.state import Run

__all__ = ["Analysis", "analyze", "analyze_all", "expressions", "loops", "statements"]


@dataclass(frozen=True)
class Analysis:
    """What was found, and what only the dynamic validator can decide."""

    findings: tuple[Finding, ...]
    unresolved: tuple[Unresolved, ...]


def analyze(sources: Mapping[str, str], contract: Contract) -> list[Finding]:
    """Dependencies on the batch that the contract forbids; sources: file name -> text (.py, .cu, .cuh, .cpp)."""
    return list(analyze_all(sources, contract).findings)


def analyze_all(sources: Mapping[str, str], contract: Contract) -> Analysis:
    """Findings, and what stays open. Text that cannot be parsed stays open; nothing is raised for it."""
    run = Run(contract)
    load_sources(run, sources)
    run_sources(run)
    findings = sorted(run.findings.values(), key=lambda finding: (finding.file, finding.line, finding.parameter))
    unresolved = sorted(run.unresolved.values(), key=lambda one: (one.file, one.line, one.reason))
    return Analysis(tuple(findings), tuple(unresolved))
