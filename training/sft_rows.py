"""From conversations to training rows: token ids, labels, and an account of every row that was cut or left out.

TRL cuts a row at max_length without a word, which would teach half a pass; so lengths are counted here first, and a row
that is too long is left out or ends after a whole turn, as the configuration says, and is named either way.
"""

from __future__ import annotations

import bisect
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from eval_harness.errors import UserError
from training.chat_tokens import TokenizedConversation, tokenize_conversation

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

TooLong = Literal["drop", "cut_at_turn"]
"""What becomes of a row over the limit: left out, or ended after the last whole assistant turn that fits."""
ReasoningPolicy = Literal["keep", "drop"]
"""Whether the conversations' reasoning is shown to the student."""
_CHUNK_ROWS = 128  # turned into Arrow together: lists of Python integers are eight times as large


class LengthReport(BaseModel):
    """What tokenising did to a dataset."""

    model_config = ConfigDict(extra="forbid")

    max_length: int | None
    num_rows: int
    num_kept: int
    too_long: dict[str, int]
    """Row (its trajectory id) -> tokens, of the rows left out for their length."""
    cut: dict[str, tuple[int, int]] = {}
    """Row -> tokens before and after, of the rows that end at an earlier turn for their length."""
    untrained: list[str] = []
    """Rows left out because fewer than min_trained_tokens of theirs train."""
    num_tokens: int
    """Of the kept rows."""
    num_trained_tokens: int
    """Of these, tokens that the loss is taken on."""
    median_length: int
    longest: int
    """Over all rows as they were, those left out too."""
    lengths: list[int] = []
    """Of the kept rows, in order: what the plan of steps and memory goes by."""
    end_of_turn: int | None = None
    """Token id that ends every trained turn."""

    def describe(self) -> str:
        """One line for the log."""
        text = (
            f"{self.num_kept} of {self.num_rows} rows, {self.num_tokens} tokens, "
            f"{self.num_trained_tokens} of them trained; median length {self.median_length}, longest {self.longest}"
        )
        if self.too_long:
            text += f"; {len(self.too_long)} longer than {self.max_length} left out: {_some(self.too_long)}"
        if self.cut:
            after = {row: kept for row, (_, kept) in self.cut.items()}
            text += f"; {len(self.cut)} longer than {self.max_length} cut after a turn: {_some(after)}"
        if self.untrained:
            text += f"; {len(self.untrained)} left out with too few tokens to train: {', '.join(self.untrained[:5])}"
        return text


