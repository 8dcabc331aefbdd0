"""Turns that show no reasoning: what the configuration does about them; and reasoning that came inside the text.

A student of a reasoning teacher should learn to think before it acts. Teachers hide their reasoning, or skip it on easy
turns; which of those turns train, and on what, is decided here and marked in the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from eval_harness.errors import UserError
from trajectories.policy import PolicyError
from trajectories.record import Message, Usage

logger = logging.getLogger(__name__)

MissingReasoning = Literal["empty", "dropped", "summarised"]

_THINK_BEGIN, _THINK_END = "<think>", "</think>"
_MAX_CALL_CHARS = 2_000
"""Of a call's arguments in the question for a rationale: it needs the gist of a file, not all of it."""
_QUESTION = """\
Before the conversation goes on: this is your next turn, already decided.

{turn}

In two to five sentences, in the first person and the present tense, write the thought that leads to this turn: what \
the last result shows, and why this is the step to take. Write the thought alone; call no tool."""


def split_thinking(content: str) -> tuple[str | None, str]:
    """Reasoning and text of an answer whose server has no reasoning parser (`<think>...</think>` in the text).

    A template may open the block itself, so that an answer has the closing tag alone. Not by a regular expression: one
    takes time in the square of the blanks that a model writes when it goes astray.
    """
    thought, end, text = content.partition(_THINK_END)
    if not end:
        return None, content
    return thought.lstrip().removeprefix(_THINK_BEGIN).strip() or None, text.lstrip()


def settle_reasoning(answer: Message, policy: MissingReasoning, ask: Callable[[str], Message]) -> Message:
    """The answer, marked with what was done about missing reasoning; unchanged if it shows some.

    ask: puts a question to the same teacher after the conversation so far; its usage is added to the answer's. If it
    fails, the turn stays empty and says so: the answer itself was paid for. So also where the run has to stop (a key
    that was withdrawn): the next answer that is asked for says so again.
    """
    if answer.reasoning and answer.reasoning.strip():
        return answer
    answer = answer.model_copy(update={"reasoning": None, "reasoning_policy": policy})
    if policy != "summarised":
        return answer
    try:
        rationale = ask(_QUESTION.format(turn=_render(answer)))
    except (PolicyError, UserError) as error:
        logger.warning("no rationale for a turn without reasoning: %s", error)
        usage = add_usage(answer.usage or Usage(), getattr(error, "lost", Usage()))
        return answer.model_copy(update={"reasoning_policy": "empty", "usage": usage})
    usage = add_usage(answer.usage or Usage(), rationale.usage or Usage())
    text = rationale.content.strip()
    if not text:
        return answer.model_copy(update={"reasoning_policy": "empty", "usage": usage})
    return answer.model_copy(update={"reasoning": text, "usage": usage})


def add_usage(one: Usage, other: Usage) -> Usage:
    """Both together."""
    return Usage(**{name: round(getattr(one, name) + getattr(other, name), 9) for name in Usage.model_fields})


def _render(answer: Message) -> str:
    parts = [answer.content] if answer.content.strip() else []
    for call in answer.tool_calls:
        arguments = call.arguments
        if len(arguments) > _MAX_CALL_CHARS:
            arguments = arguments[:_MAX_CALL_CHARS] + f"... ({len(arguments) - _MAX_CALL_CHARS} more characters)"
        parts.append(f"call {call.name}: {arguments}")
    return "\n\n".join(parts) or "(an empty answer, which ends the attempt)"
