"""The sections of an attempt's page, in order. An agent with more to tell (a tree, an archive) adds one to SECTIONS.

A section renders a Trajectory to escaped HTML, or to None where it has nothing to say of that attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

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
    render: Callable[[Trajectory], Markup | None]


def render_attempt(trajectory: Trajectory, *, key: str) -> str:
    """The attempt as one HTML fragment. key: what links name it by."""
    sections = [(section, html) for section in SECTIONS if (html := section.render(trajectory))]
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
        link=f"#attempt={quote(visible(key), safe='')}",
        shrinkage=trajectory.shrinkage_covered,
    )


def _overview(trajectory: Trajectory) -> Markup | None:
    best = trajectory.best_evaluation
    shown = None if best is None else trajectory.evaluations[best]
    return Markup(render_page("overview.html.j2", attempt=trajectory, shown=shown))


def _scores(trajectory: Trajectory) -> Markup | None:
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


def _state(trajectory: Trajectory) -> Markup | None:
    """What the agent keeps beside the conversation, where no section of its own shows it."""
    if not trajectory.agent_state or trajectory.agent in AGENTS_WITH_SECTIONS:
        return None
    return Markup(render_page("facts.html.j2", facts={f"state of {trajectory.agent}": trajectory.agent_state}))


def _conversation(trajectory: Trajectory) -> Markup | None:
    prompt, turns = split_conversation(trajectory)
    return Markup(render_page("conversation.html.j2", prompt=prompt, turns=turns, card=_card_of))


def _card_of(evaluated: Evaluated) -> Markup:
    notes = ["the best"] if evaluated.is_best else []
    record = evaluated.record
    return verdict_card(record.verdict, record.files, title=f"Evaluation {evaluated.number}", notes=notes)


def _final(trajectory: Trajectory) -> Markup | None:
    files = trajectory.best_files
    if trajectory.final_verdict is None and not files:
        return None
    card = Markup("")
    if trajectory.final_verdict is not None:
        title = "Final verdict: the best candidate, evaluated afresh"
        card = verdict_card(trajectory.final_verdict, files or {}, title=title, all_graphs=True)
    return card + Markup(render_page("files.html.j2", files=files or {}))


def _record(trajectory: Trajectory) -> Markup | None:
    facts = {
        "policy": trajectory.policy,
        f"agent {trajectory.agent}": trajectory.agent_settings,
        "tools offered": trajectory.tools,
        "graphs": trajectory.graph_hashes,
        "versions": trajectory.versions,
        "machine": trajectory.machine,
    }
    return Markup(render_page("facts.html.j2", facts={name: value for name, value in facts.items() if value}))


AGENTS_WITH_SECTIONS: set[str] = set()
"""Agents whose state a section below shows; the others' is shown as plain data."""

SECTIONS: list[Section] = [
    Section("overview", "Overview", _overview),
    Section("scores", "AS over turns", _scores),
    Section("state", "What the agent kept", _state),
    Section("conversation", "Conversation", _conversation),
    Section("result", "Result", _final),
    Section("record", "Record", _record),
]
