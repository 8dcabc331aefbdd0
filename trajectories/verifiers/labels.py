"""What the harness said of a candidate, as the answer that a verifier should have given.

    compilation   fails if a file does not load or a kernel does not compile
    memory        fails if it raises, runs out of memory, does not end, or writes into its inputs; of what compiled
    numerics      fails if shapes, dtypes, strides or values are wrong; of what ran on every graph

A candidate that broke a rule or matched nothing says nothing about these, and has no label.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval_harness.verdict import Outcome, Verdict
from trajectories.verifiers.prompts import Aspect

_COMPILE = {Outcome.COMPILE_ERROR}
_MEMORY = {Outcome.RUNTIME_ERROR, Outcome.OUT_OF_MEMORY, Outcome.TIMEOUT, Outcome.INPUT_MUTATED}
_NUMERICS = {Outcome.WRONG_VALUES, Outcome.WRONG_SHAPE, Outcome.WRONG_DTYPE, Outcome.WRONG_STRIDE}
_SILENT = {Outcome.VIOLATION, Outcome.NO_MATCH, Outcome.UNSTABLE, Outcome.BATCH_VARIANT}


@dataclass(frozen=True)
class LabelledCandidate:
    """A candidate with the right answer about one aspect."""

    key: str
    """Equal for equal files of a task."""
    task_id: str
    files: Mapping[str, str]
    passes: bool
    outcome: str
    task_text: str = ""
    """The task as its author was shown it; stands before the verifier's question, as in a search."""


def label_of(verdict: Verdict, aspect: Aspect) -> bool | None:
    """Whether the candidate passes; None where the verdict does not say."""
    outcomes = {graph.outcome for graph in verdict.graphs}
    if not outcomes or outcomes & _SILENT:
        return None
    if aspect == "compilation":
        return not outcomes & _COMPILE
    if outcomes & _COMPILE:
        return None
    if aspect == "memory":
        return not outcomes & _MEMORY
    return None if outcomes & _MEMORY else not outcomes & _NUMERICS


def balanced(candidates: Iterable[LabelledCandidate], count: int, *, seed: int = 0) -> list[LabelledCandidate]:
    """Half that pass and half that fail, from as many tasks as there are; fewer where one side has fewer."""
    unique = {each.key: each for each in candidates}
    chosen: list[LabelledCandidate] = []
    sides = [_spread([e for e in unique.values() if e.passes is side], seed) for side in (True, False)]
    half = min(count // 2, *map(len, sides))
    for side in sides:
        chosen += side[:half]
    return sorted(chosen, key=lambda each: each.key)


def _spread(candidates: Sequence[LabelledCandidate], seed: int) -> list[LabelledCandidate]:
    """One of each task before a second of any, in an order that the seed decides."""
    by_task: dict[str, list[LabelledCandidate]] = {}
    for each in sorted(candidates, key=lambda each: each.key):
        by_task.setdefault(each.task_id, []).append(each)
    rng = random.Random(seed)
    queues = list(by_task.values())
    for queue in queues:
        rng.shuffle(queue)
    rng.shuffle(queues)
    most = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(most) for queue in queues if turn < len(queue)]
