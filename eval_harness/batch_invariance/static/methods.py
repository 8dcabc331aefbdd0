"""Methods of values that are no objects of the sources: tensors, blocks, dictionaries, lists."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.attributes import as_tensor
from eval_harness.batch_invariance.static.functions import choose_among, strongest
from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.opaque import unknown_call
from eval_harness.batch_invariance.static.python_library import call_python
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.tensor_library import call_tensor
from eval_harness.batch_invariance.static.tensor_reductions import first_tensor
from eval_harness.batch_invariance.static.triton_library import call_triton
from eval_harness.batch_invariance.static.triton_tiles import descriptor_load
from eval_harness.batch_invariance.static.values import (
    ANY,
    BLOCK,
    MAP,
    NC,
    NUM,
    PTR,
    SEQ,
    SHAPE,
    TENSOR,
    Val,
    const,
    guess,
    num,
    seq,
    struct,
    unknown,
    with_dep,
)
from eval_harness.batch_invariance.static.words import words


def call_method(
    run: Run, frame: Frame, owner: Val, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val:
    """owner.name(args) where the owner is no module or object."""
    kind = owner.kind
    if frame.kernel is not None and kind in (BLOCK, PTR, NUM):
        if name in ("load", "gather") and kind == PTR:
            return descriptor_load(owner, args, node)
        if name in ("store", "scatter", "atomic_add"):
            return unknown()
        if name == "to" and args:
            return call_triton(run, frame, "cast", [owner, *args], kwargs, node) or owner
        result = call_triton(run, frame, name, [owner, *args], kwargs, node)
        return result if result is not None else owner
    if kind == ANY and name in _TENSOR_ONLY:
        owner = as_tensor(owner)
        kind = TENSOR
    if kind == TENSOR:
        return call_tensor(run, frame, name, args, kwargs, node, owner)
    if kind == SHAPE:
        if name == "numel":
            return sources.count_elements(frame, owner.data[0], node.lineno)
        return num(elem="i")
    if kind == MAP:
        return _map_method(owner, name, args)
    if kind == SEQ:
        return _seq_method(owner, name, args)
    if kind in (NUM, ANY):
        if name in ("bit_length", "item", "sum", "max", "min"):
            result = call_python(run, frame, "int" if name == "item" else name, [owner], {}, node)
            return result if result is not None else unknown(owner.dep)
        if name in ("numel", "size") and kind == ANY:
            return call_tensor(run, frame, name, args, kwargs, node, as_tensor(owner))
        if first_tensor(args, kwargs) is not None or kwargs:
            return unknown_call(run, frame, name, args, kwargs, node)
    dep = strongest([owner, *args])
    return unknown(guess(dep) if kind == ANY and owner.dep is None else struct(dep))


_TENSOR_ONLY = words(
    "size numel view reshape permute transpose contiguous tolist unsqueeze squeeze flatten expand chunk sum mean amax"
    " float half bfloat16 new_empty new_zeros data_ptr stride nelement matmul softmax dim unbind max min item cumsum"
    " to split"
)


def _map_method(owner: Val, name: str, args: list[Val]) -> Val:
    values = list(owner.data.values())
    if name in ("get", "pop", "setdefault") and args:
        key = args[0].const
        if key is NC and args[0].kind == SEQ and args[0].data is not None:
            parts = [item.const for item in args[0].data]
            key = tuple(parts) if NC not in parts else NC
        default = args[1] if len(args) > 1 else const(None)
        if key is not NC and isinstance(key, int | float | str | bool | tuple | None):
            if key in owner.data:
                found = owner.data[key]
                return with_dep(found, owner.dep) if found.kind == NUM else found
            if not any(isinstance(name, tuple) and name[:1] == ("key",) for name in owner.data):
                return default
        source = args[0] if args[0].kind != SEQ else num(strongest([args[0]]))
        return choose_among([*values, default], source, owner)
    if name == "items":
        pairs = [seq([_key(key), value]) for key, value in owner.data.items()]
        return seq(pairs, owner.dep)
    if name == "values":
        return seq(values, owner.dep)
    if name == "keys":
        return seq([_key(key) for key in owner.data], owner.dep)
    return owner if name == "copy" else unknown(owner.dep)


def _key(key: Any) -> Val:
    if isinstance(key, tuple):
        return unknown() if key[:1] == ("key",) else seq([const(part) for part in key])
    return const(key)


def _seq_method(owner: Val, name: str, args: list[Val]) -> Val:
    if name in ("index", "count"):
        return num(struct(strongest([owner, *args])), "i")
    if name in ("pop", "popleft"):
        items = owner.data if owner.data is not None else list(owner.dims or ())
        value = items[0] if items else unknown(owner.dep)
        for item in items[1:]:
            value = merge(value, item)
        return value
    return owner if name in ("copy", "numpy") else unknown(owner.dep)
