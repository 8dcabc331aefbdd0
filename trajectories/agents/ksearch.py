"""KSearchAgent: search over plans that the model scores as a world model of execution (K-Search, arXiv 2602.19128).

    plans -> the most promising open one: tries until it stagnates -> the tree revised by what execution showed -> again

What to do is decided apart from how it is written: plans hold no code, tries no other plan. Tree and candidates are in
the record.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trajectories.agents import AttemptSetup
from trajectories.agents.archive import Archive, ArchiveEntry, is_correct
from trajectories.agents.plan_tree import Plan, PlanTree, score_of
from trajectories.agents.requests import REQUEST_VERSION, render_request
from trajectories.agents.screening import BatchInvarianceAdapter, check_statically
from trajectories.agents.search_agent import SearchAgent
from trajectories.agents.search_attempt import SearchAttempt
from trajectories.agents.search_text import parse_objects, render_files

FALLBACK_PLAN = "the simplest fused kernel that is correct"
"""Tried where a model gives no plan that can be read."""


class KSearchConfig(BaseModel):
    """Settings of `kind: ksearch`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_plans: int = Field(default=4, ge=1)
    """At the start."""
    max_plans: int = Field(default=40, ge=1)
    """In all; further ones are refused."""
    stagnation: int = Field(default=2, ge=1)
    """Tries in a row without a gain, after which a plan is left."""
    min_gain: float = Field(default=0.01, ge=0)
    """What counts as a gain in covered AS, as a share of the plan's best: less is noise of the clock."""
    max_rounds: int = Field(default=50, ge=1)
    """Plans that are taken up, and revisions after them."""
    feedback_chars: int = Field(default=1_500, ge=200)
    """Of a verdict in a request."""
    tree_chars: int = Field(default=8_000, ge=500)
    """Of the tree in a request."""


KSearchAgentConfig = KSearchConfig


class KSearchAgent(SearchAgent):
    """Thread-safe; see Agent."""

    def __init__(self, config: KSearchConfig, setup: AttemptSetup) -> None:
        super().__init__(setup)
        self.config = config

    def search(self, attempt: SearchAttempt) -> None:
        _PlanSearch(self.config, attempt).run()

    def describe(self) -> dict[str, Any]:
        return {"kind": "ksearch", "request_version": REQUEST_VERSION, **self.config.model_dump(mode="json")}


class _PlanSearch:
    """One attempt's search."""

    def __init__(self, config: KSearchConfig, attempt: SearchAttempt) -> None:
        self.config, self.attempt = config, attempt
        self.tree = PlanTree(attempt.trajectory, max_plans=config.max_plans)
        self.archive = Archive(attempt.trajectory)
        self.adapter = BatchInvarianceAdapter(attempt.task, attempt.setup.protocol)

    def run(self) -> None:
        """Raises SearchEnded at a limit, PolicyError, HarnessError."""
        self._make_plans()
        for _ in range(self.config.max_rounds):
            plan = self.tree.next()
            if plan is None:
                return
            while plan.status == "open":
                self._try(plan)
            self._revise()

    def _make_plans(self) -> None:
        answer = self.attempt.say(render_request("plans", count=self.config.num_plans))
        for found in (parse_objects(answer) or [])[: self.config.num_plans]:
            if isinstance(found.get("plan"), str):
                score = score_of(found.get("score"))
                self.tree.add(found["plan"], 0.5 if score is None else score)
        if not self.tree.plans:
            self.tree.add(FALLBACK_PLAN, 0.5)
        self._save()

    def _try(self, plan: Plan) -> None:
        """One candidate for a plan, judged."""
        parent = None if plan.parent is None else self.tree.plans[plan.parent].best
        last = plan.tries[-1] if plan.tries else None
        request = render_request(
            "instantiate",
            plan={"id": plan.id, "text": plan.text},
            parent=None if parent is None or last is not None else self._shown(self.archive.entries[parent]),
            last=None if last is None else self._shown(self.archive.entries[last]),
        )
        before = last if last is not None else parent
        start = None if before is None else self.archive.files(self.archive.entries[before])
        files = self.attempt.write(request, start=start)
        if files is None:
            self._count(plan, None)
            return
        entry = self.archive.add(
            turn=self.attempt.turn,
            generation=plan.id,
            parents=[] if before is None else [before],
            recommendation=plan.text,
            files=files,
        )
        plan.tries.append(entry.id)
        entry.stage, entry.rejected = check_statically(files, self.adapter, self.attempt.setup.protocol)
        self._save()
        if not entry.stage:
            (index,) = self.attempt.evaluate([(files, entry.turn)])
            if isinstance(index, int):
                entry.evaluation, entry.files = index, {}
            else:
                entry.stage, entry.rejected = "budget", index
        self._count(plan, entry)

    def _count(self, plan: Plan, entry: ArchiveEntry | None) -> None:
        """Whether a try bettered its plan; after enough that did not, the plan is left."""
        verdict = None if entry is None else self.archive.verdict(entry)
        score = (verdict.as_covered or 0.0) if verdict is not None and is_correct(verdict) else None
        is_gain = score is not None and (plan.best is None or score > plan.best_score * (1 + self.config.min_gain))
        if score is not None and entry is not None and (plan.best is None or score > plan.best_score):
            plan.best, plan.best_score = entry.id, score
        plan.without_gain = 0 if is_gain else plan.without_gain + 1
        if plan.without_gain >= self.config.stagnation:
            plan.status = "stagnated"
        self._save()

    def _revise(self) -> None:
        """Have the tree edited; an answer that cannot be read leaves it as it is."""
        answer = self.attempt.say(render_request("revise", tree=self.tree.render(self.config.tree_chars)))
        edits = parse_objects(answer)
        if edits is None:
            self.tree.num_refused += 1
        else:
            self.tree.apply(edits)
        self._save()

    def _shown(self, entry: ArchiveEntry) -> dict[str, Any]:
        covered, score = self.archive.score(entry)
        if entry.evaluation is None:
            feedback = entry.rejected
        else:
            feedback = self.attempt.feedback(entry.evaluation, self.config.feedback_chars)
        return {
            "id": entry.id,
            "score": f"AS {score:.3f}, covered {covered:.3f}",
            "files": render_files(self.archive.files(entry)),
            "feedback": feedback,
        }

    def _save(self) -> None:
        self.tree.save()
        self.archive.save()
        self.attempt.keep()
