"""Conversations as tokens: the ids with the loss mask of the assistant's turns, and a model's text back to a Message.

A student is trained on what the template puts between its generation marks (reasoning, text, tool calls, end of turn)
and on nothing that the user, the system, a tool or a turn's prompt wrote. Text is tokenised piece by piece at those
marks, so no token lies across the place where a server's prompt ends and the model begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.chat_templates import find_training_template, has_generation_marks, load_template, render
from trajectories.record import Message, ToolCall

if TYPE_CHECKING:  # importing transformers takes seconds; parsing needs none of it
    from transformers import PreTrainedTokenizerBase

__all__ = [
    "IGNORED_LABEL",
    "MALFORMED_CALL_NAME",
    "TokenizedConversation",
    "has_generation_marks",
    "load_template",
    "parse_assistant_text",
    "tokenize_conversation",
    "tokenize_prompt",
]

END_OF_TURN = "<|im_end|>"
MALFORMED_CALL_NAME = "malformed_tool_call"
"""Name of a call whose JSON could not be read: no tool has it, so the environment answers what was wrong."""
IGNORED_LABEL = -100

_THINK = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.DOTALL)
_OPEN_THINK = re.compile(r"\A(.*?)\n?</think>\n\n", re.DOTALL)
_CALL_OPEN, _CALL_CLOSE = "<tool_call>", "</tool_call>"
_CALL_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
_WHITESPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class TokenizedConversation:
    """A conversation's token ids and, of the same length, whether each trains."""

    input_ids: list[int]
    loss_mask: list[int]
    turns: list[tuple[int, int]]
    """Token span of what each assistant message generated, half open, those that train nothing too."""

    @property
    def labels(self) -> list[int]:
        """The ids where they train, -100 elsewhere (what a causal LM loss takes)."""
        pairs = zip(self.input_ids, self.loss_mask, strict=True)
        return [token if trains else IGNORED_LABEL for token, trains in pairs]

    @property
    def num_trained(self) -> int:
        return sum(self.loss_mask)

    def cut_after_turn(self, max_length: int) -> TokenizedConversation | None:
        """The conversation up to the end of the last whole turn within max_length tokens; None if there is none."""
        kept = [turn for turn in self.turns if turn[1] <= max_length]
        if not kept:
            return None
        end = kept[-1][1]
        return TokenizedConversation(self.input_ids[:end], self.loss_mask[:end], kept)


def tokenize_conversation(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    chat_template: str | None = None,
    untrained_turns: Sequence[int] = (),
) -> TokenizedConversation:
    """Render OpenAI-form messages (tool arguments as an object or as JSON text) and mark the tokens that train.

    chat_template: a marked one; None: the one that belongs to the tokenizer (find_training_template).
    untrained_turns: assistant messages, counted from 0, that are context alone.
    Raises UserError: a template without generation marks, or one that leaves out a part of the conversation.
    """
    template = chat_template or find_training_template(tokenizer)
    if not has_generation_marks(template):
        raise UserError(
            f"{tokenizer.name_or_path}: its chat template has no {{% generation %}} marks, so the assistant's tokens "
            "cannot be told apart; set student.chat_template to a template that has them"
        )
    text, spans = render(template, messages, tools, special_tokens=tokenizer.special_tokens_map)
    num_turns = sum(message["role"] == "assistant" for message in messages)
    if len(spans) != num_turns:
        raise UserError(
            f"{tokenizer.name_or_path}: its chat template marks {len(spans)} turns of {num_turns}, so a turn cannot be "
            "told from the next; mark each assistant message's own text"
        )
    check_nothing_lost(text, spans, messages)
    input_ids: list[int] = []
    loss_mask: list[int] = []
    turns: list[tuple[int, int]] = []
    for ids, turn in _tokenize_pieces(tokenizer, text, spans):
        trains = turn is not None and turn not in untrained_turns
        if turn is not None:
            turns.append((len(input_ids), len(input_ids) + len(ids)))
        input_ids += ids
        loss_mask += [int(trains)] * len(ids)
    return TokenizedConversation(input_ids, loss_mask, turns)


def _tokenize_pieces(
    tokenizer: PreTrainedTokenizerBase, text: str, spans: Sequence[tuple[int, int]]
) -> list[tuple[list[int], int | None]]:
    """Ids of each piece of the text, and which turn it is (None: nobody's). Raises UserError for a tokenizer that
    writes a space before whatever it is given: its pieces would not join."""
    pieces: list[tuple[str, int | None]] = []
    position = 0
    for turn, (start, end) in enumerate(spans):
        pieces += [(text[position:start], None), (text[start:end], turn)]
        position = end
    pieces.append((text[position:], None))
    if tokenizer.tokenize("x", add_special_tokens=False)[0].startswith("\u2581"):  # SentencePiece's mark of a space
        raise UserError(
            f"{tokenizer.name_or_path}: its tokenizer adds to the start of a text, so turns cannot be told apart to "
            "the token; use a model with a byte-level tokenizer"
        )
    encoded = tokenizer([piece for piece, _ in pieces], add_special_tokens=False)["input_ids"]
    return [(ids, turn) for ids, (_, turn) in zip(encoded, pieces, strict=True)]


