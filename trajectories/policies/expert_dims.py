"""How a size of an expression comes about from the sizes of the inputs, as text of the wrapper."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_index import sizes
from trajectories.policies.expert_shapes import axis_blocks


def product(dims: Sequence[str]) -> str:
    """Text of a product of sizes."""
    return " * ".join(f"({dim})" if "+" in dim or "//" in dim else dim for dim in dims if dim != "1") or "1"


def structural_dim(expr: Expr, axis: int) -> str | None:
    """One size as the operators make it from the arrays' sizes; None where a literal of the graph sets it."""
    found = _dim_by_kind(expr, axis)
    return "1" if found is None and set(sizes(expr.shapes, axis)) == {1} else found


def _dim_by_kind(expr: Expr, axis: int) -> str | None:
    if expr.kind == "leaf":
        return f"{expr.fn}.shape[{axis}]"
    if expr.kind == "cat":
        parts = [structural_dim(part, axis) for part in expr.args]
        if axis == expr.data and set(parts) == {"1"}:
            return str(len(parts))
        if axis == expr.data:
            together = " + ".join(str(part) for part in parts)
            return None if None in parts else re.sub(r" - (\w+) \+ \1$", "", together)
        return parts[0]
    if expr.kind == "reduce":
        axes, keepdim = expr.data
        if keepdim and axis in axes:
            return "1"
        kept = [item for item in range(expr.args[0].rank) if keepdim or item not in axes]
        return structural_dim(expr.args[0], kept[axis])
    if expr.kind == "gather":
        ids, table = expr.args
        at, is_elementwise = expr.data
        if is_elementwise or at <= axis < at + ids.rank:
            return structural_dim(ids, axis if is_elementwise else axis - at)
        return structural_dim(table, axis if axis < at else axis - ids.rank + 1)
    if expr.kind == "pointwise":
        known: dict[str, tuple[int, ...]] = {}
        for arg in sorted(expr.args, key=lambda item: item.shapes != expr.shapes):
            own = axis - expr.rank + arg.rank
            if own < 0:
                continue
            found = structural_dim(arg, own)
            if found and sizes(arg.shapes, own) == sizes(expr.shapes, axis):
                return found
            if found is None:
                return None
            known[found] = sizes(arg.shapes, own)
        # which operand is broadcast differs from graph to graph
        if known and tuple(map(max, zip(*known.values(), strict=True))) == sizes(expr.shapes, axis):
            return f"max({', '.join(known)})"
        return None
    if expr.kind == "remap" and expr.fn in ("flatten", "view", "reshape"):
        return _regrouped_dim(expr, axis)
    if expr.kind == "remap" and expr.fn == "getitem":
        return _sliced_dim(expr, axis)
    if expr.kind == "remap" and expr.fn in ("permute", "transpose"):
        return structural_dim(expr.args[0], expr.data[axis])
    if expr.kind == "remap" and expr.fn == "split":
        at, groups = expr.data
        if axis == at:
            return groups
        whole = structural_dim(expr.args[0], axis - (axis > at))
        return f"{whole} // {groups}" if axis == at + 1 and whole else whole
    if expr.kind == "remap" and expr.fn == "unsqueeze":
        if axis in expr.data:
            return "1"
        return structural_dim(expr.args[0], axis - sum(new < axis for new in expr.data))
    if expr.kind == "remap" and expr.fn == "squeeze":
        return structural_dim(expr.args[0], axis + (axis >= expr.data[0]))
    if expr.kind == "iota":
        return str(expr.data[2])
    if expr.kind == "pad":
        whole, sides = structural_dim(expr.args[0], axis), [side for side in expr.data.get(axis, ()) if side != "0"]
        return whole and " + ".join([whole, *sides])
    if expr.kind == "remap" and expr.fn == "repeat" and expr.data is not None:
        own = axis - expr.rank + expr.args[0].rank
        whole = structural_dim(expr.args[0], own) if own >= 0 else "1"
        return whole and product([whole, *([] if expr.data[axis] == "1" else [expr.data[axis]])])
    if expr.kind == "remap" and expr.fn == "expand" and expr.data is not None:
        own = axis - expr.rank + expr.args[0].rank
        return expr.data[axis] or (structural_dim(expr.args[0], own) if own >= 0 else None)
    if expr.kind == "window":
        return _pooled_dim(expr, axis)
    if expr.kind == "scan":
        return structural_dim(expr.args[0], axis)
    if expr.kind == "remap" and expr.fn == "repeat_interleave":
        whole = structural_dim(expr.args[0], axis)
        return f"{whole} * {expr.data[1]}" if axis == expr.data[0] and whole else whole
    if expr.kind == "remap" and expr.fn == "roll":
        return structural_dim(expr.args[0], axis)
    return None


