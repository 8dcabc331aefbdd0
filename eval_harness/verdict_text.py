"""Verdicts as text for a person at a terminal: which stage failed, why and where. No torch.

The text for the model that wrote the candidate is feedback.py, which shares the small pieces below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eval_harness.summary import is_batch_variant
from eval_harness.verdict import STRICT_LEVEL, GraphVerdict, Outcome, Verdict, Violation

STAGES = {
    Outcome.NO_MATCH: "matching",
    Outcome.VIOLATION: "integrity",
    Outcome.COMPILE_ERROR: "compilation",
    Outcome.BATCH_VARIANT: "batch invariance",
    Outcome.UNSTABLE: "timing",
    Outcome.TIMEOUT: "running",
    Outcome.OUT_OF_MEMORY: "running",
    Outcome.RUNTIME_ERROR: "running",
}
"""Outcome -> where it is found; the others are found by comparing outputs."""

_BEYOND_CONFINEMENT = "docs/containers.md says what each layer is for and what a verdict on untrusted code is worth"


def render_verdict(verdict: Verdict) -> str:
    """For a terminal: scores, a line a graph, every kind of failure with stage and reason, missing confinement."""
    lines = [f"task {verdict.task_id}  protocol {verdict.protocol}  device {verdict.device}"]
    lines += [f"candidate {verdict.candidate_hash[:12]}", score_line(verdict), ""]
    lines += _graph_table(verdict.graphs)
    lines += batch_lines(verdict.graphs)
    failures = [graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT]
    for (outcome, message), members in _grouped(failures).items():
        stage = STAGES.get(outcome, f"correctness at t = {STRICT_LEVEL}")
        lines += ["", f"{outcome} ({stage}) in {len(members)} of {len(verdict.graphs)}: {names_of(members)}"]
        lines += indented([message])
        violations = {str(violation): violation for graph in members for violation in graph.violations}
        lines += [f"  {line}" for line in violation_lines(list(violations.values()))]
    if verdict.violations:
        lines += ["", "violations of the folder:", *(f"  {line}" for line in violation_lines(verdict.violations))]
    if failures and verdict.candidate_output.strip():
        lines += ["", "printed by the candidate (end):", *indented([verdict.candidate_output.strip()[-2000:]])]
    if verdict.es:
        levels = ("-5", "-3", "-1", "1", "2", "3")
        lines += [
            "",
            "ES_t  " + "  ".join(f"{level}: {verdict.es[level]:.4f}" for level in levels if level in verdict.es),
        ]
    if verdict.timings:
        seconds = "  ".join(f"{stage} {value:.2f}" for stage, value in verdict.timings.items())
        lines += ["", f"seconds  {seconds}"]
    missing = missing_confinement(verdict)
    if missing:
        lines += ["", "WARNING: CONFINEMENT IS INCOMPLETE", *(f"  {layer}: {why}" for layer, why in missing.items())]
        lines += [f"  {_BEYOND_CONFINEMENT}"]
    if shared := verdict.machine.get("gpu_warnings"):
        lines += ["", "WARNING: THE GPU IS SHARED", *(f"  {text}" for text in shared)]
    return printable("\n".join(lines))


def score_line(verdict: Verdict) -> str:
    """AS, covered AS, correct graphs, on one line."""
    correct = f"{verdict.num_correct} of {len(verdict.graphs)} graphs CORRECT"
    if verdict.as_score is None:
        why = "nothing was timed" if verdict.complete else "the measurement was unstable; evaluate again"
        return f"AS none ({why}), {correct}"
    covered = "none" if verdict.as_covered is None else f"{verdict.as_covered:.4f}"
    return f"AS {verdict.as_score:.4f} (covered {covered}), {correct}"


def missing_confinement(verdict: Verdict) -> dict[str, str]:
    """Layers of confinement that were not on, with the reason."""
    return {layer: why for layer, why in verdict.confinement.items() if why != "on"}


def _graph_table(graphs: Sequence[GraphVerdict]) -> list[str]:
    rows = [("graph", "outcome", "first t", "speedup", "95% interval", "coverage", "eager us", "candidate us")]
    for graph in graphs:
        interval = graph.speedup_interval
        rows.append(
            (
                shortened(graph.graph, 48),
                str(graph.outcome),
                "-" if graph.first_correct_t is None else str(graph.first_correct_t),
                _figure(graph.speedup, "{:.3f}x"),
                "-" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}",
                _figure(graph.coverage, "{:.2f}"),
                _figure(graph.reference_latency_us, "{:.1f}"),
                _figure(graph.latency_us, "{:.1f}"),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def batch_lines(graphs: Sequence[GraphVerdict]) -> list[str]:
    """How many graphs depend on their batch, where that was asked."""
    answers = [is_batch_variant(graph) for graph in graphs]
    if all(graph.batch_invariance is None for graph in graphs):
        return []
    invariant, variant = answers.count(False), answers.count(True)
    rest = len(answers) - invariant - variant
    text = f"batch invariance: {invariant} of {invariant + variant} graphs whose rows keep their bits"
    return [text + (f"; {rest} without a batch axis or not reached" if rest else "")]


def _grouped(graphs: Iterable[GraphVerdict]) -> dict[tuple[Outcome, str], list[GraphVerdict]]:
    """Graphs that failed alike, together: 40 graphs with one fault are one entry."""
    groups: dict[tuple[Outcome, str], list[GraphVerdict]] = {}
    for graph in graphs:
        message = graph.message
        if graph.outcome is Outcome.NO_MATCH and graph.match_report and graph.match_report not in message:
            message = f"{message}\n{graph.match_report}".strip()
        groups.setdefault((graph.outcome, message), []).append(graph)
    return groups


def violation_lines(violations: Sequence[Violation], limit: int | None = None) -> list[str]:
    """The violations, each with rule, file, line and cure; the first `limit`, then how many more."""
    lines = []
    for violation in violations[:limit]:
        where = f" {violation.file}" if violation.file else ""
        where += f":{violation.line}" if violation.file and violation.line is not None else ""
        lines.append(f"[{violation.rule}]{where} {violation.message}")
    left_out = len(violations) - len(lines)
    return [*lines, f"and {left_out} more"] if left_out > 0 else lines


def printable(text: str) -> str:
    """Without control characters: what a candidate prints must not move the cursor or colour the terminal."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def names_of(graphs: Sequence[GraphVerdict]) -> str:
    """The first three names."""
    names = ", ".join(shortened(graph.graph, 40) for graph in graphs[:3])
    return f"{names}, ..." if len(graphs) > 3 else names


def indented(texts: Iterable[str]) -> list[str]:
    """Each line by two blanks."""
    return [f"  {line}" for text in texts for line in text.splitlines()]


def span(values: Sequence[float], form: str) -> str:
    """The least and the largest value, or the one that both are."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def shortened(name: str, width: int) -> str:
    """The end of a long name: graph paths differ at the end."""
    return name if len(name) <= width else f"...{name[3 - width :]}"


def clipped(text: str, limit: int) -> str:
    """The start and the end: errors name their cause at either."""
    mark = "\n[...]\n"
    if len(text) <= limit:
        return text
    keep = max(0, limit - len(mark))
    tail = keep // 3
    return text[: keep - tail] + mark + (text[-tail:] if tail else "")
