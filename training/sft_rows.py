"""From conversations to training rows: token ids, labels, and an account of the rows that are too long.

TRL cuts a row at max_length without a word, which would teach half a pass; so lengths are counted here first and a row
that is too long is left out and named.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from eval_harness.errors import UserError
from training.chat_tokens import tokenize_conversation

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase


class LengthReport(BaseModel):
    """What tokenising did to a dataset."""

    model_config = ConfigDict(extra="forbid")

    max_length: int | None
    num_rows: int
    num_kept: int
    too_long: dict[str, int]
    """Row (its trajectory id) -> tokens, of the rows left out."""
    untrained: list[str] = []
    """Rows left out because no token of theirs trains."""
    num_tokens: int
    """Of the kept rows."""
    num_trained_tokens: int
    """Of these, tokens that the loss is taken on."""
    median_length: int
    longest: int
    """Over all rows, those left out too."""

    def describe(self) -> str:
        """One line for the log."""
        text = (
            f"{self.num_kept} of {self.num_rows} rows, {self.num_tokens} tokens, "
            f"{self.num_trained_tokens} of them trained; median length {self.median_length}, longest {self.longest}"
        )
        if self.too_long:
            named = ", ".join(f"{row} ({length})" for row, length in list(self.too_long.items())[:5])
            text += f"; {len(self.too_long)} longer than {self.max_length} left out: {named}"
        return text


def tokenize_rows(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, *, max_length: int | None, show_progress: bool = True
) -> tuple[Dataset, LengthReport]:
    """Rows of input_ids and labels (-100 where nothing trains), in the dataset's order, and the report.

    Raises UserError if nothing is left to train on.
    """
    from datasets import Dataset, Features, List, Value

    rows: list[dict[str, list[int]]] = []
    lengths: list[int] = []
    too_long: dict[str, int] = {}
    untrained: list[str] = []
    num_trained = 0
    for index, row in enumerate(tqdm(dataset, desc="tokenize", disable=not show_progress, leave=False)):
        name = str(row.get("trajectory_id") or f"row {index}")
        tokens = tokenize_conversation(tokenizer, row["messages"], read_tools(row.get("tools"), name))
        lengths.append(len(tokens.input_ids))
        if max_length is not None and len(tokens.input_ids) > max_length:
            too_long[name] = len(tokens.input_ids)
        elif not tokens.num_trained:
            untrained.append(name)
        else:
            num_trained += tokens.num_trained
            rows.append({"input_ids": tokens.input_ids, "labels": tokens.labels})
    if not rows:
        raise UserError(
            f"no row to train on: {len(too_long)} of {len(lengths)} are longer than max_length={max_length} "
            f"(the shortest has {min(lengths, default=0)} tokens); raise max_length or give another dataset"
        )
    report = LengthReport(
        max_length=max_length,
        num_rows=len(lengths),
        num_kept=len(rows),
        too_long=too_long,
        untrained=untrained,
        num_tokens=sum(len(row["input_ids"]) for row in rows),
        num_trained_tokens=num_trained,
        median_length=int(statistics.median(lengths)),
        longest=max(lengths),
    )
    features = Features({"input_ids": List(Value("int32")), "labels": List(Value("int64"))})
    return Dataset.from_list(rows, features=features), report


def read_tools(tools: str | None, row_name: str) -> list[dict[str, Any]] | None:
    """The tools column: JSON text of a list. Raises UserError."""
    if not tools:
        return None
    try:
        read = json.loads(tools)
    except json.JSONDecodeError as error:
        raise UserError(f"{row_name}: its `tools` is not JSON ({error}); build the dataset again") from None
    if not isinstance(read, list):
        raise UserError(f"{row_name}: its `tools` is not a JSON list; build the dataset again")
    return read


def render_texts(dataset: Dataset, chat_template: str) -> list[str]:
    """Each row as the template writes it, without a tokenizer: what the tiny student's tokenizer is trained on."""
    from transformers.utils.chat_template_utils import render_jinja_template

    texts = []
    for row in dataset:
        tools = read_tools(row.get("tools"), str(row.get("trajectory_id")))
        rendered, _ = render_jinja_template([row["messages"]], tools=tools, chat_template=chat_template)
        texts += rendered
    return texts
