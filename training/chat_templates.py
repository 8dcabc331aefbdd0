"""The chat template that a student is trained with: ours for the known families, found by what its own template writes.

Ours mark what the assistant generates ({% generation %}), keep the reasoning of every turn, and write a turn the same
wherever it stands, so the prompt of each turn is a prefix of the trained text. A student is saved with that template
without the marks (`without_marks`): what a server renders is what was trained.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATE_DIR = Path(__file__).parent / "templates"
OPEN_REASONING = "<think>\n"
"""With it the prompt of a turn ends where the template opens the reasoning block itself."""

_GENERATION_MARK = re.compile(r"{%-?\s*generation\s*-?%}")
_MARK = re.compile(r"{%(-?)\s*(end)?generation\s*(-?)%}")
_PART = re.compile(r"{#- part: (\w+) -#}")


@dataclass(frozen=True)
class TemplateFamily:
    """A family of models: the name of our template, and what its own template can write."""

    name: str
    writes_tools: bool = True
    writes_reasoning: bool = False


FAMILIES = (
    TemplateFamily("qwen3_thinking_2507", writes_reasoning=True),
    TemplateFamily("qwen3", writes_reasoning=True),
    TemplateFamily("qwen3_instruct_2507"),
    TemplateFamily("qwen2_5"),
    TemplateFamily("llama3_1"),
    TemplateFamily("smollm2", writes_tools=False),
)


def template_names() -> list[str]:
    """Names of the templates kept in training/templates."""
    return sorted(path.stem for path in TEMPLATE_DIR.glob("*.jinja"))


@cache
def load_template(name: str = "qwen3_style") -> str:
    """The text of a chat template kept in training/templates, its shared part put in. Raises UserError."""
    path = TEMPLATE_DIR / f"{name}.jinja"
    if not path.is_file():
        raise UserError(f"chat template {name!r}: unknown; choose one of {', '.join(template_names())}")
    # a file's last line break is the editor's, not the conversation's
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    return _PART.sub(lambda part: _read_part(part.group(1)), text)


def _read_part(name: str) -> str:
    return (TEMPLATE_DIR / "parts" / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")


def has_generation_marks(template: object) -> bool:
    """Whether the template says which text is the assistant's."""
    return isinstance(template, str) and bool(_GENERATION_MARK.search(template))


def without_marks(template: str) -> str:
    """The template for a server: writes the same text, and needs nothing that plain Jinja lacks.

    Each mark becomes a block that changes nothing, with the same trimming of the space around it.
    """
    return _MARK.sub(lambda mark: f"{{%{mark[1]} {'endif' if mark[2] else 'if true'} {mark[3]}%}}", template)


def find_training_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The marked template that writes what the tokenizer's own writes. Raises UserError if none is known.

    Its own if it has marks; ours whose unmarked form it is, or whose family it is by what it writes; else TRL's marked
    copy of it.
    """
    own = tokenizer.chat_template
    if isinstance(own, Mapping):  # named variants
        own = own.get("default")
    if not own:
        raise UserError(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template; "
            f"set student.chat_template to one of {', '.join(template_names())}"
        )
    if has_generation_marks(own):
        return own
    for name in template_names():
        if without_marks(load_template(name)) == own:
            return load_template(name)
    family = find_family(own, tokenizer.special_tokens_map)
    return load_template(family.name) if family else _copy_of_trl(tokenizer)


def find_family(template: str, special_tokens: Mapping[str, Any]) -> TemplateFamily | None:
    """The family whose template this is, told by its text for a few conversations; None if it is none of ours."""
    names = tuple((key, value) for key, value in sorted(special_tokens.items()) if isinstance(value, str))
    return _find_family(template, names)


@cache
def _find_family(template: str, special_tokens: tuple[tuple[str, str], ...]) -> TemplateFamily | None:
    return next((family for family in FAMILIES if _writes_alike(template, family, dict(special_tokens))), None)


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    special_tokens: Mapping[str, Any],
    add_generation_prompt: bool = False,
    **variables: Any,
) -> tuple[str, list[tuple[int, int]]]:
    """The text of a conversation, and where in it the generated spans lie (characters, half open).

    Raises UserError with the template's own reason if it refuses the conversation.
    """
    import jinja2
    from transformers.utils.chat_template_utils import render_jinja_template

    marked = has_generation_marks(template)
    try:
        texts, spans = render_jinja_template(
            [[dict(message) for message in messages]],
            tools=[dict(tool) for tool in tools] if tools else None,
            chat_template=template,
            return_assistant_tokens_mask=marked,
            add_generation_prompt=add_generation_prompt,
            **(dict(special_tokens) | variables),
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"the chat template cannot write this conversation ({reason})") from None
    return texts[0], [(start, end) for start, end in spans[0]] if marked else []


def opens_reasoning(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a turn's prompt ends inside a reasoning block, so that what the model writes has no opening tag."""
    template = tokenizer.chat_template
    if not isinstance(template, str):
        return False
    messages = [{"role": "user", "content": "x"}]
    text, _ = render(template, messages, None, special_tokens=tokenizer.special_tokens_map, add_generation_prompt=True)
    return text.endswith(OPEN_REASONING)


def _writes_alike(template: str, family: TemplateFamily, special_tokens: Mapping[str, Any]) -> bool:
    ours = load_template(family.name)
    for messages, tools, prompt in _probes(family):
        # Llama 3.2 writes today's date unless it is given one
        settings: dict[str, Any] = {"special_tokens": special_tokens, "add_generation_prompt": prompt}
        try:
            theirs = render(template, messages, tools, date_string="26 Jul 2024", **settings)
        except UserError:
            return False
        if theirs[0] != render(ours, messages, tools, **settings)[0]:
            return False
    return True


def _probes(family: TemplateFamily) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None, bool]]:
    """Conversations that every template of the family can write: (messages, tools, with the prompt of a turn)."""
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}
    answer: dict[str, Any] = {"role": "assistant", "content": "So."}
    if family.writes_reasoning:
        answer["reasoning_content"] = "Hm.\nYes."
    probes: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None, bool]] = [
        ([system, user], None, True),
        ([user, answer], None, False),
    ]
    if family.writes_tools:
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": parameters}}]
        function = {"name": "look", "arguments": {"path": "\u00e9", "n": {"a": [1, None]}}}
        call = answer | {"content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
        reply = {"role": "tool", "content": "a\nb", "tool_call_id": "1", "name": "look"}
        probes += [([system, user, call, reply, answer], tools, False), ([user, call, reply], tools, True)]
    return probes


def _copy_of_trl(tokenizer: PreTrainedTokenizerBase) -> str:
    from trl.chat_template_utils import get_training_chat_template

    try:
        template = get_training_chat_template(tokenizer)
    except (ValueError, TypeError):
        template = None
    if template is None:
        raise UserError(
            f"{tokenizer.name_or_path}: its chat template has no {{% generation %}} marks and no marked copy of it is "
            f"known, so the assistant's tokens cannot be told apart; set student.chat_template to one of "
            f"{', '.join(template_names())}, and serve the student with what training saves"
        )
    return template
