"""A case of the static batch-invariance analysis: sources, and the findings that they must and must not give."""

from __future__ import annotations

from dataclasses import dataclass

from eval_harness.batch_invariance.registry import ContractRegistry
from eval_harness.batch_invariance.static import Analysis, analyze_all
from eval_harness.batch_invariance.static.project import OUR_FAILURE

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n"


def triton(text: str) -> str:
    """The text of a Triton file."""
    return HEADER + text


@dataclass(frozen=True)
class Case:
    """expected: (mechanism, parameter, mark) of findings that must be there, mark being a comment on the sink's line.

    An empty list: nothing may be found at all.
    """

    name: str
    source: str | dict[str, str]
    expected: list[tuple[str, str, str]]
    family: str | None = None
    exact: bool = False
    """Whether these are all findings."""


def analyze_soundly(files: dict[str, str], family: str | None = None) -> Analysis:
    """The analysis, which may leave nothing open through a fault of ours."""
    analysis = analyze_all(files, ContractRegistry.shipped().for_family(family))
    failures = [one.reason for one in analysis.unresolved if one.reason.startswith(OUR_FAILURE)]
    assert not failures, failures
    return analysis


def check(case: Case) -> None:
    """Compare the findings of a case with those expected."""
    files = case.source if isinstance(case.source, dict) else {"kernel.py": case.source}
    findings = analyze_soundly(files, case.family).findings
    found = {(finding.mechanism.value, finding.parameter, finding.file, finding.line) for finding in findings}
    if not case.expected:
        assert not findings, "\n".join(finding.message for finding in findings)
    wanted = {(mechanism, parameter, *_place(files, mark)) for mechanism, parameter, mark in case.expected}
    assert wanted <= found, f"wanted {sorted(wanted)}, found {sorted(found)}"
    if case.exact:
        assert wanted == found, f"wanted {sorted(wanted)}, found {sorted(found)}"
    for finding in findings:
        assert finding.path[-1].line == finding.line
        assert all(step.text for step in finding.path), "every step shows its line"
        assert finding.repair


def _place(files: dict[str, str], mark: str) -> tuple[str, int]:
    for name, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if line.rstrip().endswith((f"# {mark}", f"// {mark}")):
                return name, number
    raise AssertionError(f"no line is marked {mark}")
