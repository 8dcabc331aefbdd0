"""RowCollator: the rows of a micro batch one after another, without padding; positions begin anew with each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from training.chat_tokens import IGNORED_LABEL


@dataclass
class RowCollator:
    """Rows of input_ids and labels (packed: with seq_lengths) -> one sequence [1, tokens].

    Attention learns where rows begin from `row_lengths` (training/attention.py) and `cu_seq_lens_q`, `max_length_q` and
    the like (FlashAttention); position_ids tell the rest of transformers. There is no attention mask: what is put at
    the end comes after every token, and causal attention never sees it.
    """

    pad_token_id: int
    multiple_of: int = 1
    """The number of tokens is rounded up to it: with Ulysses each process takes an equal share."""
    with_row_lengths: bool = True
    """False with Ulysses, which shares every tensor of a batch and must be given one row at a time."""

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        lengths = [int(length) for row in rows for length in (row.get("seq_lengths") or [len(row["input_ids"])])]
        if not self.with_row_lengths and len(lengths) > 1:
            raise ValueError("Ulysses takes one row at a time; set per_device_train_batch_size: 1 and packing: false")
        input_ids = torch.cat([torch.as_tensor(row["input_ids"], dtype=torch.long) for row in rows])
        labels = torch.cat([torch.as_tensor(row["labels"], dtype=torch.long) for row in rows])
        starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
        labels[starts] = IGNORED_LABEL  # no row's last token predicts the first of the next
        positions = torch.cat([torch.arange(length) for length in lengths])
        padding = -len(input_ids) % self.multiple_of
        if padding:
            last = int(positions[-1]) + 1
            input_ids = torch.cat([input_ids, input_ids.new_full((padding,), self.pad_token_id)])
            labels = torch.cat([labels, labels.new_full((padding,), IGNORED_LABEL)])
            positions = torch.cat([positions, torch.arange(last, last + padding)])
        batch: dict[str, Any] = {"input_ids": input_ids[None], "labels": labels[None], "position_ids": positions[None]}
        if self.with_row_lengths:
            lengths[-1] += padding
            bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
            batch |= {"row_lengths": lengths, "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
            batch |= {"max_length_q": max(lengths), "max_length_k": max(lengths)}
        return batch
