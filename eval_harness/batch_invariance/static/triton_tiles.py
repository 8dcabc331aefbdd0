"""Tiles of a Triton kernel: their sizes and types through indices, loads, views and elementwise functions."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.arithmetic import OWN, broadcast
from eval_harness.batch_invariance.static.buffers import contents, note_load, note_store
from eval_harness.batch_invariance.static.sources import holds_integers
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import BLOCK, NUM, PTR, SEQ, STRUCT, Val, const, num, stronger, unknown


def argument(args: list[Val], kwargs: dict[str, Val], position: int, name: str) -> Val | None:
    if position < len(args):
        return args[position]
    return kwargs.get(name)


def dims_of(value: Val | None) -> tuple[Val, ...] | None:
    """A shape argument: a tuple or a list of sizes, or one size."""
    if value is None:
        return None
    if value.kind == SEQ:
        return tuple(value.data) if value.data is not None else None
    return (value,) if value.kind == NUM else None


def elem_of(dtype: Val | None) -> str | None:
    """The kind of element that a dtype names."""
    if dtype is None:
        return None
    text = dtype.data if isinstance(dtype.data, str) else dtype.const if isinstance(dtype.const, str) else dtype.name
    text = (text or "").rpartition(".")[2]
    if text in ("bool", "int1", "bool_"):
        return "b"
    return "i" if text.startswith(("int", "uint", "long", "short")) else "f" if text else None


def arange(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    size = argument(args, kwargs, 1, "end") or (args[0] if args else num())
    value = Val(BLOCK, dims=(size,), elem="i")
    value.index = True
    if frame.kernel is not None and size.dep is not None and size.dep.param is not None:
        frame.kernel.tile_names.add(size.dep.param[1])
    return value


def full(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    dtype = argument(args, kwargs, 2 if name == "full" else 1, "dtype")
    return Val(BLOCK, dims=dims_of(argument(args, kwargs, 0, "shape")), elem=elem_of(dtype) or "f")


def like(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    return Val(BLOCK, dims=args[0].dims, elem=elem_of(kwargs.get("dtype")) or args[0].elem)


def load_tile(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    pointer = args[0] if args else kwargs.get("pointer", unknown())
    tensor = pointer.data if pointer.kind == PTR else None
    dims = pointer.dims or ()
    elem = "f"
    dep = None
    if isinstance(tensor, Val):
        elem, dep = tensor.elem or "f", contents(pointer)
    note_load(run, pointer)
    if elem == "f" and isinstance(tensor, Val | None) and _named_integers(node):
        elem = "i"
    value = Val(BLOCK if dims else NUM, dep, dims=dims, elem=elem)
    if not dims:
        value.name = OWN
    return value


def store_tile(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    pointer, value = argument(args, kwargs, 0, "pointer"), argument(args, kwargs, 1, "value")
    if pointer is not None and value is not None:
        note_store(run, frame, pointer, value, node.lineno)
    return unknown()


def _named_integers(node: ast.Call) -> bool:
    """Whether the pointer that is loaded from is called like an index."""
    part: ast.AST | None = node.args[0] if node.args else None
    while isinstance(part, ast.BinOp):
        part = part.left
    return isinstance(part, ast.Name) and holds_integers(part.id)


def block_pointer(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    base = argument(args, kwargs, 0, "base") or unknown()
    shape = (
        argument(args, kwargs, 4, "block_shape")
        if name == "make_block_ptr"
        else argument(args, kwargs, 3, "block_shape")
    )
    data = base.data if base.kind == PTR else None
    return Val(PTR, data=data, dims=dims_of(shape))


def where(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if len(args) < 3:
        return unknown()
    condition, a, b = args[:3]
    dims = broadcast(broadcast(condition.dims, a.dims), b.dims)
    elem = "f" if "f" in (a.elem, b.elem) else a.elem or b.elem
    value = Val(BLOCK if dims or BLOCK in (a.kind, b.kind) else NUM, dims=dims, elem=elem)
    value.dep = stronger(stronger(a.dep, b.dep), condition.dep)
    value.index = a.index and b.index
    value.pos = a.pos or b.pos
    return value


def reshape(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    x = args[0]
    value = x.copy()
    if name in ("trans", "permute"):
        axes = args[1].data if len(args) == 2 and args[1].kind == SEQ else args[1:]
        if x.dims is not None:
            order = [axis.const for axis in axes or ()]
            if not order:
                value.dims = x.dims[::-1] if len(x.dims) <= 2 else (*x.dims[:-2], x.dims[-1], x.dims[-2])
            elif len(order) == len(x.dims) and all(isinstance(axis, int) for axis in order):
                value.dims = tuple(x.dims[axis] for axis in order)
            else:
                value.dims = None
    elif name == "expand_dims":
        axis = argument(args, kwargs, 1, "axis")
        place = axis.const if axis is not None and isinstance(axis.const, int) else 0
        if x.dims is not None:
            sizes = list(x.dims)
            sizes.insert(place if place >= 0 else len(sizes) + 1 + place, const(1))
            value.dims = tuple(sizes)
    elif name in ("join", "split", "cat", "interleave"):
        value.dims = None
        return Val(SEQ, data=[value, value]) if name == "split" else value
    elif name in ("ravel", "flatten"):
        dep = None
        for size in x.dims or ():
            dep = stronger(dep, size.dep)
        value.dims = (num(dep, "i"),) if x.dims is not None else None
    else:  # reshape, view, broadcast_to
        value.dims = dims_of(args[1]) if len(args) == 2 else tuple(args[1:])
    return value


def same(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    if name == "cast":
        dtype = argument(args, kwargs, 1, "dtype")
        value = args[0].copy()
        value.elem = elem_of(dtype) or value.elem
        if args[0].elem == "f":
            run.events["cast", str(dtype.data) if dtype is not None else ""] = None
        return value
    return args[0]


def pointwise(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    dims, dep = None, None
    kind = NUM
    for value in args:
        dims, dep = broadcast(dims, value.dims), stronger(dep, value.dep)
        kind = BLOCK if value.kind == BLOCK else kind
    if name in ("abs", "floor", "ceil") and args and args[0].elem in ("i", "b"):
        return args[0]
    run.events["op", name] = None
    return Val(kind, dep.into(STRUCT) if dep is not None else None, dims=dims, elem="f")


def descriptor_load(owner: Val, args: list[Val], node: Any) -> Val:
    """desc.load(offsets): a tile of the descriptor's block shape."""
    tensor = owner.data
    elem = tensor.elem if isinstance(tensor, Val) else "f"
    return Val(BLOCK, dims=owner.dims, elem=elem or "f")
