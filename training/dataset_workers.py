"""The work on records, a few at a time: pass 1 reads each into a digest, pass 2 makes rows of those that are kept.

Both run in processes of their own when there are many records; results come in order, and only so many wait at a time,
so memory does not grow with the collection. Nothing is decided here.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from eval_harness.errors import HarnessError, UserError
from training.contamination import EvalIndex, Findings
from training.dataset_lengths import TokenCounter
from training.dataset_rows import encode_messages, make_row, openai_line, text_fault
from training.teachers import Identity, teacher_identity
from trajectories.record import Trajectory
from trajectories.selection import SelectionConfig, select_one, take
from trajectories.selection_choice import TrajectoryDigest
from trajectories.store import load_trajectory

MANY = 64
"""Records from which on processes of their own are worth starting."""
MAX_WORKERS = 8
_CHUNK = 4
"""Records handed over together."""
_WAITING = 4
"""Chunks under way or waiting, for each process."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RecordDigest:
    """What pass 1 keeps of one record: a few kB."""

    path: Path
    collection: int
    """Index into the configuration's collections."""
    trajectory_id: str
    task_id: str
    task_hash: str
    sha256: str
    """Of the record's bytes."""
    teacher: Identity
    model: str
    """The endpoint's name of the teacher."""
    versions: tuple[tuple[str, str], ...]
    selection: TrajectoryDigest
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class MadeRow:
    """What pass 2 gives for one record."""

    columns: dict[str, Any]
    """Of the row; its `messages` are JSON texts."""
    line: str | None
    """For openai-jsonl."""
    num_bytes: int
    """Of text."""
    num_reasoning: int
    """Turns with reasoning."""


@dataclass(frozen=True)
class Work:
    """What every worker knows. Goes to other processes."""

    selection: SelectionConfig
    index: EvalIndex | None
    tokenizer: str | None = None
    chat_template: str | None = None
    as_openai: bool = False

    @cached_property
    def counter(self) -> TokenCounter | None:
        return None if self.tokenizer is None else TokenCounter(self.tokenizer, self.chat_template)


def digest_record(work: Work, item: tuple[Path, int]) -> RecordDigest:
    """Pass 1. item: the record and the index of its collection. Raises UserError for one that cannot be read."""
    path, collection = item
    trajectory, sha256 = load_record(path)
    digest, findings = take(trajectory, work.selection), Findings()
    if digest.refusal is None:
        chosen = select_one(trajectory, work.selection)
        if fault := text_fault(chosen.messages, trajectory.tools):
            digest = TrajectoryDigest(digest.task_id, digest.teacher, fault)
        elif work.index is not None:
            findings = work.index.look_up(trajectory)
    return RecordDigest(
        path,
        collection,
        trajectory.trajectory_id,
        trajectory.task_id,
        trajectory.task_hash,
        sha256,
        teacher_identity(trajectory.policy),
        str(trajectory.policy.get("model") or ""),
        tuple(sorted(trajectory.versions.items())),
        digest,
        findings,
    )


def make_record_row(work: Work, item: tuple[Path, str]) -> MadeRow:
    """Pass 2. item: the record and the hash it had in pass 1. Raises UserError if it has changed since."""
    path, sha256 = item
    trajectory, now = load_record(path)
    if now != sha256:
        raise UserError(f"{path}: changed while the dataset was being built; build again when nothing writes to it")
    selected = select_one(trajectory, work.selection)
    row = make_row(selected)
    if work.counter is not None:
        row["num_tokens"], row["num_trained_tokens"] = work.counter.count(row)
    texts = encode_messages(row)
    num_reasoning = sum(bool(message.reasoning) for message in selected.messages)
    num_bytes = sum(len(text.encode()) for text in texts) + len(row["tools"].encode())
    line = openai_line(selected) if work.as_openai else None
    return MadeRow(row | {"messages": texts}, line, num_bytes, num_reasoning)


class Workers:
    """Runs digest_record and make_record_row over many items: `with Workers(work, n, num_items) as workers`."""

    def __init__(self, work: Work, num_workers: int | None, num_items: int) -> None:
        cores = min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        self._work = work
        self._num_workers = (num_workers or cores) if num_items >= MANY else 1
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._num_workers > 1:
            # forking would copy whatever threads torch and Arrow have started here
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._num_workers, context, _set_up, (self._work,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Work, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """function(work, item) of each, in order. Raises what the first failing one raised; HarnessError for a lost
        process."""
        if self._pool is None:
            yield from (function(self._work, item) for item in items)
            return
        waiting: deque[Future[list[Result]]] = deque()
        chunks = _chunks(items, _CHUNK)
        try:
            for chunk in islice(chunks, _WAITING * self._num_workers):
                waiting.append(self._pool.submit(_run, function, chunk))
            while waiting:
                results = waiting.popleft().result()
                if chunk := next(chunks, []):
                    waiting.append(self._pool.submit(_run, function, chunk))
                yield from results
        except BrokenProcessPool:
            raise HarnessError(
                "a process that read records was killed (out of memory?); set num_workers=1 and build again"
            ) from None


_state: Work | None = None
"""Of this worker process."""


def _set_up(work: Work) -> None:
    global _state
    _state = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them; the build alone answers it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A build that is killed closes no queue, and its processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process is the pool's"
    parent.join()
    os._exit(1)


def _run(function: Callable[[Work, Item], Result], chunk: Sequence[Item]) -> list[Result]:
    assert _state is not None, "the pool sets up every process"
    return [function(_state, item) for item in chunk]


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def load_record(path: Path) -> tuple[Trajectory, str]:
    """A record and the sha256 of its bytes. Raises UserError for one that cannot be read."""
    trajectory = load_trajectory(path)
    best = trajectory.best_evaluation
    if best is not None and not 0 <= best < len(trajectory.evaluations):
        raise UserError(
            f"{path}: best_evaluation {best} names none of its {len(trajectory.evaluations)} evaluations; "
            "restore the file or remove it to redo the attempt"
        )
    return trajectory, hashlib.sha256(path.read_bytes()).hexdigest()
