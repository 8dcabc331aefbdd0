"""A trajectory as prompt and turns: which reply answers which call, which verdict fell where, what changed between two.

Plain data for the HTML page and for the terminal. Any order of messages is shown; none is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eval_harness.verdict import Violation
from trajectories.pages.tool_calls import CallView, read_call
from trajectories.record import EvaluationRecord, Message, ToolCall, Trajectory

_LINES_AROUND = 2


@dataclass(frozen=True)
class Answered:
    """One tool call and the reply to it."""

    call: ToolCall
    view: CallView
    reply: Message | None


@dataclass(frozen=True)
class FileChange:
    """One file that differs between two candidates; None where there was no such file."""

    path: str
    before: str | None
    after: str | None

    @property
    def word(self) -> str:
        return "new" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class Excerpt:
    """Lines around a violation, from the file that was judged."""

    path: str
    first_line: int
    line: int
    text: str


@dataclass(frozen=True)
class Evaluated:
    """One evaluation in its place."""

    number: int
    """From 1."""
    record: EvaluationRecord
    changes: list[FileChange]
    """Against the evaluation before."""
    num_unchanged: int
    is_best: bool


@dataclass
class Turn:
    """One assistant message and what came back."""

    number: int | None
    """None for messages outside any turn that follow the first one."""
    answers: list[Message] = field(default_factory=list)
    """Assistant messages; more than one only from agents with several."""
    calls: list[Answered] = field(default_factory=list)
    others: list[Message] = field(default_factory=list)
    """Replies to no call of the turn."""
    evaluations: list[Evaluated] = field(default_factory=list)


def split_conversation(trajectory: Trajectory) -> tuple[list[Message], list[Turn]]:
    """The messages before the first turn, and the turns in order."""
    messages = trajectory.messages
    first = next((index for index, message in enumerate(messages) if message.role == "assistant"), len(messages))
    turns: list[Turn] = []
    for message in messages[first:]:
        # a search's request opens its turn; in a conversation a user message belongs to the answer before it
        opens = message.role in ("assistant", "user") and message.turn is not None and bool(turns)
        if not turns or (opens and message.turn != turns[-1].number):
            turns.append(Turn(message.turn))
        _add(turns[-1], message)
    by_turn: dict[int | None, Turn] = {}
    for turn in turns:
        by_turn.setdefault(turn.number, turn)
    for evaluated in evaluations_of(trajectory):
        turn_number = evaluated.record.turn
        if turn_number not in by_turn:
            by_turn[turn_number] = Turn(turn_number)
            turns.append(by_turn[turn_number])
        by_turn[turn_number].evaluations.append(evaluated)
    return messages[:first], turns


def _add(turn: Turn, message: Message) -> None:
    if message.role == "assistant":
        turn.answers.append(message)
        turn.calls += [Answered(call, read_call(call), None) for call in message.tool_calls]
        return
    for index, answered in enumerate(turn.calls):
        if answered.reply is None and message.role == "tool" and answered.call.id == message.tool_call_id:
            turn.calls[index] = Answered(answered.call, answered.view, message)
            return
    turn.others.append(message)


def evaluations_of(trajectory: Trajectory) -> Iterator[Evaluated]:
    """Each evaluation with what its candidate changed."""
    earlier: Mapping[str, str] = {}
    for index, record in enumerate(trajectory.evaluations):
        changes = file_changes(earlier, record.files)
        num_unchanged = len(set(earlier) | set(record.files)) - len(changes)
        yield Evaluated(index + 1, record, changes, num_unchanged, index == trajectory.best_evaluation)
        earlier = record.files


def file_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[FileChange]:
    """The files that differ, by path."""
    return [
        FileChange(path, before.get(path), after.get(path))
        for path in sorted(set(before) | set(after))
        if before.get(path) != after.get(path)
    ]


def excerpt_of(violation: Violation, files: Mapping[str, str]) -> Excerpt | None:
    """The lines around a violation; None where it names no line of a file that was judged."""
    text = files.get(violation.file or "")
    if text is None or violation.line is None:
        return None
    lines = text.split("\n")
    if not 1 <= violation.line <= len(lines):
        return None
    first = max(1, violation.line - _LINES_AROUND)
    last = min(len(lines), violation.line + _LINES_AROUND)
    return Excerpt(violation.file or "", first, violation.line, "\n".join(lines[first - 1 : last]))
