"""Asking a verifier: one question an aspect and vote, one reflection if wanted; votes to a share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from trajectories.verifiers.prompts import VerifierPrompt

_VERDICT = re.compile(r"VERDICT:\W*(pass|fail)", re.IGNORECASE)
REFLECT = (
    "You judged a pass folder. Read it and your own answer again: is there a mistake in what you said?\n\n{question}\n"
    "\nYour answer was:\n{answer}\n\nGive your final judgement in a few sentences, and the same kind of last line."
)
"""The one reflection round of robust-kbench."""

Say = Callable[[str], str]
"""A question -> an answer in words."""


def read_vote(answer: str) -> float:
    """1 for pass, 0 for fail, by the last verdict in the answer; 0.5 without one."""
    found = _VERDICT.findall(answer)
    return 0.5 if not found else float(found[-1].lower() == "pass")


def share_of_votes(
    prompt: VerifierPrompt, files: Mapping[str, str], say: Say, *, num_votes: int = 1, reflect: bool = False
) -> tuple[float, str]:
    """The share of votes for the pass, and the last answer's words."""
    question = prompt.filled(files)
    votes, answer = [], ""
    for _ in range(num_votes):
        answer = say(question)
        if reflect:
            answer = say(REFLECT.replace("{question}", question).replace("{answer}", answer))
        votes.append(read_vote(answer))
    return sum(votes) / len(votes), answer
