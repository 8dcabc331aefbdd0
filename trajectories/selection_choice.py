"""Which of many good trajectories to keep: duplicates, near duplicates and quotas, from a small digest of each.

digest_trajectory -> TrajectoryDigest (a few kB, whatever the length of the record) -> choose. So a dataset is selected
from collections that do not fit in memory. What makes a trajectory good by itself: selection.py.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trajectories.ledger import teacher_of
from trajectories.record import Message, Trajectory
from trajectories.selection_config import NearDuplicateConfig, SelectionConfig
from trajectories.selection_shingles import (
    NUM_KEYS,
    Sketch,
    code_tokens,
    jaccard,
    make_sketch,
    ngram_hashes,
    tokens_of,
)

SAME_CONVERSATION = "the same conversation as an earlier attempt"
NEARLY_SAME_PASS = "its pass is nearly that of a better attempt"
NEARLY_SAME_CONVERSATION = "its conversation is nearly that of a better attempt"


@dataclass(frozen=True)
class TrajectoryDigest:
    """What the choice needs to know of one trajectory."""

    task_id: str
    teacher: str
    """Its short name (ledger.teacher_of)."""
    refusal: str | None
    """Why it is not good by itself; then the rest counts for nothing."""
    as_score: float = 0.0
    as_covered: float = 0.0
    fingerprint: bytes = b""
    """Of the task and the conversation."""
    code: Sketch | None = None
    """Of the pass that was best; None: not compared, or too short to tell."""
    conversation: Sketch | None = None
    """Of what the policy wrote."""


@dataclass
class Choice:
    """Which of a list of digests are kept."""

    kept: list[int] = field(default_factory=list)
    """Indices: by task in order of first appearance, then the best first."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reason -> number of trajectories."""


def digest_trajectory(
    trajectory: Trajectory,
    messages: Sequence[Message],
    scores: tuple[float, float],
    config: SelectionConfig,
) -> TrajectoryDigest:
    """Of a good trajectory. messages: as cut for the student. scores: AS and covered AS, by which it is chosen."""
    near = config.near_duplicates
    code = conversation = None
    if near is not None and near.code_threshold is not None:
        code = _sketch(code_tokens(trajectory.best_files or {}), near)
    if near is not None and near.conversation_threshold is not None:
        conversation = _sketch(tokens_of("\n".join(map(_written_text, messages))), near)
    return TrajectoryDigest(
        trajectory.task_id,
        teacher_of(trajectory.policy),
        None,
        as_score=scores[0],
        as_covered=scores[1],
        fingerprint=_digest("\n".join(conversation_fingerprint(trajectory.task_hash, messages))),
        code=code,
        conversation=conversation,
    )


def choose(digests: Sequence[TrajectoryDigest], config: SelectionConfig) -> Choice:
    """Keep or refuse each, with a reason. The order decides between equals.

    First the refusals that each has by itself, then equal conversations, near duplicates, the best of each task, and
    last the teachers' quotas.
    """
    choice = Choice()
    by_task: dict[str, list[int]] = defaultdict(list)
    seen: set[bytes] = set()
    for index, digest in enumerate(digests):
        if digest.refusal is not None:
            choice.refused[digest.refusal] += 1
        elif config.drop_duplicates and digest.fingerprint in seen:
            choice.refused[SAME_CONVERSATION] += 1
        else:
            seen.add(digest.fingerprint)
            by_task[digest.task_id].append(index)

    def better_first(index: int) -> tuple[float, float, int]:
        return -digests[index].as_covered, -digests[index].as_score, index

    for members in by_task.values():
        members.sort(key=better_first)
    near = _near_duplicates(digests, sorted((i for m in by_task.values() for i in m), key=better_first), config)
    choice.refused.update(near.values())
    ranked: list[list[int]] = []
    for members in by_task.values():
        left = [index for index in members if index not in near]
        ranked.append(left[: config.best_of])
        if num_dropped := len(left) - len(ranked[-1]):
            choice.refused[f"not among the best {config.best_of} of its task"] += num_dropped
    over = _over_quota(digests, ranked, config)
    for index in over:
        choice.refused[f"over the quota of {digests[index].teacher}"] += 1
    choice.kept = [index for members in ranked for index in members if index not in over]
    return choice


