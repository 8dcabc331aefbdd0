"""How good a verifier is against the harness's own verdicts: accuracy, precision and recall of failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectories.verifiers.judging import Say, share_of_votes
from trajectories.verifiers.labels import LabelledCandidate
from trajectories.verifiers.prompts import VerifierPrompt

PAPER = {"compilation": 0.82, "memory": 0.80, "numerics": 0.73}
"""robust-kbench's accuracies after tuning, on its own kernels and models."""


@dataclass
class Judgement:
    """One candidate, and what the verifier said of it."""

    candidate: LabelledCandidate
    share: float
    """Of votes for the pass."""
    answer: str

    @property
    def says_pass(self) -> bool:
        """By majority; an even vote passes, since a verifier should not keep a pass from hardware without a reason."""
        return self.share >= 0.5

    @property
    def is_right(self) -> bool:
        return self.says_pass == self.candidate.passes


@dataclass
class VerifierScore:
    """Of one prompt on one set. A failing candidate that is called failing is a hit."""

    judgements: list[Judgement] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return _share(sum(each.is_right for each in self.judgements), len(self.judgements))

    @property
    def precision(self) -> float:
        """Of what it calls failing, the share that fails."""
        called = [each for each in self.judgements if not each.says_pass]
        return _share(sum(not each.candidate.passes for each in called), len(called))

    @property
    def recall(self) -> float:
        """Of what fails, the share that it calls failing: hardware evaluations saved, of those without a result."""
        failing = [each for each in self.judgements if not each.candidate.passes]
        return _share(sum(not each.says_pass for each in failing), len(failing))

    @property
    def good_lost(self) -> float:
        """Of what passes, the share that it calls failing."""
        passing = [each for each in self.judgements if each.candidate.passes]
        return _share(sum(not each.says_pass for each in passing), len(passing))

    @property
    def errors(self) -> list[Judgement]:
        return [each for each in self.judgements if not each.is_right]

    def as_dict(self) -> dict[str, Any]:
        return {
            "count": len(self.judgements), "accuracy": self.accuracy, "precision": self.precision,
            "recall": self.recall, "good_lost": self.good_lost,
        }  # fmt: skip


def score_prompt(
    prompt: VerifierPrompt,
    candidates: Sequence[LabelledCandidate],
    say: Say,
    *,
    num_votes: int = 1,
    reflect: bool = False,
) -> VerifierScore:
    """Ask about every candidate."""
    score = VerifierScore()
    for candidate in candidates:

        def about_task(question: str, text: str = candidate.task_text) -> str:
            return say(f"{text}\n\n{question}" if text else question)

        share, answer = share_of_votes(prompt, candidate.files, about_task, num_votes=num_votes, reflect=reflect)
        score.judgements.append(Judgement(candidate, share, answer))
    return score


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
