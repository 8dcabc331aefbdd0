"""An attempt at a terminal: the same conversation as the HTML page, as rich renderables or plain text.

What a model wrote never reaches the terminal as it is: control characters are shown, not obeyed, and nothing is read as
rich's markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from eval_harness.errors import UserError
from eval_harness.verdict_text import render_verdict, score_line
from trajectories.pages.attempt_entry import AttemptEntry
from trajectories.pages.code import diff_lines, language_of, visible
from trajectories.pages.conversation import Answered, Evaluated, FileChange, Turn, excerpt_of, split_conversation
from trajectories.pages.tool_calls import Block
from trajectories.record import Message, Trajectory

CLIPPED_CHARS = 1_500
"""Of each text, unless it is shown in full."""
PLAIN_WIDTH = 120
MAX_WHOLE_ID = 40
"""Attempts' ids up to this length are whole in a table."""
_DIFF_STYLES = {"add": ("+", "green"), "remove": ("-", "red"), "same": (" ", ""), "gap": ("", "dim")}


def make_console(file: IO[str], *, color: str = "auto") -> Console:
    """A console for file; color: auto (a terminal has them), always (for `less -R`), never."""
    is_terminal = color == "always" or (color == "auto" and file.isatty())
    return _Console(
        file=file,
        force_terminal=is_terminal,
        no_color=True if color == "never" or not is_terminal else None,
        width=None if file.isatty() else PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,  # long lines of code stay whole: a pager or the terminal breaks them
    )


