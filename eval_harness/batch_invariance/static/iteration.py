"""What loops and comprehensions run over, and keys of dictionaries."""

from __future__ import annotations

from typing import Any

from eval_harness.batch_invariance.static.merging import element, merge_all
from eval_harness.batch_invariance.static.values import (
    MAP,
    NC,
    RANGE,
    ROWS,
    SEQ,
    SHAPE,
    TENSOR,
    Dep,
    Val,
    const,
    num,
    stronger,
    struct,
    unknown,
)

FROM_ZERO = "<from zero>"
"""Val.name of a counter that begins at 0: as a dimension it may be the first."""
MAX_ITEMS = 24
"""Items that are told apart."""


def key_of(value: Val, serial: int) -> Any:
    """A dictionary key for an abstract value; one of its own where it is not constant."""
    if value.const is not NC and isinstance(value.const, int | float | str | bool | None):
        return value.const
    if value.kind == SEQ and value.data is not None and all(item.const is not NC for item in value.data):
        return tuple(item.const for item in value.data)
    return ("key", serial)


def is_exact(value: Val) -> bool:
    """Whether iterate() gives the very items, not one for any."""
    if value.kind == RANGE:
        return all(isinstance(bound.const, int) for bound in value.data)
    return value.dep is None and (value.kind == MAP or (value.kind == SEQ and value.data is not None))


def iterate(value: Val) -> tuple[list[Val], Dep | None]:
    """What a loop variable takes (each known item, or one for any), and what the number of rounds follows."""
    if value.kind == SEQ:
        if value.data is not None:
            return (value.data, value.dep) if len(value.data) <= MAX_ITEMS else ([merge_all(value.data)], value.dep)
        return [element(value)], value.dep
    if value.kind == MAP:
        keys = [const(key) if not isinstance(key, tuple) else unknown() for key in value.data]
        return (keys, value.dep) if keys else ([unknown(value.dep)], value.dep)
    if value.kind == RANGE:
        lo, hi, step = value.data
        if all(isinstance(bound.const, int) for bound in value.data) and step.const:
            numbers = range(lo.const, hi.const, step.const)
            if len(numbers) <= MAX_ITEMS:
                return [const(number) for number in numbers], None
        begin = lo.dep
        if isinstance(step.const, int) and step.const < 0 and begin is not None and begin.mode == ROWS:
            begin = None  # over the rows, the last one first
        counter = num(struct(stronger(begin, step.dep)), "i")
        counter.index = True
        counter.name = FROM_ZERO if lo.const == 0 else None
        return [counter], hi.dep or lo.dep or step.dep
    if value.kind == TENSOR:
        row = value.copy()
        row.dims = value.dims[1:] if value.dims else None
        row.batch = None
        return [row], _length(value)
    if value.kind == SHAPE:
        return [num(elem="i")], None
    return [unknown(value.dep)], struct(value.dep)


def _length(tensor: Val) -> Dep | None:
    return tensor.dims[0].dep if tensor.dims else None
