"""What fixes bits in a Triton kernel: sums, scans, products, atomics, random numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.arithmetic import OWN, broadcast
from eval_harness.batch_invariance.static.buffers import note_gathered, note_store
from eval_harness.batch_invariance.static.comparisons import extreme
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.triton_tiles import argument, elem_of
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    FUNC,
    NC,
    NUM,
    PTR,
    ROWS,
    SEQ,
    STRUCT,
    Val,
    const,
    unknown,
)


def reduce_tile(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """A sum within a tile: its order is that of the tile's shape along the axis."""
    x = args[0] if args else kwargs.get("input", unknown())
    if name in ("reduce", "associative_scan"):
        axis, combine = argument(args, kwargs, 1, "axis"), argument(args, kwargs, 2, "combine_fn")
        if x.kind == SEQ and x.data:
            x = x.data[0]
        exact = combine is not None and _is_exact(combine)
    else:
        axis, exact = argument(args, kwargs, 1, "axis"), False
    is_scan = name in ("cumsum", "cumprod", "associative_scan")
    if is_scan and axis is None:
        axis = const(0)
    value = Val(BLOCK, x.dep, elem=x.elem)
    chosen: tuple[Val, ...] = ()
    if x.dims is not None:
        position = axis.const if axis is not None else None
        rank = len(x.dims)
        if isinstance(position, int) and -rank <= position < rank:
            chosen = (x.dims[position],)
            kept = [size for place, size in enumerate(x.dims) if place != position % rank]
        else:
            chosen, kept = x.dims, []
        if is_scan or (kwargs.get("keep_dims") is not None and kwargs["keep_dims"].const):
            value.dims = x.dims
        else:
            value.dims = tuple(kept)
    if x.elem not in ("i", "b") and not exact:
        check_tile(run, frame, node, name, chosen)
        _leave_layout_open(run, frame, node, x.dims or (), chosen)
        rank_key = len(x.dims) if x.dims is not None else None
        keys = tuple(size.const if size.const is not NC else "?" for size in chosen)
        run.events[("scan" if is_scan else "sum", name, rank_key, keys)] = None
    elif x.elem == "b":
        value.elem = "i"
    return value


def _is_exact(combine: Val) -> bool:
    """Whether a combining function only takes maxima or selects."""
    if combine.kind != FUNC or not combine.data:
        return False
    node = combine.data[0].node
    if any(word in combine.data[0].name for word in ("max", "min")):
        return True
    return not any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Mult | ast.Sub | ast.Div)
        for part in ast.walk(node)
    )


def check_tile(run: Run, frame: Frame, node: ast.Call, name: str, sizes: tuple[Val, ...]) -> None:
    for size in sizes:
        if size.dep is not None:
            dep = size.dep.into(STRUCT) if size.dep.mode == ROWS else size.dep
            report(
                run,
                frame,
                node.lineno,
                Mechanism.REDUCTION_ORDER,
                "extent",
                dep,
                f"the size of the tile that {name} adds up",
            )


def _leave_layout_open(run: Run, frame: Frame, node: ast.Call, sizes: Sequence[Val], chosen: Sequence[Val]) -> None:
    """A row tile whose height follows the batch adds up alike, unless the compiler lays it out in another way."""
    for size in sizes:
        if size.dep is not None and size not in chosen:
            run.leave_open(
                frame, node.lineno, "the height of this tile follows the batch, and with it perhaps its layout"
            )
            return


