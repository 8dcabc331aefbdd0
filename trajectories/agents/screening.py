"""What is known of proposals before any of them runs: their form, the source rules, batch invariance, a model's votes.

    proposals -> (form, duplicates, source rules, static batch invariance) -> votes -> the best go to the harness

The rules are the harness's own and cost no evaluation; they would end the same way there. The votes are a model's
(robust-kbench's soft verification): they rank, and reject nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.candidate import Candidate, MalformedCandidateError
from eval_harness.presets import EvaluationProtocol
from eval_harness.source_rules import check_sources, syntax_error
from eval_harness.static_findings import StaticFindings
from trajectories.agents.requests import MARK
from trajectories.agents.search_attempt import SearchAttempt
from trajectories.verifiers.judging import share_of_votes
from trajectories.verifiers.prompts import Aspect, load_prompt

Stage = Literal["", "malformed", "duplicate", "source", "batch_invariance"]

_MAX_TOLD = 600


class VerifierConfig(BaseModel):
    """Soft verification of proposals by a model (robust-kbench, its section on verifiers)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    aspects: tuple[Aspect, ...] = ("compilation", "memory", "numerics")
    """One question each."""
    num_votes: int = Field(default=1, ge=1)
    """Answers to each question; the majority counts."""
    member: int = Field(default=0, ge=0)
    """The policy of the ensemble that is asked."""
    reflect: bool = False
    """One more question a vote: look at your answer again."""
    prompts: Path | None = None
    """A folder with tuned prompts; where it has none of an aspect, and by default, those that ship."""
    version: int | None = Field(default=None, ge=1)
    """Of the prompts; None: the newest."""


class BatchInvarianceAdapter:
    """The batch-invariance gates as a search uses them: static rules on every proposal, the dynamic gate by protocol.

    Findings go into the search's own history as any failure does, so the next request tells of them.
    """

    def __init__(self, task: Task, protocol: EvaluationProtocol) -> None:
        """Enforced by the protocol of the evaluations: `protocol_overrides.batch_invariance=enforce`."""
        self.task = task
        self.is_on = protocol.batch_invariance == "enforce"

    def findings(self, candidate: Candidate) -> str:
        """What the static rules say against it for every graph of the task; empty if nothing, or if the gate is off."""
        return StaticFindings.of(candidate, self.task.graphs).feedback_for_all() if self.is_on else ""


def check_statically(
    files: Mapping[str, str], adapter: BatchInvarianceAdapter, protocol: EvaluationProtocol
) -> tuple[Stage, str]:
    """Where and why a proposal cannot pass, without running it; ("", "") if nothing speaks against it."""
    try:
        candidate = Candidate(dict(files))
    except MalformedCandidateError as error:
        return "malformed", str(error)[:_MAX_TOLD]
    if problem := syntax_error(candidate):
        return "malformed", problem[:_MAX_TOLD]
    if protocol.checks("source") and (violations := check_sources(candidate, level=protocol.integrity)):
        first = violations[0]
        return "source", f"{first.rule}: {first.file}:{first.line}: {first.message}"[:_MAX_TOLD]
    if text := adapter.findings(candidate):
        return "batch_invariance", text[:_MAX_TOLD]
    return "", ""


def ask_verifiers(attempt: SearchAttempt, files: Mapping[str, str], config: VerifierConfig) -> dict[str, float]:
    """Aspect -> share of votes that say it passes; an answer without a verdict is half a vote. Raises UserError."""
    shares: dict[str, float] = {}
    for aspect in config.aspects:
        prompt = load_prompt(aspect, folder=config.prompts, version=config.version)

        def say(question: str, kind: str = f"{MARK}verify_{aspect}") -> str:
            return attempt.say(f"{kind}\n\n{question}", member=config.member)

        shares[aspect], _ = share_of_votes(prompt, files, say, num_votes=config.num_votes, reflect=config.reflect)
    return shares


def rank(votes: Mapping[str, float]) -> tuple[int, float]:
    """Larger is better: aspects that a majority passes, then the share of all votes."""
    return sum(share > 0.5 for share in votes.values()), sum(votes.values())