class _Console(Console):
    """Leaves a pipe that `head` has closed to the command, which knows that it is no error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class AttemptText:
    """One attempt as renderables, for a console from make_console."""

    def __init__(self, trajectory: Trajectory, *, full: bool = False, color: bool = True) -> None:
        self.trajectory = trajectory
        self.full = full
        self.color = color

    def whole(self) -> Iterator[RenderableType]:
        """Head, prompt, turns, how it ended, the final verdict."""
        yield self._head()
        prompt, turns = split_conversation(self.trajectory)
        for message in prompt:
            yield Text(visible(f"\n--- {message.role}"), style="bold")
            yield self._text(message.content)
        for turn in turns:
            yield from self._turn(turn)
        yield from self._end()

    def turn(self, number: int) -> Iterator[RenderableType]:
        """Head and one turn. Raises UserError naming the turns there are."""
        turns = [turn for turn in split_conversation(self.trajectory)[1] if turn.number == number]
        if not turns:
            known = [turn.number for turn in split_conversation(self.trajectory)[1] if turn.number is not None]
            span = f"1 to {max(known)}" if known else "none"
            raise UserError(f"--turn {number}: {self.trajectory.trajectory_id} has turns {span}")
        yield self._head()
        for turn in turns:
            yield from self._turn(turn)

    def _head(self) -> RenderableType:
        attempt = self.trajectory
        usage = attempt.usage
        teacher = attempt.policy.get("teacher") or attempt.policy.get("model") or "?"
        kind = attempt.policy.get("kind", "?")
        return Group(
            Text(visible(f"trajectory {attempt.trajectory_id}"), style="bold"),
            Text(visible(f"{kind} {teacher}, agent {attempt.agent}, protocol {attempt.protocol} on {attempt.device}")),
            Text(
                f"{attempt.num_turns} turns, {len(attempt.evaluations)} evaluations, {usage.input_tokens} tokens read, "
                f"{usage.output_tokens} written, {usage.cost_usd:.4f} USD, {attempt.duration_s:.0f} s"
            ),
        )

    def _turn(self, turn: Turn) -> Iterator[RenderableType]:
        name = "outside the turns" if turn.number is None else f"turn {turn.number}"
        yield Text(f"\n--- {name}{_usage_text(turn.answers)}", style="bold")
        for answer in turn.answers:
            if answer.reasoning:
                marked = f", {answer.reasoning_policy}" if answer.reasoning_policy else ""
                yield Text(f"(reasoning{marked})", style="magenta")
                yield self._text(answer.reasoning, style="dim")
            if answer.content:
                yield self._text(answer.content)
            if answer.finish_reason == "length":
                yield Text("(cut off at the token limit)", style="yellow")
        for answered in turn.calls:
            yield from self._call(answered)
        for message in turn.others:
            yield Text(visible(f"<- {message.role}"), style="cyan")
            yield self._text(message.content)
        for evaluated in turn.evaluations:
            yield from self._evaluated(evaluated)

    def _call(self, answered: Answered) -> Iterator[RenderableType]:
        yield Text(visible(f"-> {answered.call.name}: {answered.view.title}"), style="bold cyan")
        for block in answered.view.blocks:
            yield self._block(block)
        if answered.reply is not None:
            yield Text("<-", style="cyan")
            yield self._text(answered.reply.content)

    def _block(self, block: Block) -> RenderableType:
        if block.before is not None:
            return self._diff(block.before, block.text)
        if block.label:
            return Text.assemble((visible(f"{block.label}: "), "dim"), visible(self._clipped(block.text)))
        return self._code(block.text, block.path)

    def _evaluated(self, evaluated: Evaluated) -> Iterator[RenderableType]:
        verdict, files = evaluated.record.verdict, evaluated.record.files
        best = ", the best" if evaluated.is_best else ""
        is_good = verdict.num_correct == len(verdict.graphs)
        line = f"evaluation {evaluated.number}{best}: {score_line(verdict)}"
        yield Text(line, style="bold green" if is_good else "bold red")
        for violation in {str(each): each for each in verdict.all_violations}.values():
            where = f"{violation.file or ''}:{violation.line or ''}".strip(":")
            yield Text(visible(f"  [{violation.rule}] {where} {violation.message}"), style="red")
            if excerpt := excerpt_of(violation, files):
                lines = excerpt.text.split("\n")
                for number, text in enumerate(lines, start=excerpt.first_line):
                    yield Text(visible(f"  {'>' if number == excerpt.line else ' '} {number:4} {text}"))
        if evaluated.number > 1:
            for change in evaluated.changes:
                yield from self._change(change)

    def _change(self, change: FileChange) -> Iterator[RenderableType]:
        yield Text(visible(f"  {change.path} {change.word} since the evaluation before"), style="dim")
        if change.after is not None and change.before is not None:
            yield self._diff(change.before, change.after)

    def _end(self) -> Iterator[RenderableType]:
        attempt = self.trajectory
        yield Text("\n--- end", style="bold")
        yield Text(f"stopped: {attempt.stop_reason or 'still running'} after {attempt.num_turns} turns")
        if attempt.error:
            yield Text(visible(f"error: {attempt.error}"), style="red")
        for record in attempt.evaluations:
            yield Text(f"turn {record.turn}: {score_line(record.verdict)}")
        if attempt.final_verdict is not None:
            yield Text("")
            yield Text("final verdict", style="bold")
            yield Text(visible(render_verdict(attempt.final_verdict)))

    def _text(self, text: str, *, style: str = "") -> Text:
        return Text(visible(self._clipped(text)), style=style)

    def _code(self, text: str, path: str) -> RenderableType:
        text = visible(self._clipped(text))
        language = language_of(path)
        if not self.color or language is None:
            return Text(text)
        return Syntax("", language, theme="ansi_dark", background_color="default").highlight(text.rstrip("\n"))

    def _diff(self, before: str, after: str) -> RenderableType:
        lines = diff_lines(before, after)
        text = Text()
        for line in lines:
            sign, style = _DIFF_STYLES[line.kind]
            text.append(visible(f"{sign}{line.text}\n"), style=style)
        text.rstrip()
        return text if lines else Text("(no change)", style="dim")

    def _clipped(self, text: str) -> str:
        if self.full or len(text) <= CLIPPED_CHARS:
            return text
        return f"{text[:CLIPPED_CHARS]}\n[{len(text) - CLIPPED_CHARS} more characters; --full shows them]"


def attempts_table(rows: Sequence[AttemptEntry]) -> Table:
    """A collection's attempts, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    # columns that may wrap are those that give way; their cells do not wrap. An id is there to be copied
    table.add_column("attempt", no_wrap=max((len(row.attempt_id) for row in rows), default=0) <= MAX_WHOLE_ID)
    table.add_column("teacher")
    table.add_column("outcome", no_wrap=True, overflow="ellipsis")
    for name in ("AS", "covered", "turns", "USD"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stopped by", no_wrap=True)
    table.add_column("selection")
    for row in rows:
        scores = ("-" if score is None else f"{score:.3f}" for score in (row.as_score, row.as_covered))
        kept = _one_line("kept", style="green") if row.kept else _one_line(row.why)
        cells = [row.outcome, *scores, str(row.num_turns), f"{row.cost_usd:.4f}", row.stop]
        table.add_row(_one_line(row.attempt_id), _one_line(row.teacher), *map(Text, cells), kept)
    return table


def _one_line(text: str, *, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _usage_text(answers: Sequence[Message]) -> str:
    parts = []
    for usage in (answer.usage for answer in answers if answer.usage is not None):
        if usage.input_tokens or usage.output_tokens:
            parts.append(f"{usage.input_tokens} tokens read, {usage.output_tokens} written, {usage.latency_s:.1f} s")
    return f" ({'; '.join(parts)})" if parts else ""
