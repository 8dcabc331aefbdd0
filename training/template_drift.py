"""Template drift: whether a rollout's tokens still spell what the chat template writes for the same conversation.

A student is trained on the tokens of its rollouts and served through its template. Where the two differ outside of what
it wrote itself, or the template drops a part of an earlier answer, it is trained on text that it will never see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.chat_templates import find_training_template, render
from training.rollout_tokens import RolloutTokens
from trajectories.record import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN = 60
"""Characters of a difference that the report repeats."""


def find_template_drift(
    tokens: RolloutTokens,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    tokenizer: PreTrainedTokenizerBase,
    *,
    chat_template: str | None = None,
) -> str | None:
    """The first difference between a rollout and the rendering of its conversation, in one line; None: there is none.

    messages: the whole conversation, the replies to the last answer too. What the student generated is not compared:
    it may write its calls in other ways than the template would.
    """
    conversation = [message.to_openai() for message in messages]
    template = chat_template or find_training_template(tokenizer)
    try:
        text, spans = render(template, conversation, tools, special_tokens=tokenizer.special_tokens_map)
    except UserError as error:
        return str(error)
    answers = [message for message in messages if message.role == "assistant"]
    if not len(spans) == len(answers) >= len(tokens.turns):
        return f"the template marks {len(spans)} answers of {len(answers)}, and the rollout has {len(tokens.turns)}"
    for turn, (answer, (start, end)) in enumerate(zip(answers, spans, strict=True), start=1):
        if answer.reasoning and answer.reasoning.strip() not in text[start:end]:
            return f"answer {turn}: the template leaves out its reasoning once other turns follow"
    if not spans:
        return None  # nothing was generated
    rendered = [text[: spans[0][0]], *(text[end:start] for (_, end), (start, _) in pairwise(spans))]
    gaps = [(end, start) for (_, end), (start, _) in pairwise(tokens.turns)]
    fed = [tokens.prompt_ids, *(tokens.completion_ids[end:start] for end, start in gaps)]
    for turn, (ids, expected) in enumerate(zip(fed, rendered, strict=False)):
        found = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # an answer that was cut gets its end of turn from us; in the rendering that belongs to the answer
        added = found.removesuffix(expected)
        ends_the_answer = turn > 0 and text[: spans[turn - 1][1]].endswith(added)
        if not found.endswith(expected) or (added and not ends_the_answer):
            return f"before answer {turn + 1}: {_difference(found, expected)}"
    return None


def _difference(found: str, expected: str) -> str:
    same = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    at = min(len(found), len(expected)) if same is None else same
    return f"the rollout has {found[at : at + _SHOWN]!r}, the template {expected[at : at + _SHOWN]!r}"
