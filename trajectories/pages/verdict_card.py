"""A verdict as a card: scores, a row a graph, what failed alike told once, violations with the lines they point at.

All numbers are the verdict's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from eval_harness.summary import is_batch_variant
from eval_harness.verdict import GraphVerdict, Outcome, UnseenCheck, Verdict, Violation
from eval_harness.verdict_text import STAGES, missing_confinement
from trajectories.pages.code import code_block, language_of
from trajectories.pages.conversation import excerpt_of
from trajectories.pages.render import render_page

MAX_SHOWN_GRAPHS = 24
"""Rows of a card within the conversation, failures first; the final verdict shows all."""
_BAR_WIDTH, _BAR_HEIGHT = 120, 14
_BAR_LOW, _BAR_HIGH = 0.5, 4.0
"""Speedups beyond are drawn at the edge."""


def verdict_card(
    verdict: Verdict, files: Mapping[str, str], *, title: str, notes: Sequence[str] = (), all_graphs: bool = False
) -> Markup:
    """The card. files: the candidate that was judged, for the lines around violations."""
    failing = [graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT]
    correct = [graph for graph in verdict.graphs if graph.outcome is Outcome.CORRECT]
    ordered = failing + sorted(correct, key=lambda graph: graph.speedup or math.inf)
    shown = ordered if all_graphs else ordered[:MAX_SHOWN_GRAPHS]
    violations = {str(violation): violation for violation in verdict.all_violations}
    text = render_page(
        "verdict.html.j2",
        verdict=verdict,
        title=title,
        notes=[*notes, *_notes(verdict)],
        counts=Counter(graph.outcome.value for graph in verdict.graphs).most_common(),
        graphs=shown,
        bars=[speedup_bar(graph) for graph in shown],
        left_out=_left_out(ordered[len(shown) :]),
        has_batch=any(graph.batch_invariance is not None for graph in verdict.graphs),
        has_unseen=any(graph.unseen is not None for graph in verdict.graphs),
        has_gpu=any(graph.gpu_speedup is not None for graph in verdict.graphs),
        failures=_alike(failing),
        violations=[(violation, _lines_of(violation, files)) for violation in violations.values()],
        matching=_by_report(verdict.graphs),
        batch_word=_batch_word,
        unseen_word=_unseen_word,
        stage_of=lambda outcome: STAGES.get(outcome, "correctness"),
    )
    return Markup(text)


def speedup_bar(graph: GraphVerdict) -> Markup:
    """The speedup and its interval on a logarithmic axis around 1; empty where there is none."""
    if not graph.speedup:
        return Markup("")

    def place(speedup: float) -> float:
        clipped = min(max(speedup, _BAR_LOW), _BAR_HIGH)
        return _BAR_WIDTH * math.log(clipped / _BAR_LOW) / math.log(_BAR_HIGH / _BAR_LOW)

    x, (low, high) = place(graph.speedup), graph.speedup_interval or (graph.speedup, graph.speedup)
    colour = "var(--good)" if low > 1 else "var(--bad)" if high < 1 else "var(--soft)"
    width, height = max(place(high) - place(low), 1.0), _BAR_HEIGHT - 8
    return Markup(
        f'<svg class="bar" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" aria-hidden="true">'
        f'<path d="M0 {_BAR_HEIGHT / 2}H{_BAR_WIDTH}M{place(1.0):.1f} 0V{_BAR_HEIGHT}" stroke="var(--rule)"/>'
        f'<rect x="{place(low):.1f}" y="4" width="{width:.1f}" height="{height}" fill="{colour}" opacity=".45"/>'
        f'<path d="M{x:.1f} 2V{_BAR_HEIGHT - 2}" stroke="{colour}" stroke-width="2.5"/></svg>'
    )


def _notes(verdict: Verdict) -> list[str]:
    notes = ["from the verdict cache"] if verdict.from_cache else []
    if verdict.disabled_layers:
        notes.append(f"integrity layers off: {', '.join(verdict.disabled_layers)}")
    if missing := missing_confinement(verdict):
        notes.append(f"confinement incomplete: {', '.join(missing)}")
    return notes


def _left_out(graphs: Sequence[GraphVerdict]) -> str:
    if not graphs:
        return ""
    counts = Counter(graph.outcome.value for graph in graphs)
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    speedups = [graph.speedup for graph in graphs if graph.speedup is not None]
    return f"and {text}" + (f", {min(speedups):.2f}x to {max(speedups):.2f}x" if speedups else "")


def _alike(graphs: Sequence[GraphVerdict]) -> list[tuple[Outcome, str, list[str]]]:
    """Outcome and message -> the graphs that failed so; a message of a violation is told with the violation."""
    groups: dict[tuple[Outcome, str], list[str]] = {}
    for graph in graphs:
        message = graph.message or (graph.match_report if graph.outcome is Outcome.NO_MATCH else "")
        if message and not graph.violations:
            groups.setdefault((graph.outcome, message), []).append(graph.graph)
    return [(outcome, message, names) for (outcome, message), names in groups.items()]


def _by_report(graphs: Sequence[GraphVerdict]) -> list[tuple[str, list[str]]]:
    reports: dict[str, list[str]] = {}
    for graph in graphs:
        if graph.match_report:
            reports.setdefault(graph.match_report, []).append(graph.graph)
    return list(reports.items())


def _lines_of(violation: Violation, files: Mapping[str, str]) -> Markup:
    excerpt = excerpt_of(violation, files)
    if excerpt is None:
        return Markup("")
    return code_block(excerpt.text, language_of(excerpt.path), first_line=excerpt.first_line, marked=excerpt.line)


def _batch_word(graph: GraphVerdict) -> str:
    answer = is_batch_variant(graph)
    if answer is None:
        return "no batch" if graph.batch_invariance else "-"
    return "variant" if answer else "invariant"


def _unseen_word(checks: Sequence[UnseenCheck] | None) -> str:
    counts = Counter(check.result for check in checks or ())
    return ", ".join(f"{count} {result}" for result, count in counts.most_common()) or "-"