def _some(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{row} ({length})" for row, length in list(rows.items())[:5])


def tokenize_rows(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None,
    too_long: TooLong = "drop",
    min_trained_tokens: int = 1,
    reasoning: ReasoningPolicy = "keep",
    chat_template: str | None = None,
    show_progress: bool = True,
) -> tuple[Dataset, LengthReport]:
    """Rows of input_ids and labels (-100 where nothing trains), in the dataset's order, and the report.

    Raises UserError if nothing is left to train on, or naming the row that the chat template cannot write whole.
    """
    names: list[str] = []
    lengths: list[int] = []
    refused: dict[str, int] = {}
    cut: dict[str, tuple[int, int]] = {}
    untrained: list[str] = []
    ends: set[int] = set()
    store = _RowStore()
    for index, row in enumerate(tqdm(dataset, desc="tokenize", disable=not show_progress, leave=False)):
        name = str(row.get("trajectory_id") or f"row {index}")
        names.append(name)
        tokens: TokenizedConversation | None = _tokenize_row(row, name, tokenizer, reasoning, chat_template)
        assert tokens is not None
        length = len(tokens.input_ids)
        lengths.append(length)
        if max_length is not None and length > max_length:
            tokens = tokens.cut_after_turn(max_length) if too_long == "cut_at_turn" else None
            if tokens is None:
                refused[name] = length
                continue
            cut[name] = (length, len(tokens.input_ids))
        if tokens.num_trained < max(1, min_trained_tokens):
            untrained.append(name)
            cut.pop(name, None)
            continue
        ends |= {tokens.input_ids[end - 1] for _, end in tokens.turns if tokens.loss_mask[end - 1]}
        store.add(tokens)
    if not store.lengths:
        raise UserError(
            f"no row to train on: {len(refused)} of {len(lengths)} are longer than max_length={max_length} "
            f"(the shortest has {min(lengths, default=0)} tokens) and {len(untrained)} have fewer than "
            f"{max(1, min_trained_tokens)} tokens to train; raise max_length or give another dataset"
        )
    report = LengthReport(
        max_length=max_length,
        num_rows=len(lengths),
        num_kept=len(store.lengths),
        too_long=refused,
        cut=cut,
        untrained=untrained,
        num_tokens=sum(store.lengths),
        num_trained_tokens=store.num_trained,
        median_length=int(statistics.median(lengths)),
        longest=max(lengths),
        lengths=store.lengths,
        end_of_turn=ends.pop() if len(ends) == 1 else None,
    )
    return store.dataset(), report


class _RowStore:
    """Collects rows as Arrow, a chunk at a time."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.num_trained = 0
        self._rows: list[dict[str, list[int]]] = []
        self._tables: list[Any] = []

    def add(self, tokens: TokenizedConversation) -> None:
        self.lengths.append(len(tokens.input_ids))
        self.num_trained += tokens.num_trained
        self._rows.append({"input_ids": tokens.input_ids, "labels": tokens.labels})
        if len(self._rows) == _CHUNK_ROWS:
            self._flush()

    def dataset(self) -> Dataset:
        import pyarrow
        from datasets import Dataset
        from datasets.table import InMemoryTable

        self._flush()
        return Dataset(InMemoryTable(pyarrow.concat_tables(self._tables)))

    def _flush(self) -> None:
        import pyarrow

        if self._rows:
            lists = pyarrow.large_list(pyarrow.int32())
            schema = pyarrow.schema([("input_ids", lists), ("labels", lists)])
            self._tables.append(pyarrow.Table.from_pylist(self._rows, schema=schema))
            self._rows = []


def _tokenize_row(
    row: Mapping[str, Any],
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    reasoning: ReasoningPolicy,
    chat_template: str | None,
) -> TokenizedConversation:
    messages: Sequence[Mapping[str, Any]] = row["messages"]
    if reasoning == "drop":
        messages = [{key: value for key, value in m.items() if key != "reasoning_content"} for m in messages]
    try:
        return tokenize_conversation(
            tokenizer,
            messages,
            read_tools(row.get("tools"), name),
            chat_template=chat_template,
            untrained_turns=row.get("untrained_turns") or (),
        )
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def pack_rows(rows: Dataset, max_length: int) -> Dataset:
    """Rows joined to sequences of at most max_length tokens, best fit first, none cut; each row at most that long.

    `seq_lengths` says where each row of a sequence begins anew: rows do not see one another (training/attention.py).
    """
    import pyarrow
    from datasets import Dataset
    from datasets.table import InMemoryTable

    columns = {name: rows.data.column(name).combine_chunks() for name in ("input_ids", "labels")}
    lengths = [len(ids) for ids in columns["input_ids"]]
    packs: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (tokens left, pack), ascending
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        place = bisect.bisect_left(room, (lengths[index], -1))
        left, pack = room.pop(place) if place < len(room) else (max_length, len(packs))
        if pack == len(packs):
            packs.append([])
        packs[pack].append(index)
        bisect.insort(room, (left - lengths[index], pack))
    order = pyarrow.array([index for pack in packs for index in pack])
    offsets = [0, *itertools.accumulate(sum(lengths[i] for i in pack) for pack in packs)]
    joined = {
        name: pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets, pyarrow.int64()), column.take(order).flatten())
        for name, column in columns.items()
    }
    joined["seq_lengths"] = pyarrow.array([[lengths[i] for i in pack] for pack in packs])
    return Dataset(InMemoryTable(pyarrow.table(joined)))


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
    from training.chat_templates import render

    return [
        render(chat_template, row["messages"], read_tools(row.get("tools"), str(row.get("trajectory_id"))),
               special_tokens={})[0]
        for row in dataset
    ]  # fmt: skip
