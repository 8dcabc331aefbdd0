"""Candidates as data: a row a candidate; what to imitate, and pairs of a better and a worse one, made from them.

    candidates    task, parents, files, verdict, votes: everything that a search (or a conversation) has tried
    sft           the request and the answer of each candidate that is right and no slower than what its request showed
    verifier      what a soft verifier is asked, and the answer that the harness's verdict gives
    preferences   of one task: the best candidate against others, both as the answer to the same plain request

The scores are those of the evaluations that chose: the best of many is a lucky one, and the card says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_harness.verdict import Verdict
from training.dataset_rows import template_message, text_fault
from training.teachers import teacher_licence, teacher_terms
from trajectories.agents.archive import ArchiveEntry, archive_of, is_correct
from trajectories.agents.requests import kind_of, render_request
from trajectories.agents.search_attempt import messages_as_sent
from trajectories.ledger import teacher_of
from trajectories.policies.scripted import call_message
from trajectories.record import Message, Trajectory
from trajectories.tools import FILE_EDITOR
from trajectories.verifiers.labels import label_of
from trajectories.verifiers.prompts import ASPECTS, load_prompt
from trajectories.workspace import PASS_DIR

TEXT_COLUMNS = (
    "task_id", "trajectory_id", "agent", "policy", "teacher", "license", "terms", "device", "protocol", "request_kind",
    "recommendation", "stage", "rejected", "outcome", "files", "verdict", "votes", "profile", "task_hash", "row_hash",
)  # fmt: skip
INTEGER_COLUMNS = ("attempt_index", "candidate", "generation", "turn", "member", "num_graphs", "num_correct_graphs")
FLOAT_COLUMNS = ("as_score", "as_covered")


@dataclass(frozen=True)
class CandidateRecord:
    """One candidate of one attempt."""

    trajectory: Trajectory
    entry: ArchiveEntry
    files: Mapping[str, str]
    verdict: Verdict | None

    @property
    def is_correct(self) -> bool:
        return self.verdict is not None and is_correct(self.verdict)

    @property
    def score(self) -> float:
        """Covered AS; 0 without a verdict."""
        return (self.verdict.as_covered or 0.0) if self.verdict is not None else 0.0

    @property
    def key(self) -> str:
        """Equal for equal files on the same task."""
        text = json.dumps([self.trajectory.task_hash, sorted(self.files.items())])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def candidates_of(trajectory: Trajectory) -> Iterator[CandidateRecord]:
    """Every candidate of a record: a search's archive, or a conversation's evaluations, each from the one before it."""
    entries = archive_of(trajectory)
    if trajectory.is_conversation:
        entries = [
            ArchiveEntry(id=index, turn=record.turn, parents=[index - 1] if index else [], evaluation=index)
            for index, record in enumerate(trajectory.evaluations)
        ]
    for entry in entries:
        if entry.evaluation is None:
            yield CandidateRecord(trajectory, entry, entry.files, None)
        elif 0 <= entry.evaluation < len(trajectory.evaluations):
            record = trajectory.evaluations[entry.evaluation]
            yield CandidateRecord(trajectory, entry, record.files, record.verdict)


def candidate_row(record: CandidateRecord) -> dict[str, Any]:
    """The row of one candidate: columns of text, integers, floats, and its parents."""
    trajectory, entry, verdict = record.trajectory, record.entry, record.verdict
    outcomes = sorted({str(graph.outcome) for graph in verdict.graphs}) if verdict is not None else []
    return {
        **_about(trajectory),
        "request_kind": "" if trajectory.is_conversation else _kind(trajectory, entry.turn),
        "candidate": entry.id,
        "generation": entry.generation,
        "turn": entry.turn,
        "member": entry.member,
        "parents": entry.parents,
        "recommendation": entry.recommendation,
        "stage": entry.stage,
        "rejected": entry.rejected,
        "outcome": ", ".join(outcomes),
        "files": json.dumps(dict(record.files), ensure_ascii=False),
        "verdict": "" if verdict is None else verdict.model_dump_json(),
        "votes": json.dumps(entry.votes),
        "profile": "",
        "protocol": trajectory.protocol if verdict is None else verdict.protocol,
        "as_score": 0.0 if verdict is None else verdict.as_score or 0.0,
        "as_covered": record.score,
        "num_graphs": len(trajectory.graph_hashes),
        "num_correct_graphs": 0 if verdict is None else verdict.num_correct,
        "num_turns": 1,
        "row_hash": record.key,
    }


def imitation(record: CandidateRecord, parents: Sequence[CandidateRecord]) -> list[Message] | None:
    """Request and answer of a candidate worth imitating; None for one that is not, or whose request is not at hand.

    Worth it: right on every graph, and no slower than every candidate that its request showed.
    """
    trajectory = record.trajectory
    if trajectory.is_conversation or not record.is_correct:
        return None
    if any(parent.score > record.score for parent in parents):
        return None
    answer = next(
        (each for each in trajectory.messages if each.role == "assistant" and each.turn == record.entry.turn), None
    )
    if answer is None:
        return None
    messages = [*messages_as_sent(trajectory, record.entry.turn), answer]
    return None if text_fault(messages, trajectory.tools) else messages


def preference_pairs(
    records: Sequence[CandidateRecord], *, margin: float, max_pairs: int
) -> list[tuple[CandidateRecord, CandidateRecord]]:
    """(better, worse) of one task: its best correct candidate, and others spread over what is worse by the margin.

    margin: share of covered AS by which a correct one must be slower; a wrong or rejected one always is worse.
    """
    correct = [record for record in records if record.is_correct]
    if not correct:
        return []
    best = max(correct, key=lambda record: (record.score, record.key))
    worse = [
        record
        for record in records
        if record.files and (not record.is_correct or record.score * (1 + margin) < best.score)
        and record.entry.stage not in ("ranked", "budget", "duplicate")  # of which nothing is known
    ]  # fmt: skip
    worse.sort(key=lambda record: (record.score, record.key), reverse=True)
    count = min(max_pairs, len(worse))
    return [(best, worse[place * len(worse) // count]) for place in range(count)]


def preference_messages(record: CandidateRecord) -> tuple[list[Message], Message]:
    """(prompt, answer): the task with the plainest request of a search, and all files written in one answer."""
    first = [message for message in record.trajectory.messages if message.turn is None]
    task = next((message.content for message in first if message.role == "user"), "")
    request = render_request("translate", failed=None)
    prompt = [message for message in first if message.role == "system"]
    calls = [
        (FILE_EDITOR, {"command": "create", "path": f"{PASS_DIR}/{path}", "file_text": text})
        for path, text in record.files.items()
    ]
    return [*prompt, Message(role="user", content=f"{task}\n\n{request}")], call_message(*calls)


def preference_row(better: CandidateRecord, worse: CandidateRecord) -> dict[str, Any] | None:
    """Columns `prompt`, `chosen`, `rejected` as messages, and where they come from; None where they are no Unicode."""
    prompt, chosen = preference_messages(better)
    _, rejected = preference_messages(worse)
    if text_fault([*prompt, chosen, rejected], better.trajectory.tools):
        return None
    digest = hashlib.sha256(f"{better.key} {worse.key}".encode()).hexdigest()
    return {
        **_about(better.trajectory),
        "prompt": [template_message(message) for message in prompt],
        "chosen": [template_message(chosen)],
        "rejected": [template_message(rejected)],
        "tools": json.dumps(better.trajectory.tools, ensure_ascii=False),
        "as_score": better.verdict.as_score or 0.0 if better.verdict is not None else 0.0,
        "as_covered": better.score,
        "as_covered_rejected": worse.score,
        "outcome_rejected": candidate_row(worse)["outcome"] or worse.entry.stage,
        "num_turns": 1,
        "row_hash": digest,
    }


def conversation_columns(record: CandidateRecord) -> dict[str, Any]:
    """Of a row that holds one question about a judged candidate and its answer."""
    row = candidate_row(record)
    names = (
        "task_id",
        "trajectory_id",
        "policy",
        "teacher",
        "license",
        "terms",
        "agent",
        "device",
        "protocol",
        "task_hash",
    )
    shown = {name: row[name] for name in names}
    shown |= {
        name: row[name] for name in ("attempt_index", "num_graphs", "num_correct_graphs", "as_score", "as_covered")
    }
    return {
        **shown,
        "row_hash": row["row_hash"],
        "stop_reason": str(record.trajectory.stop_reason or ""),
        "cut_reason": f"candidate {record.entry.id}",
        "candidate_hash": record.verdict.candidate_hash if record.verdict is not None else "",
        "num_turns": 1,
    }


def verifier_rows(record: CandidateRecord) -> list[dict[str, Any]]:
    """For each aspect of which the verdict says something: the verifier's question, and the answer it should give."""
    rows: list[dict[str, Any]] = []
    if record.verdict is None:
        return rows
    task = "".join([m.content for m in record.trajectory.messages if m.turn is None and m.role == "user"][:1])
    for aspect in ASPECTS:
        passes = label_of(record.verdict, aspect)
        if passes is None:
            continue
        question = f"{task}\n\n{load_prompt(aspect).filled(record.files)}"
        label = "pass" if passes else "fail"
        messages = [Message(role="user", content=question), Message(role="assistant", content=f"VERDICT: {label}")]
        if text_fault(messages, []):
            continue
        columns = conversation_columns(record)
        digest = hashlib.sha256(f"{columns['row_hash']} {aspect}".encode()).hexdigest()
        rows.append(
            {
                **columns,
                "row_hash": digest,
                "messages": [template_message(message) for message in messages],
                "tools": "[]",
                "aspect": aspect,
                "label": label,
                "num_without_reasoning": 1,
                "untrained_turns": [],
            }
        )
    return rows


def _about(trajectory: Trajectory) -> dict[str, Any]:
    policy = trajectory.policy
    return {
        "task_id": trajectory.task_id,
        "task_hash": trajectory.task_hash,
        "trajectory_id": trajectory.trajectory_id,
        "attempt_index": trajectory.attempt_index,
        "agent": trajectory.agent,
        "policy": str(policy.get("kind", "unknown")),
        "teacher": teacher_of(policy),
        "license": teacher_licence(policy),
        "terms": teacher_terms(policy),
        "device": trajectory.device,
        "protocol": trajectory.protocol,
    }


def _kind(trajectory: Trajectory, turn: int) -> str:
    request = next((m.content for m in trajectory.messages if m.turn == turn and m.role == "user"), "")
    return kind_of(request)