def dot(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    a = argument(args, kwargs, 0, "input") or unknown()
    b = args[3] if name == "dot_scaled" and len(args) > 3 else argument(args, kwargs, 1, "other") or unknown()
    inner: Val | None = a.dims[-1] if a.dims else None
    if (inner is None or inner.dep is None) and b.dims and len(b.dims) > 1:
        inner = b.dims[-2] if inner is None or b.dims[-2].dep is not None else inner
    acc = argument(args, kwargs, 2, "acc")
    out = kwargs.get("out_dtype")
    if (acc is not None and acc.elem == "i") or (out is not None and elem_of(out) == "i") or a.elem == b.elem == "i":
        return Val(BLOCK, dims=(*a.dims[:-1], b.dims[-1]) if a.dims and b.dims else None, elem="i")
    if inner is not None:
        check_tile(run, frame, node, name, (inner,))
    precision = tuple(
        (key, kwargs[key].const) for key in ("allow_tf32", "input_precision", "max_num_imprecise_acc") if key in kwargs
    )
    _leave_layout_open(run, frame, node, a.dims[:-1] if a.dims else (), ())
    run.events["dot", inner.const if inner is not None and inner.const is not NC else "?", *precision] = None
    dims = (*a.dims[:-1], b.dims[-1]) if a.dims and b.dims else None
    return Val(BLOCK, dims=dims, elem="f" if a.elem != "i" or b.elem != "i" else "i")


def extreme_of(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """tl.max(x, axis): the same bits in any order; max(a, b): of scalars."""
    x = args[0] if args else unknown()
    if len(args) > 1 and name in ("max", "min") and args[1].const is NC and "axis" not in kwargs:
        return extreme(args, name)
    if x.kind != BLOCK:
        return extreme(args, name) if len(args) > 1 else x
    axis = argument(args, kwargs, 1, "axis")
    value = Val(BLOCK, x.dep, elem="i" if name in ("argmax", "argmin") else x.elem)
    if x.dims is not None and axis is not None and isinstance(axis.const, int) and len(x.dims):
        value.dims = tuple(size for place, size in enumerate(x.dims) if place != axis.const % len(x.dims))
        if kwargs.get("keep_dims") is not None:
            value.dims = x.dims
    elif axis is None:
        value.dims = ()
    if name in ("max", "min") and kwargs.get("return_indices") is not None:
        return Val(SEQ, data=[value, Val(BLOCK, dims=value.dims, elem="i")])
    return value


def random_numbers(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """tl.rand(seed, offset): a row's numbers must be its own, wherever it lies in the batch."""
    words = [value for value in (*args[:3], *(kwargs.get(key) for key in ("seed", "offset"))) if value is not None]
    dims = None
    for value in words:
        dims = broadcast(dims, value.dims)
    for value in words:
        dep = value.dep or value.pos
        if dep is not None:
            what = "the random stream of a row"
            report(run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "random", dep, what)
            break
    value = Val(BLOCK, dims=dims, elem="i" if "int" in name else "f")
    return Val(SEQ, data=[value] * 4) if name.endswith("4x") else value


def atomic(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    value = args[1] if len(args) > 1 else kwargs.get("val", unknown())
    pointer = args[0] if args else unknown()
    integers = value.elem in ("i", "b") or (
        pointer.kind == PTR and isinstance(pointer.data, Val) and pointer.data.elem == "i"
    )
    if name == "atomic_add" and not integers:
        note_atomic(run, frame, node)
    note_store(run, frame, pointer, value, node.lineno)
    note_gathered(run, frame, name, pointer, node, integers=integers)
    result = Val(NUM if not pointer.dims else BLOCK, dims=pointer.dims, elem="i" if integers else "f")
    result.name, result.index = OWN, True  # a turn in a queue
    return result


def note_atomic(run: Run, frame: Frame, node: ast.AST) -> None:
    """Floating-point atomics: a finding where the number of programs that share a sum follows the batch."""
    line = node.lineno  # type: ignore[attr-defined]
    run.events[("atomic",)] = None
    for size in (frame.kernel.grid or ()) if frame.kernel is not None else ():
        if size.dep is not None and size.dep.mode == STRUCT:
            what = "the number of programs that add to one result"
            report(run, frame, line, Mechanism.WORK_PARTITIONING, "atomic", size.dep, what)
            return
    run.leave_open(frame, line, "floating-point atomics add up in the order in which programs arrive")


def softmax(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    x = args[0] if args else unknown()
    if x.dims:
        check_tile(run, frame, node, name, (x.dims[-1],))
    run.events[("sum", name, len(x.dims or ()), "?")] = None
    return x
