"""What holds after two ways: equal constants stay known, what differs follows the condition."""

from __future__ import annotations

from typing import Final

from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    FUNC,
    MAP,
    NC,
    NUM,
    OBJ,
    PLACE,
    PTR,
    RANGE,
    SEQ,
    TENSOR,
    Dep,
    Val,
    const,
    join_elem,
    num,
    seq,
    stronger,
    unknown,
    with_dep,
)


def element(value: Val) -> Val:
    """One Val for any item of a SEQ."""
    if value.data is None:
        return value.dims[0] if value.dims else unknown(value.dep)
    return merge_all(value.data, value.dep)


def merge(a: Val, b: Val, dep: Dep | None = None) -> Val:
    """What holds after two ways that `dep` chose between (None: not the batch)."""
    if a is b:
        return a
    if a.const is not NC and b.const is not NC:
        if type(a.const) is type(b.const) and a.const == b.const:
            return a
    elif a.const is None or b.const is None:  # None on one way: a later test rules it out, or it is an absent part
        return with_dep(b if a.const is None else a, dep if b.kind == NUM and a.kind == NUM else None)
    joined = stronger(a.dep, b.dep)
    if a.kind != b.kind:
        if ANY in (a.kind, b.kind):
            known = b if a.kind == ANY else a
            if known.kind in (TENSOR, PTR, BLOCK, OBJ):
                return known
        kind = ANY if {a.kind, b.kind} != {NUM, BLOCK} else BLOCK
        value = Val(kind, stronger(joined, dep), elem=a.elem if a.elem == b.elem else None)
        value.dims = a.dims or b.dims if kind == BLOCK else None
        value.elem = join_elem(a, b)
        return value
    if a.kind == NUM:
        is_place = a.data is b.data is PLACE  # by the axis that the programs of one kind lie along
        value = num(joined if is_place else stronger(joined, dep), join_elem(a, b))
        value.data = PLACE if is_place else None
    elif a.kind == SEQ:
        return _merge_seq(a, b, joined, dep)
    elif a.kind == MAP:
        keys = {**a.data, **b.data}
        merged = {key: merge(a.data.get(key, _ABSENT), b.data.get(key, _ABSENT), dep) for key in keys}
        return Val(MAP, joined, data=merged)
    elif a.kind == FUNC:
        functions = a.data + [function for function in b.data if function not in a.data]
        value = Val(FUNC, stronger(joined, dep) if len(functions) > len(a.data) else joined, data=functions)
    elif a.kind == OBJ:
        return _merge_objects(a, b, dep)
    elif a.kind in (TENSOR, BLOCK, PTR):
        value = a.copy()
        value.dep, value.elem = joined, join_elem(a, b)  # not dep: a padded or a plain x hold the same rows
        value.dims = None
        if a.dims is not None and b.dims is not None and len(a.dims) == len(b.dims):
            value.dims = tuple(merge(x, y, dep) for x, y in zip(a.dims, b.dims, strict=True))
        value.batch = a.batch if a.batch is not None else b.batch
        if a.kind == PTR and a.data is not b.data:
            value.data = a.data or b.data
    else:
        value = a.copy()
        value.dep = stronger(joined, dep) if a.kind in (ANY, RANGE) else joined
    value.index = a.index or b.index
    value.pos = a.pos or b.pos
    return value


def _merge_seq(a: Val, b: Val, joined: Dep | None, dep: Dep | None) -> Val:
    if a.data is not None and b.data is not None and len(a.data) == len(b.data):
        return seq([merge(x, y, dep) for x, y in zip(a.data, b.data, strict=True)], joined)
    filled = [value for value in (a, b) if value.data or value.dims]
    item = merge_all([element(value) for value in filled], dep) if filled else None
    return seq(None, stronger(joined, dep), item)


def _merge_objects(a: Val, b: Val, dep: Dep | None) -> Val:
    """One object for two of the same class: what their attributes have in common stays known."""
    first, second = a.data, b.data
    if first is second or first.cls is not second.cls:
        return a
    names = {**first.attributes, **second.attributes}
    merged = {
        name: merge(first.attributes.get(name, _ABSENT), second.attributes.get(name, _ABSENT), dep) for name in names
    }
    value = a.copy()
    value.data = type(first)(first.cls, merged)
    return value


def merge_all(values: list[Val], dep: Dep | None = None) -> Val:
    if not values:
        return unknown(dep)
    result = values[0]
    for value in values[1:]:
        result = merge(result, value, dep)
    return result


_ABSENT: Final = const(None)
