"""What is tried again, how often, and what it becomes in the end: one rule for every executor. Loads without torch.

A failure of ours is tried again on a fresh judge; a candidate that brings down two judges, one of them fresh, is a
RUNTIME_ERROR; an UNSTABLE verdict is tried again and, if it stays so, returned incomplete. A machine that went away (a
lost node of a cluster) says nothing about the candidate and has tries of its own. No threads and no processes here: see
judge_pool.py.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, JudgeError, MachineLostError
from eval_harness.presets import EvaluationProtocol
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict

log = logging.getLogger(__name__)

MAX_TRIES = 2
MAX_MACHINES_LOST = 3
"""So many lost machines are forgiven for each evaluation; preempted nodes come in waves."""
SEED_BITS = 48
BROUGHT_DOWN = "brought down two fresh judges"


def draw_seed() -> int:
    """A secret master seed for one evaluation."""
    return secrets.randbits(SEED_BITS)


@dataclass
class Tries:
    """One evaluation and the tries that it has had."""

    candidate: Candidate | str
    """A candidate, or a baseline by name."""
    task: Task
    protocol: EvaluationProtocol
    seed: int = field(default_factory=draw_seed)
    num_tries: int = 0
    """Tries that have ended."""
    num_judges_lost: int = 0
    num_machines_lost: int = 0

    @property
    def next_seed(self) -> int:
        """Seed of the next try: a retry must not meet the draws that the candidate has seen."""
        return (self.seed + self.num_tries + self.num_machines_lost) % (1 << SEED_BITS)

    @property
    def needs_fresh_judge(self) -> bool:
        """After a lost judge, the next one must not be worn by other candidates: two fresh ones convict."""
        return self.num_judges_lost > 0

    def book_verdict(self, verdict: Verdict) -> Verdict | None:
        """The verdict that ends the evaluation, or None: try again."""
        self.num_tries += 1
        if verdict.complete or self.num_tries >= MAX_TRIES:
            return verdict
        log.warning("evaluation of %s: an UNSTABLE verdict; trying again", self.task.task_id)
        return None

    def book_failure(self, error: HarnessError, device: str) -> Verdict | None:
        """The verdict that a failed try ends in, or None: try again. Raises the error that ends the evaluation."""
        if isinstance(error, MachineLostError):
            self.num_machines_lost += 1
            if self.num_machines_lost > MAX_MACHINES_LOST:
                raise error
            log.warning("evaluation of %s: %s; trying again elsewhere", self.task.task_id, error)
            return None
        self.num_tries += 1
        self.num_judges_lost += isinstance(error, JudgeError)
        if self.num_tries < MAX_TRIES:
            log.warning("evaluation of %s: %s; trying again", self.task.task_id, error)
            return None
        if self.num_judges_lost == MAX_TRIES and isinstance(self.candidate, Candidate):
            return brought_down(self.candidate, self.task, self.protocol, device, str(error))
        raise error


def brought_down(candidate: Candidate, task: Task, protocol: EvaluationProtocol, device: str, reason: str) -> Verdict:
    """The verdict of a candidate whose evaluation ended two fresh judges: RUNTIME_ERROR on every graph."""
    graphs = [
        GraphVerdict(
            graph=graph.name,
            graph_hash=graph.content_hash,
            outcome=Outcome.RUNTIME_ERROR,
            message=f"{BROUGHT_DOWN}: {reason}",
        )
        for graph in task.graphs
    ]
    scores = score_verdict(graphs, protocol.scoring, protocol.slowdown_exponent) if protocol.timing else None
    return Verdict(
        candidate_hash=candidate.candidate_hash,
        task_id=task.task_id,
        task_hash=task.content_hash,
        protocol=protocol.name,
        device=device,
        complete=True,
        as_score=scores.as_score if scores else None,
        as_covered=scores.as_covered if scores else None,
        es=scores.es if scores else {},
        disabled_layers=list(protocol.disabled_layers),
        graphs=graphs,
    )
