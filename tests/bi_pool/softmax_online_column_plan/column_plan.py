"""Launch plan by shape. `rows` stays in the signature for the call sites that log it."""

from typing import NamedTuple


class ColumnPlan(NamedTuple):
    block: int
    num_splits: int
    chunk: int


def make_plan(rows: int, cols: int) -> ColumnPlan:
    block = 1024 if cols > 4096 else 512
    num_splits = 1
    while cols // num_splits > 4 * block:
        num_splits *= 2
    chunk = (cols + num_splits - 1) // num_splits
    return ColumnPlan(block, num_splits, chunk)
