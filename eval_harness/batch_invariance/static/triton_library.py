"""What triton.language does inside a kernel: indices, tiles, loads, sums, products, scans, atomics, random numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.arithmetic import OWN, broadcast, extreme
from eval_harness.batch_invariance.static.buffers import contents, note_gathered, note_load, note_store
from eval_harness.batch_invariance.static.kernel_values import num_programs, program_id
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.sources import holds_integers
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import (
    BLOCK,
    FUNC,
    NC,
    NUM,
    PTR,
    RANGE,
    ROWS,
    SEQ,
    STRUCT,
    Val,
    const,
    num,
    stronger,
    unknown,
)

Handler = Callable[[Run, Frame, str, list[Val], dict[str, Val], ast.Call], Val]


def call_triton(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val | None:
    """The value of tl.name(...); None: not a function known here."""
    handler = HANDLERS.get(name)
    return handler(run, frame, name, args, kwargs, node) if handler is not None else None


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


def _program_id(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    axis = argument(args, kwargs, 0, "axis")
    position = axis.const if axis is not None and isinstance(axis.const, int) else 0
    return program_id(frame, position) if name == "program_id" else num_programs(frame, position)


def _arange(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    size = argument(args, kwargs, 1, "end") or (args[0] if args else num())
    value = Val(BLOCK, dims=(size,), elem="i")
    value.index = True
    if frame.kernel is not None and size.dep is not None and size.dep.param is not None:
        frame.kernel.tile_names.add(size.dep.param[1])
    return value


def _full(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    dtype = argument(args, kwargs, 2 if name == "full" else 1, "dtype")
    return Val(BLOCK, dims=dims_of(argument(args, kwargs, 0, "shape")), elem=elem_of(dtype) or "f")


def _like(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not args:
        return unknown()
    return Val(BLOCK, dims=args[0].dims, elem=elem_of(kwargs.get("dtype")) or args[0].elem)


def _load(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _store(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _block_pointer(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    base = argument(args, kwargs, 0, "base") or unknown()
    shape = (
        argument(args, kwargs, 4, "block_shape")
        if name == "make_block_ptr"
        else argument(args, kwargs, 3, "block_shape")
    )
    data = base.data if base.kind == PTR else None
    return Val(PTR, data=data, dims=dims_of(shape))


def _sum(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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
        _check_tile(run, frame, node, name, chosen)
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


def _check_tile(run: Run, frame: Frame, node: ast.Call, name: str, sizes: tuple[Val, ...]) -> None:
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


def _dot(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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
        _check_tile(run, frame, node, name, (inner,))
    precision = tuple(
        (key, kwargs[key].const) for key in ("allow_tf32", "input_precision", "max_num_imprecise_acc") if key in kwargs
    )
    run.events["dot", inner.const if inner is not None and inner.const is not NC else "?", *precision] = None
    dims = (*a.dims[:-1], b.dims[-1]) if a.dims and b.dims else None
    return Val(BLOCK, dims=dims, elem="f" if a.elem != "i" or b.elem != "i" else "i")


def _extreme_of(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _pairwise(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return extreme(args, "min" if "min" in name else "max")


def _where(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _range(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    lo, hi, step = const(0), num(), const(1)
    if len(args) == 1:
        hi = args[0]
    elif len(args) >= 2:
        lo, hi = args[:2]
        step = args[2] if len(args) > 2 else step
    return Val(RANGE, data=(lo, hi, kwargs.get("step", step)))


def _random(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _atomic(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _reshape(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _same(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _pointwise(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    dims, dep = None, None
    kind = NUM
    for value in args:
        dims, dep = broadcast(dims, value.dims), stronger(dep, value.dep)
        kind = BLOCK if value.kind == BLOCK else kind
    if name in ("abs", "floor", "ceil") and args and args[0].elem in ("i", "b"):
        return args[0]
    run.events["op", name] = None
    return Val(kind, dep.into(STRUCT) if dep is not None else None, dims=dims, elem="f")


def _softmax(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    x = args[0] if args else unknown()
    if x.dims:
        _check_tile(run, frame, node, name, (x.dims[-1],))
    run.events[("sum", name, len(x.dims or ()), "?")] = None
    return x


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("program_id", "num_programs"), _program_id),
    "arange": _arange,
    **dict.fromkeys(("zeros", "full", "empty"), _full),
    **dict.fromkeys(("zeros_like", "full_like"), _like),
    "load": _load,
    "store": _store,
    **dict.fromkeys(("make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"), _block_pointer),
    **dict.fromkeys(("sum", "cumsum", "cumprod", "reduce", "associative_scan", "xor_sum"), _sum),
    **dict.fromkeys(("dot", "dot_scaled"), _dot),
    **dict.fromkeys(("max", "min", "argmax", "argmin"), _extreme_of),
    **dict.fromkeys(("maximum", "minimum"), _pairwise),
    "where": _where,
    **dict.fromkeys(("range", "static_range"), _range),
    **dict.fromkeys(("rand", "randn", "randint", "rand4x", "randn4x", "randint4x", "philox"), _random),
    **dict.fromkeys(("atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_or"), _atomic),
    **dict.fromkeys(
        ("trans", "permute", "expand_dims", "join", "split", "cat", "interleave", "ravel", "flatten", "reshape", "view",
         "broadcast_to"),
        _reshape,
    ),
    **dict.fromkeys(("cast", "multiple_of", "max_contiguous", "max_constancy", "assume", "advance", "to_tensor"), _same),
    **dict.fromkeys(
        ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "sigmoid", "tanh", "erf", "fma", "floor", "ceil",
         "abs", "fdiv", "div_rn", "sqrt_rn", "pow", "fast_expf"),
        _pointwise,
    ),
    "softmax": _softmax,
}  # fmt: skip


def descriptor_load(owner: Val, args: list[Val], node: Any) -> Val:
    """desc.load(offsets): a tile of the descriptor's block shape."""
    tensor = owner.data
    elem = tensor.elem if isinstance(tensor, Val) else "f"
    return Val(BLOCK, dims=owner.dims, elem=elem or "f")
