"""How long the rows of a dataset are in the student's tokens, and how many of them train."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from eval_harness.errors import UserError
from training.chat_tokens import tokenize_conversation
from training.sft_rows import read_tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EDGES = tuple(1 << power for power in range(10, 19))
"""1,024 to 262,144 tokens, the paper's context."""


class LengthSummary(BaseModel):
    """Tokens of a dataset's rows."""

    model_config = ConfigDict(extra="forbid")

    tokenizer: str
    num_tokens: int
    num_trained_tokens: int
    shortest: int
    median: int
    longest: int
    histogram: dict[str, int]
    """Up to so many tokens (and more than the edge before) -> rows; "more": beyond the last edge."""


class TokenCounter:
    """Counts a row's tokens as SFT will. Loads the tokenizer when it is first needed."""

    def __init__(self, name: str, chat_template: str | None) -> None:
        self._name = name
        self._template_name = chat_template

    def load(self) -> None:
        """Load tokenizer and template now. Raises UserError for what counting would stumble over."""
        _ = self._tokenizer, self._template

    def count(self, row: dict[str, Any]) -> tuple[int, int]:
        """(all tokens, those that train). Raises UserError."""
        tokens = tokenize_conversation(
            self._tokenizer,
            row["messages"],
            read_tools(row["tools"], row["trajectory_id"]),
            chat_template=self._template,
            untrained_turns=row["untrained_turns"],
        )
        return len(tokens.input_ids), tokens.num_trained

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # there is a process for each core already
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self._name)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"tokenizer {self._name}: cannot be loaded ({reason}); give a name or a folder") from None

    @cached_property
    def _template(self) -> str:
        from training.chat_templates import find_training_template, load_template

        return load_template(self._template_name) if self._template_name else find_training_template(self._tokenizer)


def summarize_lengths(tokenizer: str, lengths: Sequence[tuple[int, int]]) -> LengthSummary:
    """lengths: (tokens, trained tokens) of each row; at least one."""
    sizes = sorted(size for size, _ in lengths)
    histogram = dict.fromkeys([*map(str, EDGES), "more"], 0)
    for size in sizes:
        histogram[next((str(edge) for edge in EDGES if size <= edge), "more")] += 1
    return LengthSummary(
        tokenizer=tokenizer,
        num_tokens=sum(sizes),
        num_trained_tokens=sum(trained for _, trained in lengths),
        shortest=sizes[0],
        median=sizes[len(sizes) // 2],
        longest=sizes[-1],
        histogram=histogram,
    )