def check_nothing_lost(text: str, spans: Sequence[tuple[int, int]], messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if a part of a message is not in the rendered text; of an assistant message, in its own span.

    Templates leave out silently what their model was not made for: reasoning, tool calls, text beside a call.
    """
    turns = iter(spans)
    for index, message in enumerate(messages):
        start, end = next(turns) if message["role"] == "assistant" else (0, len(text))
        for what, part in _parts(message):
            # Llama writes a tool's text as a JSON string
            if (
                text.find(part, start, end) < 0
                and text.find(json.dumps(part, ensure_ascii=False)[1:-1], start, end) < 0
            ):
                raise UserError(
                    f"the chat template leaves out the {what} of message {index} ({message['role']}): "
                    f"{part[:60]!r}; set student.chat_template to one that writes it (such as qwen3_style)"
                    + (", or student.reasoning: drop" if what == "reasoning" else "")
                )


def _parts(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What must be found again: (what it is, its text)."""
    parts = [("text", str(message.get("content") or "").strip())]
    parts.append(("reasoning", str(message.get("reasoning_content") or "").strip()))
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        arguments = function["arguments"]
        parts.append(("tool call", function["name"]))
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        parts.append(("tool call's arguments", written))
    return [(what, part) for what, part in parts if part]


def tokenize_prompt(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    chat_template: str | None = None,
) -> list[int]:
    """Token ids of the conversation so far, ending where the assistant's next turn begins."""
    output = tokenizer.apply_chat_template(
        [message.to_openai() for message in messages],
        tools=list(tools) if tools else None,
        chat_template=chat_template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return list(output["input_ids"])


def parse_assistant_text(text: str, *, call_id_prefix: str = "call", reasoning_is_open: bool = False) -> Message:
    """What a model wrote in one turn, as a Message.

    reasoning_is_open: the turn's prompt opened the reasoning block already (chat_templates.opens_reasoning).
    Argument text is kept character by character. A call that is not JSON or has no name becomes a call with what was
    written as its arguments, which the environment reports as malformed; nothing is dropped and nothing raises.
    """
    text = text.removesuffix(END_OF_TURN)
    reasoning = None
    think = (_OPEN_THINK if reasoning_is_open else _THINK).match(text)
    if think:
        reasoning, text = think.group(1) or None, text[think.end() :]
    outside: list[str] = []
    calls: list[ToolCall] = []
    position = 0
    while (start := text.find(_CALL_OPEN, position)) >= 0:
        outside.append(text[position:start].removesuffix("\n"))
        body, position = _call_body(text, start + len(_CALL_OPEN))
        calls.append(_parse_call(body, f"{call_id_prefix}_{len(calls)}"))
    outside.append(text[position:])
    return Message(role="assistant", content="".join(outside), reasoning=reasoning, tool_calls=calls)


def _call_body(text: str, start: int) -> tuple[str, int]:
    """The text of the call that starts here and where the text after its closing tag begins.

    The JSON object says where it ends: file text inside it may hold the closing tag itself.
    """
    match = _WHITESPACE.match(text, start)
    first = match.end() if match else start
    try:
        _, end = json.JSONDecoder().raw_decode(text, first)
    except (json.JSONDecodeError, RecursionError):
        end = start
    close = text.find(_CALL_CLOSE, end)
    if end > start and (close < 0 or text[end:close].strip()):
        return text[first:end], end
    body_end = close if close >= 0 else len(text)
    return text[start:body_end].strip("\n"), body_end + len(_CALL_CLOSE)


def _parse_call(body: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(body)
    except (json.JSONDecodeError, RecursionError):
        head = _CALL_HEAD.match(body)
        if head is None:
            return ToolCall(id=call_id, name=MALFORMED_CALL_NAME, arguments=body)
        # the tool is known and its arguments are not: the environment can then say what is wrong with them
        return ToolCall(id=call_id, name=json.loads(head.group(1)), arguments=body[head.end() :].removesuffix("}"))
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or not name:
        return ToolCall(id=call_id, name=MALFORMED_CALL_NAME, arguments=body)
    return ToolCall(id=call_id, name=name, arguments=_arguments_text(call, body))


def _arguments_text(call: Mapping[str, Any], body: str) -> str:
    """The arguments as they were written, where they stand last in the object; else written anew."""
    head = _CALL_HEAD.match(body)
    if head and set(call) == {"name", "arguments"}:
        _, end = json.JSONDecoder().raw_decode(body, head.end())
        if body[end:].strip() == "}":
            return body[head.end() : end]
    return json.dumps(call.get("arguments", {}), ensure_ascii=False)
