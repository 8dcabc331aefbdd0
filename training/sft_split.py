"""What of a dataset is held out: whole tasks, by a hash, so that they are held out of a larger dataset too."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from eval_harness.errors import UserError

if TYPE_CHECKING:
    from datasets import Dataset


def split_by_task(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """(train, held out): that share of the tasks, rounded up, with all their rows. Raises UserError for one task."""
    if "task_id" not in dataset.column_names:
        raise UserError("eval_split.fraction: the dataset has no task_id column; give eval_split.dataset instead")
    tasks = dataset["task_id"]
    by_hash = sorted(set(tasks), key=lambda task: hashlib.sha256(f"{seed}/{task}".encode()).digest())
    if len(by_hash) < 2:
        raise UserError("eval_split.fraction: the dataset is of one task, so none can be held out; set it to 0")
    held_out = set(by_hash[: min(math.ceil(fraction * len(by_hash)), len(by_hash) - 1)])
    rows = {is_held: [i for i, task in enumerate(tasks) if (task in held_out) == is_held] for is_held in (False, True)}
    return dataset.select(rows[False]), dataset.select(rows[True])
