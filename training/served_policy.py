"""ServedStudentPolicy: the vllm policy for students, so that a served one is judged as one in this process.

A server refuses a request whose prompt and answer limit together exceed the context, however short the answer would be:
an answer gets the room that is left. And a server's parser leaves a call that it cannot read in the text, which would
end the attempt as submitted: such a call is read here, and answered by the environment as malformed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from training.chat_tokens import parse_assistant_text
from trajectories.policies.vllm import VLLMPolicy
from trajectories.policy import ContextLimitError
from trajectories.record import Message

CALL_OPEN = "<tool_call>"
MIN_ROOM = 32
"""Tokens; an answer with less could hold no call, and the attempt ends."""
_CONTEXT = re.compile(r"maximum (?:context|model) length (?:is|of) (\d+)")
_INPUT = re.compile(r"(?:has|contains)(?: at least)? (\d+)(?: input)? tokens")


class ServedStudentPolicy(VLLMPolicy):
    """One conversation with a served student."""

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The next turn. Raises ContextLimitError if the conversation leaves no room for one."""
        while True:
            try:
                answer = super().answer(messages, tools)
                return with_unread_calls(answer, call_id_prefix=f"call_{len(messages)}")
            except ContextLimitError as error:
                room = room_left(str(error), self._settings.max_output_tokens)
                if room is None:
                    raise
                # for the turns after this one too: a conversation only grows
                self._settings = self._settings.model_copy(update={"max_output_tokens": room})


def with_unread_calls(answer: Message, *, call_id_prefix: str) -> Message:
    """The answer, with calls that a server's parser left in its text. One that has calls is left as it is."""
    if answer.tool_calls or CALL_OPEN not in answer.content:
        return answer
    read = parse_assistant_text(answer.content, call_id_prefix=call_id_prefix)
    return answer.model_copy(update={"content": read.content, "tool_calls": read.tool_calls})


def room_left(refusal: str, limit: int | None) -> int | None:
    """Tokens that an answer may have after a refusal, fewer than limit; None: there is no room, or nothing to cut.

    By the numbers in vLLM's words; without them half the limit.
    """
    if limit is None:
        return None
    context, sent = _CONTEXT.search(refusal), _INPUT.search(refusal)
    room = int(context[1]) - int(sent[1]) if context and sent else limit // 2
    return room if MIN_ROOM <= room < limit else None
