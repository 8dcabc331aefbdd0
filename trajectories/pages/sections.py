"""The sections of an attempt's page, in order. An agent with more to tell (a tree, an archive) adds one to SECTIONS.

A section renders a Trajectory to escaped HTML, or to None where it has nothing to say of that attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup
from pydantic import ValidationError

from eval_harness.verdict import Outcome, Verdict
from trajectories.agents.archive import ArchiveEntry, archive_of
from trajectories.agents.plan_tree import Plan, plans_of
from trajectories.pages.charts import line_chart
from trajectories.pages.code import visible
from trajectories.pages.conversation import Evaluated, split_conversation
from trajectories.pages.render import render_page
from trajectories.pages.verdict_card import verdict_card
from trajectories.record import Trajectory


@dataclass(frozen=True)
class Section:
    """One section of the page."""

    name: str
    """Of its anchor; a word."""
    title: str
    render: Callable[[Trajectory, str], Markup | None]
    """(record, the page's own link, to which "&turn=7" may be added) -> HTML, or None."""


def render_attempt(trajectory: Trajectory, *, key: str) -> str:
    """The attempt as one HTML fragment. key: what links name it by."""
    link = f"#attempt={quote(visible(key), safe='')}"
    sections = [(section, html) for section in SECTIONS if (html := section.render(trajectory, link))]
    turns = [
        (turn.number, turn.evaluations[-1].record.verdict.as_score if turn.evaluations else None, len(turn.evaluations))
        for turn in split_conversation(trajectory)[1]
        if turn.number is not None
    ]
    return render_page(
        "attempt.html.j2",
        attempt=trajectory,
        sections=sections,
        turns=turns,
        link=link,
        shrinkage=trajectory.shrinkage_covered,
    )


def _overview(trajectory: Trajectory, link: str) -> Markup | None:
    best = trajectory.best_evaluation
    shown = None if best is None else trajectory.evaluations[best]
    return Markup(render_page("overview.html.j2", attempt=trajectory, shown=shown))


def _scores(trajectory: Trajectory, link: str) -> Markup | None:
    """AS of each evaluation and of the best one so far, over turns."""
    scores = [(record.turn, record.verdict.as_score) for record in trajectory.evaluations]
    measured = [(float(turn), score) for turn, score in scores if score is not None]
    best = [(turn, max(score for _, score in measured[: index + 1])) for index, (turn, _) in enumerate(measured)]
    last = float(max(trajectory.num_turns, 1))
    series = {"evaluation": measured, "best so far": [*best, (last, best[-1][1])] if best else []}
    if trajectory.final_verdict is not None and trajectory.final_verdict.as_score is not None and measured:
        series["final, fresh"] = [(last, trajectory.final_verdict.as_score)]
    chart = line_chart(series, label="AS of each evaluation over turns", x_label="turn", y_label="AS", with_dots=True)
    return chart or None


def _state(trajectory: Trajectory, link: str) -> Markup | None:
    """What the agent keeps beside the conversation, where no section of its own shows it."""
    is_shown = trajectory.agent in AGENTS_WITH_SECTIONS or _readable(trajectory) is not None
    if not trajectory.agent_state or is_shown:
        return None
    return Markup(render_page("facts.html.j2", facts={f"state of {trajectory.agent}": trajectory.agent_state}))


def _search(trajectory: Trajectory, link: str) -> Markup | None:
    """The archive of a search, and its tree of plans."""
    found = _readable(trajectory)
    if found is None:
        return None
    entries, plans = found
    verdicts = [None if e.evaluation is None else trajectory.evaluations[e.evaluation].verdict for e in entries]
    best = next(
        (e.id for e in entries if e.evaluation is not None and e.evaluation == trajectory.best_evaluation), None
    )
    return Markup(
        render_page(
            "search.html.j2",
            plans=list(_in_tree_order(plans, None, 0)),
            refused=trajectory.agent_state.get("refused_edits", 0),
            rows=[(entry, verdict, entry.id == best) for entry, verdict in zip(entries, verdicts, strict=True)],
            num_judged=sum(verdict is not None for verdict in verdicts),
            rejected=sorted(Counter(entry.stage for entry in entries if entry.stage).items()),
            has_votes=any(entry.votes for entry in entries),
            outcome_of=worst_outcome,
            link=link,
        )
    )


def _readable(trajectory: Trajectory) -> tuple[list[ArchiveEntry], list[Plan]] | None:
    """Archive and plans of a search's record; None where there are none, or in another form than ours."""
    if trajectory.agent not in SEARCHES:
        return None
    try:
        entries, plans = archive_of(trajectory), plans_of(trajectory)
    except (ValidationError, TypeError):
        return None
    judged = [entry.evaluation for entry in entries if entry.evaluation is not None]
    fits = all(0 <= index < len(trajectory.evaluations) for index in judged)
    return (entries, plans) if (entries or plans) and fits else None


def _in_tree_order(plans: Sequence[Plan], parent: int | None, depth: int) -> Iterator[tuple[int, Plan, float | None]]:
    """(depth, plan, covered AS of its best candidate), each plan before those that refine it."""
    for plan in plans:
        if plan.parent == parent:
            yield depth, plan, None if plan.best is None else plan.best_score
            yield from _in_tree_order(plans, plan.id, depth + 1)


def worst_outcome(verdict: Verdict) -> str:
    """CORRECT if every graph is, else the first other outcome."""
    others = [str(graph.outcome) for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT]
    return others[0] if others else str(Outcome.CORRECT)


def _conversation(trajectory: Trajectory, link: str) -> Markup | None:
    prompt, turns = split_conversation(trajectory)
    return Markup(render_page("conversation.html.j2", prompt=prompt, turns=turns, card=_card_of))


def _card_of(evaluated: Evaluated) -> Markup:
    notes = ["the best"] if evaluated.is_best else []
    record = evaluated.record
    return verdict_card(record.verdict, record.files, title=f"Evaluation {evaluated.number}", notes=notes)


def _final(trajectory: Trajectory, link: str) -> Markup | None:
    files = trajectory.best_files
    if trajectory.final_verdict is None and not files:
        return None
    card = Markup("")
    if trajectory.final_verdict is not None:
        title = "Final verdict: the best candidate, evaluated afresh"
        card = verdict_card(trajectory.final_verdict, files or {}, title=title, all_graphs=True)
    return card + Markup(render_page("files.html.j2", files=files or {}))


def _record(trajectory: Trajectory, link: str) -> Markup | None:
    facts = {
        "policy": trajectory.policy,
        f"agent {trajectory.agent}": trajectory.agent_settings,
        "tools offered": trajectory.tools,
        "graphs": trajectory.graph_hashes,
        "versions": trajectory.versions,
        "machine": trajectory.machine,
    }
    return Markup(render_page("facts.html.j2", facts={name: value for name, value in facts.items() if value}))


SEARCHES = frozenset({"evolve", "ksearch"})
"""Agents whose archive and plans the section "search" shows."""
AGENTS_WITH_SECTIONS: set[str] = set()
"""Further agents whose state a section below shows; the others' is shown as plain data."""

SECTIONS: list[Section] = [
    Section("overview", "Overview", _overview),
    Section("scores", "AS over turns", _scores),
    Section("search", "Search", _search),
    Section("state", "What the agent kept", _state),
    Section("conversation", "Conversation", _conversation),
    Section("result", "Result", _final),
    Section("record", "Record", _record),
]
