"""Feedback: a verdict as text for the model that wrote the candidate; what the pass_evaluator tool answers.

    score -> (integrity, or matching -> correctness -> performance, failures below their stage) -> what to do next

Always in the same words, since small students learn from it; graphs that failed alike are one entry; no seeds, machine
facts, paths of the machine, names of other candidates, and of expected values one element an output. No torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from eval_harness.verdict_text import (
    batch_lines,
    clipped,
    indented,
    names_of,
    printable,
    score_line,
    shortened,
    span,
    violation_lines,
)

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

_MATCHING = frozenset({Outcome.COMPILE_ERROR, Outcome.NO_MATCH})
_HALF_STEP = "; round to {dtype} after every operator, as eager does"
_COVERED_ENOUGH = 0.8
MAX_GROUPS, MAX_TIMED, MAX_VIOLATIONS = 4, 4, 6
"""Kinds of failure, timed graphs, and violations that are told."""
_MAX_MESSAGE, _MAX_PRINTED, _MAX_RULES = 900, 500, 3
_MANY_KERNELS = 1.5

_PASS_PATH = re.compile(r"/(?:[^\s/'\"]+/)*pass_dir/")
_PATH = re.compile(r"(?<![\w.)\]])/(?:[\w.+@-]+/)+(?=[\w.+@-])")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?%?")
_AGREE = re.compile(r"nearest: (\d+) of (\d+) nodes agree")


def render_feedback(verdict: Verdict, max_chars: int = 4000, *, labels: Mapping[str, str] | None = None) -> str:
    """Scores, the stages in order with what failed in each, and what to do next; never over max_chars characters.

    labels: graph name -> what the agent knows it by.
    """
    if labels:
        named = [graph.model_copy(update={"graph": labels.get(graph.graph, graph.graph)}) for graph in verdict.graphs]
        verdict = verdict.model_copy(update={"graphs": named})
    head = score_line(verdict)
    failing = sorted(
        (graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT),
        key=lambda graph: list(NEXT_STEPS).index(graph.outcome),
    )
    violated = bool(verdict.violations) or any(graph.outcome is Outcome.VIOLATION for graph in failing)
    body = _integrity_lines(verdict) if violated else _stage_lines(verdict.graphs, failing)
    if failing and verdict.candidate_output.strip() and not violated:
        body += ["printed:", *indented([verdict.candidate_output.strip()[-_MAX_PRINTED:]])]
    last = f"next: {_next_step(verdict, failing)}"
    text = without_machine(clipped("\n".join(body), 4 * max_chars))
    room = max_chars - len(head) - len(last) - 2
    return printable(f"{head}\n{clipped(text, room)}\n{last}"[:max_chars])


def without_machine(text: str) -> str:
    """The text without folders of the machine and addresses in memory, which differ from run to run."""
    return _ADDRESS.sub("0x...", _PATH.sub(".../", _PASS_PATH.sub("pass_dir/", text)))


def _integrity_lines(verdict: Verdict) -> list[str]:
    violations = list({str(item): item for item in verdict.all_violations}.values())
    graphs = [graph for graph in verdict.graphs if graph.outcome is Outcome.VIOLATION]
    lines = ["integrity: FAILED"]
    if graphs:
        lines.append(f"{Outcome.VIOLATION} in {len(graphs)} of {len(verdict.graphs)}: {names_of(graphs)}")
    return lines + [f"  {line}" for line in violation_lines(violations, MAX_VIOLATIONS)]


def _stage_lines(graphs: Sequence[GraphVerdict], failing: Sequence[GraphVerdict]) -> list[str]:
    """How many graphs got through each stage, and below it why the others did not."""
    total = len(graphs)
    unmatched = [graph for graph in failing if graph.outcome in _MATCHING]
    others = [graph for graph in failing if graph.outcome not in _MATCHING]
    correct = sum(graph.outcome in (Outcome.CORRECT, Outcome.BATCH_VARIANT, Outcome.UNSTABLE) for graph in graphs)
    coverages = [graph.coverage for graph in graphs if graph.coverage is not None]
    coverage = f", coverage {span(coverages, '{:.2f}')}" if coverages else ""
    groups = _causes(unmatched)
    lines = [f"matching: {total - len(unmatched)} of {total}{coverage}", *_left_to_eager(graphs)]
    lines += _group_lines(groups, total, MAX_GROUPS)
    if len(unmatched) == total:
        return lines
    lines += [f"correctness: {correct} of {total}", *batch_lines(graphs)]
    lines += _group_lines(_causes(others), total, max(1, MAX_GROUPS - len(groups)))
    return lines + _performance_lines(graphs, short=bool(failing))


def _causes(failing: Sequence[GraphVerdict]) -> list[tuple[str, list[GraphVerdict]]]:
    """Graphs that failed alike, together, each cause in the words of its first graph: numbers differ, causes do not."""
    causes: dict[tuple[Outcome, str], tuple[str, list[GraphVerdict]]] = {}
    for graph in failing:
        message = _message(graph)
        causes.setdefault((graph.outcome, _NUMBER.sub("#", message)), (message, []))[1].append(graph)
    return list(causes.values())


def _message(graph: GraphVerdict) -> str:
    if graph.outcome is not Outcome.NO_MATCH or not graph.match_report:
        return clipped(graph.message, _MAX_MESSAGE)
    # the rule that came nearest first
    lines = [line for line in graph.match_report.split("\n") if line]
    lines.sort(key=lambda line: -_share_agreed(line))
    rest = [f"and {len(lines) - _MAX_RULES} more rules"] if len(lines) > _MAX_RULES else []
    said = [] if graph.message in graph.match_report else [graph.message]
    return "\n".join(clipped(line, _MAX_MESSAGE // 2) for line in [*said, *lines[:_MAX_RULES], *rest])


def _share_agreed(line: str) -> float:
    found = _AGREE.search(line)
    return (int(found[1]) + 0.5) / int(found[2]) if found and int(found[2]) else 0.0


def _group_lines(groups: Sequence[tuple[str, list[GraphVerdict]]], total: int, most: int) -> list[str]:
    lines = []
    for message, members in groups[:most]:
        outcome = members[0].outcome
        lines += [f"{outcome} in {len(members)} of {total}: {names_of(members)}", *indented([message])]
    if len(groups) > most:
        lines.append(f"and {len(groups) - most} more kinds of failure")
    return lines


def _left_to_eager(graphs: Sequence[GraphVerdict]) -> list[str]:
    """What the least covered graph still leaves to eager, if that is much."""
    covered = [graph for graph in graphs if graph.coverage is not None]
    if not covered:
        return []
    least = min(covered, key=lambda graph: graph.coverage or 0.0)
    lines = [line for line in least.match_report.split("\n") if line.startswith("left to eager: ")]
    return (
        [f"  {shortened(least.graph, 60)}: {line}" for line in lines] if (least.coverage or 0) < _COVERED_ENOUGH else []
    )


def _performance_lines(graphs: Sequence[GraphVerdict], *, short: bool) -> list[str]:
    """The slowest first; of many graphs the slowest two, the median and the fastest. short: the slowest alone."""
    timed = sorted((graph for graph in graphs if graph.speedup is not None), key=lambda graph: graph.speedup or 0.0)
    if not timed:
        return []
    count = f", {len(timed)} of {len(graphs)} timed" if len(timed) < len(graphs) else ""
    lines = [f"performance: {span([graph.speedup or 0.0 for graph in timed], '{:.2f}x')} of eager{count}"]
    chosen = [(graph, "") for graph in timed]
    if len(timed) > MAX_TIMED:
        middle = len(timed) // 2
        chosen = [(timed[0], ""), (timed[1], ""), (timed[middle], "median, "), (timed[-1], "fastest, ")]
    for graph, which in chosen[: 1 if short else MAX_TIMED]:
        lines.append(f"  {which}{shortened(graph.graph, 60)}: {_timing(graph)}")
    return lines


def _timing(graph: GraphVerdict) -> str:
    parts = [f"{graph.speedup:.2f}x"]
    if graph.speedup_interval is not None:
        parts[0] += f" ({graph.speedup_interval[0]:.2f}-{graph.speedup_interval[1]:.2f})"
    if graph.latency_us is not None:
        against = f" against {graph.reference_latency_us:.1f} us" if graph.reference_latency_us is not None else ""
        parts.append(f"{graph.latency_us:.1f} us{against}")
    if graph.gpu_speedup is not None:
        parts.append(f"GPU time alone {graph.gpu_speedup:.2f}x")
    if graph.num_kernels is not None and graph.reference_num_kernels is not None:
        parts.append(f"kernels {graph.num_kernels:g} against {graph.reference_num_kernels:g}")
    if graph.coverage is not None:
        parts.append(f"coverage {graph.coverage:.2f}")
    return ", ".join(parts)


def _next_step(verdict: Verdict, failing: Sequence[GraphVerdict]) -> str:
    if verdict.violations:
        return NEXT_STEPS[Outcome.VIOLATION]
    if failing:
        first = failing[0]
        step = NEXT_STEPS[first.outcome]
        half = next((dtype for dtype in ("bfloat16", "float16") if dtype in first.message), None)
        return step + _HALF_STEP.format(dtype=half) if first.outcome is Outcome.WRONG_VALUES and half else step
    coverages = [graph.coverage for graph in verdict.graphs if graph.coverage is not None]
    timed = [graph for graph in verdict.graphs if graph.speedup is not None]
    if coverages and min(coverages) < _COVERED_ENOUGH:
        return "extend pattern() to more operators of the graph; what is not replaced earns little"
    if not timed:
        return "stop here"
    slowest = min(timed, key=lambda graph: graph.speedup or 0.0)
    if (slowest.speedup or 0.0) < 1:
        if slowest.num_kernels is not None and slowest.num_kernels > _MANY_KERNELS:
            return f"slower than eager: launch one kernel instead of {slowest.num_kernels:g}, without copies and fills"
        return "slower than eager: read and write memory once, use larger blocks, launch one kernel"
    return "stop here, or try other block sizes"