def conversation_fingerprint(task_hash: str, messages: Iterable[Message]) -> tuple[str, str]:
    """What makes two attempts one example: the task, and the text of what a student would see."""
    return task_hash, "\n".join(_fingerprint(message) for message in messages)


class _Kept:
    """Sketches of what is kept so far, found by their smallest hashes."""

    def __init__(self, threshold: float, *, by_task: bool) -> None:
        self._threshold = threshold
        self._by_task = by_task
        self._holders: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._sketches: list[Sketch] = []

    def holds_like(self, sketch: Sketch, task_id: str) -> bool:
        common: Counter[int] = Counter()
        for key in self._keys(sketch, task_id):
            common.update(self._holders.get(key, ()))
        # two sets that are so much alike have about that share of their smallest hashes in common; half of it is
        # asked for, so that chance misses none
        least = max(1.0, 0.5 * self._threshold * min(NUM_KEYS, len(sketch.hashes)))
        likely = (number for number, count in common.most_common() if count >= least)
        return any(jaccard(sketch, self._sketches[number]) >= self._threshold for number in likely)

    def add(self, sketch: Sketch, task_id: str) -> None:
        for key in self._keys(sketch, task_id):
            self._holders[key].append(len(self._sketches))
        self._sketches.append(sketch)

    def _keys(self, sketch: Sketch, task_id: str) -> list[tuple[str, int]]:
        scope = task_id if self._by_task else ""
        return [(scope, value) for value in sketch.smallest]


def _near_duplicates(
    digests: Sequence[TrajectoryDigest], better_first: Sequence[int], config: SelectionConfig
) -> dict[int, str]:
    """Index -> reason of what is nearly the same as something better that stays."""
    near = config.near_duplicates
    if near is None:
        return {}
    is_by_task = near.scope == "task"
    codes = _Kept(near.code_threshold or 1.0, by_task=is_by_task)
    conversations = _Kept(near.conversation_threshold or 1.0, by_task=is_by_task)
    found: dict[int, str] = {}
    for index in better_first:
        digest = digests[index]
        if digest.code is not None and codes.holds_like(digest.code, digest.task_id):
            found[index] = NEARLY_SAME_PASS
        elif digest.conversation is not None and conversations.holds_like(digest.conversation, digest.task_id):
            found[index] = NEARLY_SAME_CONVERSATION
        else:
            for kept, sketch in ((codes, digest.code), (conversations, digest.conversation)):
                if sketch is not None:
                    kept.add(sketch, digest.task_id)
    return found


def _over_quota(
    digests: Sequence[TrajectoryDigest], ranked: Sequence[Sequence[int]], config: SelectionConfig
) -> set[int]:
    """What a teacher gave beyond its quota. Every task's best goes first, then every second best: tasks stay many."""
    if not config.teacher_quotas and config.max_per_teacher is None:
        return set()
    order = [(rank, index) for members in ranked for rank, index in enumerate(members)]
    order.sort(key=lambda item: (item[0], -digests[item[1]].as_covered, -digests[item[1]].as_score, item[1]))
    num_taken: Counter[str] = Counter()
    over: set[int] = set()
    for _, index in order:
        teacher = digests[index].teacher
        quota = config.teacher_quotas.get(teacher, config.max_per_teacher)
        if quota is not None and num_taken[teacher] >= quota:
            over.add(index)
        else:
            num_taken[teacher] += 1
    return over


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _sketch(tokens: Sequence[str], near: NearDuplicateConfig) -> Sketch | None:
    hashes = ngram_hashes(tokens, near.ngram)
    return make_sketch(hashes, near.sketch_size) if len(hashes) >= near.min_ngrams else None


def _written_text(message: Message) -> str:
    """What the policy wrote of a message; what the environment wrote is alike in all attempts at a task."""
    if message.role != "assistant":
        return ""
    # arguments are JSON text: their line breaks are two characters, which would stick to the word after them
    calls = (f"{call.name} {call.arguments}".replace("\\n", "\n") for call in message.tool_calls)
    return "\n".join([message.reasoning or "", message.content, *calls])


def _fingerprint(message: Message) -> str:
    """What a student would see of a message; call ids, usage and verdict figures in tool results aside."""
    if message.role == "tool":
        return "tool"
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return repr((message.role, message.content, message.reasoning, calls))
