"""Conversations as tokens: rendering with a chat template, the loss mask of the assistant's tokens, and the way back.

A student is trained on what the template puts between its generation marks (reasoning, text, tool calls, end of turn)
and on nothing that the user, the system or a tool wrote. What it then writes is parsed here into a Message. The
template is Qwen3's form; a served model must use the template it was trained with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from trajectories.record import Message, ToolCall

if TYPE_CHECKING:  # importing transformers takes seconds; parsing needs none of it
    from transformers import PreTrainedTokenizerBase

TEMPLATE_DIR = Path(__file__).parent / "templates"
END_OF_TURN = "<|im_end|>"
MALFORMED_CALL_NAME = "malformed_tool_call"
"""Name of a call whose JSON could not be read: no tool has it, so the environment answers what was wrong."""
IGNORED_LABEL = -100

_THINK = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.DOTALL)
_CALL_OPEN, _CALL_CLOSE = "<tool_call>", "</tool_call>"
_CALL_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
_WHITESPACE = re.compile(r"\s*")
_GENERATION_MARK = re.compile(r"{%-?\s*generation\s*-?%}")


@dataclass(frozen=True)
class TokenizedConversation:
    """A conversation's token ids and, of the same length, whether each trains."""

    input_ids: list[int]
    loss_mask: list[int]

    @property
    def labels(self) -> list[int]:
        """The ids where they train, -100 elsewhere (what a causal LM loss takes)."""
        pairs = zip(self.input_ids, self.loss_mask, strict=True)
        return [token if trains else IGNORED_LABEL for token, trains in pairs]

    @property
    def num_trained(self) -> int:
        return sum(self.loss_mask)


def load_template(name: str = "qwen3_style") -> str:
    """The text of a chat template kept in training/templates."""
    path = TEMPLATE_DIR / f"{name}.jinja"
    if not path.is_file():
        known = ", ".join(sorted(template.stem for template in TEMPLATE_DIR.glob("*.jinja")))
        raise UserError(f"chat template {name!r}: unknown; choose one of {known}")
    # the file's last line break is the editor's, not the conversation's
    return path.read_text(encoding="utf-8").removesuffix("\n")


def has_generation_marks(template: str | None) -> bool:
    """Whether the template says which text is the assistant's."""
    return bool(template and _GENERATION_MARK.search(template))


def tokenize_conversation(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    chat_template: str | None = None,
) -> TokenizedConversation:
    """Render OpenAI-form messages (tool arguments as an object or as JSON text) and mark the tokens that train.

    Raises UserError if the template has no generation marks: the mask would be empty or guessed.
    """
    template = chat_template or tokenizer.chat_template
    if not has_generation_marks(template):
        raise UserError(
            f"{tokenizer.name_or_path}: its chat template has no {{% generation %}} marks, so the assistant's tokens "
            "cannot be told apart; set student.chat_template to a template that has them"
        )
    output = tokenizer.apply_chat_template(
        list(messages),
        tools=list(tools) if tools else None,
        chat_template=template,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return TokenizedConversation(list(output["input_ids"]), list(output["assistant_masks"]))


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


def parse_assistant_text(text: str, *, call_id_prefix: str = "call") -> Message:
    """What a model wrote in one turn, as a Message.

    Argument text is kept character by character. A call that is not JSON or has no name becomes a call with what was
    written as its arguments, which the environment reports as malformed; nothing is dropped and nothing raises.
    """
    text = text.removesuffix(END_OF_TURN)
    reasoning = None
    think = _THINK.match(text)
    if think:
        reasoning, text = think.group(1), text[think.end() :]
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
