"""AttemptEntry: what the list of attempts says of one; made from its record alone, so attempts are independent.

Whether the attempt is kept is the selection's answer; that it repeats an earlier attempt only the whole list can tell.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from eval_harness.verdict import Outcome, Verdict
from trajectories.ledger import teacher_of
from trajectories.pages.code import visible
from trajectories.record import Trajectory
from trajectories.selection import SelectionConfig, conversation_fingerprint, cut_after_best, refusal
from trajectories.store import is_finished

UNREADABLE = "UNREADABLE"
NOT_EVALUATED = "NOT_EVALUATED"


class AttemptEntry(BaseModel):
    """One line of the list; a missing figure is None."""

    model_config = ConfigDict(extra="forbid")

    key: str
    """Collection and attempt: what a link names. Unique in a page."""
    collection: str
    attempt_id: str
    task: str
    attempt: int | None = None
    teacher: str = ""
    agent: str = ""
    outcome: str = NOT_EVALUATED
    """CORRECT if every graph is, else the most frequent failure; of the final verdict, or of the best one shown."""
    outcomes: dict[str, int] = {}
    """Outcome -> graphs."""
    as_score: float | None = None
    as_covered: float | None = None
    shown_covered: float | None = None
    """Covered AS of the best evaluation that the policy was shown."""
    is_final: bool = False
    """Whether the scores are of the fresh final verdict."""
    rules: list[str] = []
    """Rules broken in any evaluation."""
    num_violations: int = 0
    """Different violations over all evaluations."""
    num_turns: int = 0
    num_evaluations: int = 0
    num_tokens: int = 0
    cost_usd: float = 0.0
    duration_s: float = 0.0
    stop: str = ""
    kept: bool = False
    why: str = ""
    """Why it is refused, or where a kept one is cut."""
    fingerprint: str = ""
    """Of the conversation of a kept one: equal ones are repeats."""
    started_at: str = ""
    page: str = ""
    """The attempt's script, relative to the page."""


def attempt_entry(trajectory: Trajectory, *, collection: str, page: str, selection: SelectionConfig) -> AttemptEntry:
    """The entry of one record."""
    verdict = deciding_verdict(trajectory)
    counts = Counter(graph.outcome.value for graph in verdict.graphs) if verdict else Counter()
    failing = [name for name, _ in counts.most_common() if name != Outcome.CORRECT]
    outcome = failing[0] if failing else Outcome.CORRECT.value if counts else NOT_EVALUATED
    verdicts = [record.verdict for record in trajectory.evaluations]
    verdicts += [trajectory.final_verdict] if trajectory.final_verdict else []
    violations = {str(violation): violation for each in verdicts for violation in each.all_violations}
    shown = None if trajectory.best_evaluation is None else verdicts[trajectory.best_evaluation]
    usage = trajectory.usage
    why, fingerprint = refusal(trajectory, selection), ""
    kept = why is None
    if kept:
        messages, why = cut_after_best(trajectory)
        told = "\n".join(conversation_fingerprint(trajectory.task_hash, messages))
        fingerprint = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return AttemptEntry(
        key=visible(f"{collection}/{trajectory.trajectory_id}"),
        collection=collection,
        attempt_id=visible(trajectory.trajectory_id),
        task=visible(trajectory.task_id),
        attempt=trajectory.attempt_index,
        teacher=visible(teacher_of(trajectory.policy)),
        agent=visible(trajectory.agent),
        outcome=outcome,
        outcomes=dict(counts.most_common()),
        as_score=verdict.as_score if verdict else None,
        as_covered=verdict.as_covered if verdict else None,
        shown_covered=shown.as_covered if shown else None,
        is_final=trajectory.final_verdict is not None,
        rules=sorted({visible(violation.rule) for violation in violations.values()}),
        num_violations=len(violations),
        num_turns=trajectory.num_turns,
        num_evaluations=len(trajectory.evaluations),
        num_tokens=usage.input_tokens + usage.output_tokens,
        cost_usd=usage.cost_usd,
        duration_s=trajectory.duration_s,
        stop=str(trajectory.stop_reason or ("" if is_finished(trajectory) else "RUNNING")),
        kept=kept,
        why=visible(why or ""),
        fingerprint=fingerprint,
        started_at=visible(trajectory.started_at),
        page=page,
    )


def unreadable_entry(path: Path, *, collection: str, reason: str) -> AttemptEntry:
    """A record that cannot be read still has an entry: the others must not hide that it is there."""
    name = visible(path.stem)
    return AttemptEntry(
        key=f"{visible(collection)}/{name}",
        collection=collection,
        attempt_id=name,
        task=name,
        outcome=UNREADABLE,
        why=visible(reason),
    )


def deciding_verdict(trajectory: Trajectory) -> Verdict | None:
    """The final verdict, else the best one shown, else the last one."""
    if trajectory.final_verdict is not None:
        return trajectory.final_verdict
    if trajectory.best_evaluation is not None:
        return trajectory.evaluations[trajectory.best_evaluation].verdict
    return trajectory.evaluations[-1].verdict if trajectory.evaluations else None