def _pooled_dim(expr: Expr, axis: int) -> str | None:
    """A size after a pooling."""
    whole, at = structural_dim(expr.args[0], axis), axis - expr.rank + 2
    if at < 0 or whole is None:
        return whole
    kernel, stride, padding, dilation = (values[at] for values in expr.data[:4])
    more = 2 * padding - dilation * (kernel - 1) - 1
    if expr.data[5]:
        if padding or stride > kernel:
            return None
        more += stride - 1
    return f"({whole} {'-' if more < 0 else '+'} {abs(more)}) // {stride} + 1"


def _regrouped_dim(expr: Expr, axis: int) -> str | None:
    """A size after a view: what it names, what it leaves or merges, or what its -1 stands for."""
    if expr.fn != "flatten" and expr.data is not None and expr.data[axis] is not None:
        return str(expr.data[axis])
    source = expr.args[0]
    for out_axes, in_axes in axis_blocks(expr.shapes, source.shapes):
        texts = [structural_dim(source, item) for item in in_axes]
        if axis not in out_axes or None in texts:
            continue
        whole = product([text for text in texts if text])
        if out_axes == [axis]:
            return whole
        if expr.data is not None and expr.fn != "flatten":
            others = [expr.data[item] for item in out_axes if item != axis]
            if None not in others:
                divisor = product(others)
                return f"{whole} // ({divisor})" if "*" in divisor else f"{whole} // {divisor}"
    return None


def _sliced_dim(expr: Expr, axis: int) -> str | None:
    """A size after an index: what a slice leaves of the operand's."""
    source, out = 0, 0
    for item in expr.data:
        if out == axis and (item is None or item[0] == "slice"):
            break
        source += item is not None
        out += item is None or item[0] == "slice"
    else:
        return structural_dim(expr.args[0], source + axis - out)
    if item is None:
        return "1"
    _, start, step, stop = item
    whole = structural_dim(expr.args[0], source)
    if stop == "?" or ((stop is None or stop.startswith("-")) and whole is None):
        return None
    if stop is not None and not stop.startswith("-"):
        have, left = sizes(expr.args[0].shapes, source), sizes(expr.shapes, axis)
        if start.isdigit() and stop.isdigit():
            return str(len(range(int(start), int(stop), step))) if min(have) >= int(stop) else None
        binds = start == "0" and step == 1 and all(size < whole for size, whole in zip(left, have, strict=True))
        return stop if binds else None
    if start.startswith("-"):
        return start[1:] if stop is None and step == 1 else None
    if start.isdigit() and (stop is None or stop[1:].isdigit()):  # how many of (whole + more) // step there are
        more = step - 1 - int(start) - int(stop[1:] if stop else 0)
        text = f"{whole} {'+' if more > 0 else '-'} {abs(more)}" if more else f"{whole}"
    else:
        text = f"{whole} - {start}" + (f" - {stop[1:]}" if stop else "") + (f" + {step - 1}" if step > 1 else "")
    return text if step == 1 else f"({text}) // {step}" if " " in text else f"{text} // {step}"
