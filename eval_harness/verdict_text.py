"""Verdicts as text: render_verdict for a person at a terminal, render_feedback for the model that wrote the candidate.

Both say which stage failed, why and where. The feedback is short and always in the same words (small students learn
from it), says what to do next, and holds no seeds, machine facts or names of other candidates. No torch.
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

NEXT_STEPS = {
    Outcome.VIOLATION: "remove what the rules forbid: compute inside your own kernel, not with torch",
    Outcome.COMPILE_ERROR: "correct the file named above; every rule file must load and its kernel must compile",
    Outcome.NO_MATCH: "write pattern() with the operators, argument order and constants of the graph's model.py",
    Outcome.RUNTIME_ERROR: "correct the line named above; check shapes, dtypes and argument order",
    Outcome.OUT_OF_MEMORY: "allocate the outputs only; work on one tile at a time",
    Outcome.TIMEOUT: "make the kernel stop: check loop bounds and launch sizes",
    Outcome.WRONG_SHAPE: "allocate each output with the shape that eager returns",
    Outcome.WRONG_DTYPE: "allocate each output with the dtype and device that eager returns",
    Outcome.WRONG_STRIDE: "allocate each output with the memory layout that eager returns",
    Outcome.INPUT_MUTATED: "write to new tensors only; leave every input as it was",
    Outcome.WRONG_VALUES: "compute what eager computes: check indices, masks, reductions and constants",
    Outcome.BATCH_VARIANT: "make a row's arithmetic independent of the batch size: fixed tiles, splits and order",
    Outcome.UNSTABLE: "nothing; the measurement was unstable and is repeated",
}
"""What to do about each outcome, in the order in which they should be dealt with."""

_HALF_STEP = "; round to {dtype} after every operator, as eager does"
_COVERED_ENOUGH = 0.8
_MAX_GROUPS, _MAX_VIOLATIONS, _MAX_MESSAGE, _MAX_PRINTED = 4, 6, 600, 500
_BEYOND_CONFINEMENT = "docs/containers.md says what each layer is for and what a verdict on untrusted code is worth"


def render_verdict(verdict: Verdict) -> str:
    """For a terminal: scores, a line a graph, every kind of failure with stage and reason, missing confinement."""
    lines = [f"task {verdict.task_id}  protocol {verdict.protocol}  device {verdict.device}"]
    lines += [f"candidate {verdict.candidate_hash[:12]}", score_line(verdict), ""]
    lines += _graph_table(verdict.graphs)
    lines += _batch_lines(verdict.graphs)
    failures = [graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT]
    for (outcome, message), members in _grouped(failures, limit=None).items():
        stage = STAGES.get(outcome, f"correctness at t = {STRICT_LEVEL}")
        lines += ["", f"{outcome} ({stage}) in {len(members)} of {len(verdict.graphs)}: {_names(members)}"]
        lines += _indented([message])
        violations = {str(violation): violation for graph in members for violation in graph.violations}
        lines += [f"  {line}" for line in _violation_lines(list(violations.values()))]
    if verdict.violations:
        lines += ["", "violations of the folder:", *(f"  {line}" for line in _violation_lines(verdict.violations))]
    if failures and verdict.candidate_output.strip():
        lines += ["", "printed by the candidate (end):", *_indented([verdict.candidate_output.strip()[-2000:]])]
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
    return _printable("\n".join(lines))


def render_feedback(verdict: Verdict, max_chars: int = 4000) -> str:
    """What the pass_evaluator tool answers: scores, the stages in order, and what to do next; never over max_chars."""
    graphs, total = verdict.graphs, len(verdict.graphs)
    head = score_line(verdict)
    failing = sorted(
        (graph for graph in graphs if graph.outcome is not Outcome.CORRECT),
        key=lambda graph: list(NEXT_STEPS).index(graph.outcome),
    )
    body: list[str] = []
    if any(graph.outcome is Outcome.VIOLATION for graph in graphs) or verdict.violations:
        violations = list({str(item): item for item in verdict.all_violations}.values())
        body += ["integrity: FAILED", *(f"  {line}" for line in _violation_lines(violations, _MAX_VIOLATIONS))]
    else:
        body += _stage_lines(graphs)
    groups = _grouped(failing, limit=_MAX_MESSAGE)
    for (outcome, message), members in list(groups.items())[:_MAX_GROUPS]:
        body += [f"{outcome} in {len(members)} of {total}: {_names(members)}", *_indented([message] if message else [])]
    if len(groups) > _MAX_GROUPS:
        body.append(f"and {len(groups) - _MAX_GROUPS} more kinds of failure")
    if failing and verdict.candidate_output.strip() and failing[0].outcome is not Outcome.VIOLATION:
        body += ["printed:", *_indented([verdict.candidate_output.strip()[-_MAX_PRINTED:]])]
    if not failing:
        body += _performance_lines(graphs)
    last = f"next: {_next_step(verdict, failing)}"
    room = max_chars - len(head) - len(last) - 2
    return _printable(f"{head}\n{_clipped(chr(10).join(body), room)}\n{last}"[:max_chars])


def score_line(verdict: Verdict) -> str:
    """AS, covered AS, correct graphs, on one line."""
    correct = f"{verdict.num_correct} of {len(verdict.graphs)} graphs CORRECT"
    if verdict.as_score is None:
        return f"AS none (the measurement was unstable; evaluate again), {correct}"
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
                _shortened(graph.graph, 48),
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


def _stage_lines(graphs: Sequence[GraphVerdict]) -> list[str]:
    """How many graphs got through each stage, so that the first failing one is seen at once."""
    total = len(graphs)
    unmatched = sum(graph.outcome in (Outcome.NO_MATCH, Outcome.COMPILE_ERROR) for graph in graphs)
    correct = sum(graph.outcome in (Outcome.CORRECT, Outcome.BATCH_VARIANT, Outcome.UNSTABLE) for graph in graphs)
    coverages = [graph.coverage for graph in graphs if graph.coverage is not None]
    coverage = f", coverage {_span(coverages, '{:.2f}')}" if coverages else ""
    lines = [f"matching: {total - unmatched} of {total}{coverage}"]
    lines += [f"correctness: {correct} of {total}"] if unmatched < total else []
    return [*lines, *_batch_lines(graphs)]


def _batch_lines(graphs: Sequence[GraphVerdict]) -> list[str]:
    """How many graphs depend on their batch, where that was asked."""
    answers = [is_batch_variant(graph) for graph in graphs]
    if all(graph.batch_invariance is None for graph in graphs):
        return []
    invariant, variant = answers.count(False), answers.count(True)
    rest = len(answers) - invariant - variant
    text = f"batch invariance: {invariant} of {invariant + variant} graphs whose rows keep their bits"
    return [text + (f"; {rest} without a batch axis or not reached" if rest else "")]


def _performance_lines(graphs: Sequence[GraphVerdict]) -> list[str]:
    timed = [graph for graph in graphs if graph.speedup is not None]
    if not timed:
        return []
    lines = [f"performance: {_span([graph.speedup or 0.0 for graph in timed], '{:.2f}x')} of eager"]
    for graph in sorted(timed, key=lambda graph: graph.speedup or 0.0)[:_MAX_GROUPS]:
        times = f", {graph.latency_us:.1f} us" if graph.latency_us is not None else ""
        if times and graph.reference_latency_us is not None:
            times += f" against {graph.reference_latency_us:.1f} us"
        coverage = f", coverage {graph.coverage:.2f}" if graph.coverage is not None else ""
        lines.append(f"  {_shortened(graph.graph, 60)}: {graph.speedup:.2f}x{times}{coverage}")
    return lines


def _next_step(verdict: Verdict, failing: Sequence[GraphVerdict]) -> str:
    if verdict.violations:
        return NEXT_STEPS[Outcome.VIOLATION]
    if failing:
        first = failing[0]
        step = NEXT_STEPS[first.outcome]
        half = next((dtype for dtype in ("bfloat16", "float16") if dtype in first.message), None)
        return step + _HALF_STEP.format(dtype=half) if first.outcome is Outcome.WRONG_VALUES and half else step
    coverages = [graph.coverage for graph in verdict.graphs if graph.coverage is not None]
    speedups = [graph.speedup for graph in verdict.graphs if graph.speedup is not None]
    if coverages and min(coverages) < _COVERED_ENOUGH:
        return "extend pattern() to more operators of the graph; what is not replaced earns little"
    if speedups and min(speedups) < 1:
        return "slower than eager: read and write memory once, use larger blocks, launch one kernel"
    return "stop here, or try other block sizes"


def _grouped(graphs: Iterable[GraphVerdict], *, limit: int | None) -> dict[tuple[Outcome, str], list[GraphVerdict]]:
    """Graphs that failed alike, together: 40 graphs with one fault are one entry."""
    groups: dict[tuple[Outcome, str], list[GraphVerdict]] = {}
    for graph in graphs:
        message = graph.message
        if graph.outcome is Outcome.NO_MATCH and graph.match_report and graph.match_report not in message:
            message = f"{message}\n{graph.match_report}".strip()
        message = message if limit is None else _clipped(message, limit)
        groups.setdefault((graph.outcome, message), []).append(graph)
    return groups


def _violation_lines(violations: Sequence[Violation], limit: int | None = None) -> list[str]:
    lines = []
    for violation in violations[:limit]:
        where = f" {violation.file}" if violation.file else ""
        where += f":{violation.line}" if violation.file and violation.line is not None else ""
        lines.append(f"[{violation.rule}]{where} {violation.message}")
    left_out = len(violations) - len(lines)
    return [*lines, f"and {left_out} more"] if left_out > 0 else lines


def _printable(text: str) -> str:
    """Without control characters: what a candidate prints must not move the cursor or colour the terminal."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def _names(graphs: Sequence[GraphVerdict]) -> str:
    names = ", ".join(_shortened(graph.graph, 40) for graph in graphs[:3])
    return f"{names}, ..." if len(graphs) > 3 else names


def _indented(texts: Iterable[str]) -> list[str]:
    return [f"  {line}" for text in texts for line in text.splitlines()]


def _span(values: Sequence[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _shortened(name: str, width: int) -> str:
    """The end of a long name: graph paths differ at the end."""
    return name if len(name) <= width else f"...{name[3 - width :]}"


def _clipped(text: str, limit: int) -> str:
    """The start and the end: errors name their cause at either."""
    mark = "\n[...]\n"
    if len(text) <= limit:
        return text
    keep = max(0, limit - len(mark))
    tail = keep // 3
    return text[: keep - tail] + mark + (text[-tail:] if tail else "")
