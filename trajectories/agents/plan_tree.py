"""PlanTree: high-level plans, what came of each, and the edits that a model makes to them. Plain data, no model.

A plan is open until it is pruned, or until several tries at it brought no gain (stagnated). What a model answers is
taken edit by edit: one that names no plan or says nonsense is left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from trajectories.record import Trajectory

PlanStatus = Literal["open", "stagnated", "pruned"]
MAX_PLAN_CHARS = 600


class Plan(BaseModel):
    """One node."""

    model_config = ConfigDict(extra="forbid")

    id: int
    parent: int | None = None
    """The plan that it refines."""
    text: str
    score: float
    """The model's own estimate, 0 to 1."""
    status: PlanStatus = "open"
    tries: list[int] = []
    """Candidates that were written for it."""
    best: int | None = None
    """The best correct one of them."""
    best_score: float = 0.0
    """Its covered AS."""
    without_gain: int = 0
    """Tries in a row that did not better it."""


class PlanTree:
    """The plans of one attempt, kept in its agent_state under "plans"."""

    def __init__(self, trajectory: Trajectory, *, max_plans: int) -> None:
        self._trajectory, self.max_plans = trajectory, max_plans
        self.plans: list[Plan] = []
        self.num_refused = 0
        """Edits that could not be taken."""

    def add(self, text: str, score: float, parent: int | None = None) -> Plan | None:
        """A new plan; None for an empty or known one, or where there are enough."""
        text = " ".join(text.split())[:MAX_PLAN_CHARS]
        known = any(plan.text.lower() == text.lower() for plan in self.plans)
        if not text or known or len(self.plans) >= self.max_plans:
            return None
        self.plans.append(Plan(id=len(self.plans), parent=parent, text=text, score=score))
        return self.plans[-1]

    def next(self) -> Plan | None:
        """The open plan with the highest score; of equals the one tried least, then the older one."""
        opened = [plan for plan in self.plans if plan.status == "open"]
        return max(opened, key=lambda plan: (plan.score, -len(plan.tries), -plan.id)) if opened else None

    def apply(self, edits: Sequence[Mapping[str, Any]]) -> int:
        """Take a model's edits in order; how many were taken. The others are counted in num_refused."""
        taken = sum(self._apply(edit) for edit in edits)
        self.num_refused += len(edits) - taken
        return taken

    def render(self, max_chars: int) -> str:
        """The tree as an indented list, each plan with its score and what execution showed."""
        text = "\n".join(self._lines(None, 0))
        return text if len(text) <= max_chars else text[: max_chars - 4] + "\n..."

    def save(self) -> None:
        """Into the record's agent_state; the caller keeps the record."""
        self._trajectory.agent_state["plans"] = [plan.model_dump(mode="json") for plan in self.plans]
        self._trajectory.agent_state["refused_edits"] = self.num_refused

    def _apply(self, edit: Mapping[str, Any]) -> bool:
        action = edit.get("do")
        if action == "insert":
            parent, score = edit.get("parent"), score_of(edit.get("score"))
            if not isinstance(edit.get("plan"), str) or score is None:
                return False
            if parent is not None and self._plan(parent) is None:
                return False
            return self.add(edit["plan"], score, parent) is not None
        plan = self._plan(edit.get("id"))
        if plan is None:
            return False
        if action == "prune":
            plan.status = "pruned"
            return True
        score = score_of(edit.get("score"))
        if action != "rank" or score is None:
            return False
        plan.score = score
        return True

    def _plan(self, number: Any) -> Plan | None:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.plans):
            return None
        return self.plans[number]

    def _lines(self, parent: int | None, depth: int) -> list[str]:
        lines = []
        for plan in self.plans:
            if plan.parent != parent:
                continue
            shown = f"best covered AS {plan.best_score:.3f}" if plan.best is not None else "nothing correct"
            tried = f"{len(plan.tries)} tries, {shown}" if plan.tries else "not tried"
            lines.append(f"{'  ' * depth}{plan.id} (score {plan.score:.2f}, {plan.status}, {tried}): {plan.text}")
            lines += self._lines(plan.id, depth + 1)
        return lines


def score_of(value: Any) -> float | None:
    """A number as a score in 0..1; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(1.0, max(0.0, float(value)))


def plans_of(trajectory: Trajectory) -> list[Plan]:
    """The plans of a stored record; empty for an agent that keeps none."""
    return [Plan.model_validate(plan) for plan in trajectory.agent_state.get("plans", [])]
