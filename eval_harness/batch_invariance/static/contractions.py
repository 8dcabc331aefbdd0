"""Host-side reductions and products: which size is added up, and whether it follows the batch."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.merging import merge
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import EXTENT, ROWS, TENSOR, Val, num, stronger


def contraction(run: Run, frame: Frame, node: Any, name: str, a: Val, b: Val) -> Val:
    """a @ b: opaque, except that an inner size which follows the batch changes the sums for certain."""
    inner = None
    if a.dims:
        inner = a.dims[-1]
    if (inner is None or inner.dep is None) and b.dims:
        inner = b.dims[-2] if len(b.dims) > 1 else b.dims[0]
    check_summed(run, frame, node, name, inner)
    note_call(run, frame, node, name)
    value = Val(TENSOR, stronger(a.dep, b.dep), elem="f")
    left = a if a.kind == TENSOR else b
    value.batch = left.batch if left.batch is not None and (a.dims is None or left.batch < len(a.dims) - 1) else b.batch
    if a.dims is not None and b.dims is not None and len(a.dims) >= 2 and len(b.dims) >= 2:
        value.dims = (*a.dims[:-1], b.dims[-1])
    elif a.dims is not None and b.kind == TENSOR and len(a.dims) == 2 and a.batch == 0:
        value.dims = (a.dims[0], num(elem="i"))
    return value


def check_summed(run: Run, frame: Frame, node: ast.AST, name: str, size: Val | None) -> None:
    """A finding where the size that is added up follows the batch; adding up the rows themselves is none."""
    if size is None or size.dep is None or size.dep.mode == ROWS:
        return
    if size.dep.mode == EXTENT:  # padded to the longest row: zeros added to a sum of another length
        run.leave_open(frame, node.lineno, f"{name}: adds up as much as the longest row of the batch has")  # type: ignore[attr-defined]
        return
    report(
        run,
        frame,
        node.lineno,  # type: ignore[attr-defined]
        Mechanism.WORK_PARTITIONING if size.dep.part else Mechanism.REDUCTION_ORDER,
        "parts",
        size.dep,
        f"the size that {name} adds up",
    )


def note_call(run: Run, frame: Frame, node: ast.AST, name: str) -> None:
    """An operator of a library: an event for comparing ways, and open to the dynamic validator."""
    run.events[("call", name)] = None
    run.leave_open(
        frame,
        node.lineno,  # type: ignore[attr-defined]
        f"{name}: the library may choose its algorithm by the batch",
    )


def reduce_tensor(run: Run, frame: Frame, node: Any, name: str, x: Val, axes: list[int] | None, keep: bool) -> Val:
    """x.sum(axes) and its like; None: over everything."""
    value = x.copy()
    value.elem = "i" if name in ("argmax", "argmin", "count_nonzero") else x.elem
    if x.dims is not None:
        rank = len(x.dims)
        chosen = {axis % rank for axis in axes if -rank <= axis < rank} if axes is not None else set(range(rank))
        if name not in EXACT and x.elem not in ("i", "b"):
            for axis in chosen:
                check_summed(run, frame, node, name, x.dims[axis])
        value.dims = tuple(size for axis, size in enumerate(x.dims) if axis not in chosen)
        if keep:
            value.dims = x.dims
        if x.batch is not None and x.batch in chosen:
            value.batch = None
        elif x.batch is not None and not keep:
            value.batch = x.batch - sum(axis < x.batch for axis in chosen)
    elif axes is None or (x.batch is not None and x.batch in axes):
        value.batch = None
    elif x.batch is not None and not keep:
        value.batch = x.batch - sum(0 <= axis < x.batch for axis in axes)
    if name not in EXACT and x.elem not in ("i", "b"):
        note_call(run, frame, node, name)
    return value


EXACT = frozenset(("max", "amax", "min", "amin", "argmax", "argmin", "any", "all", "count_nonzero", "bincount"))
"""Reductions whose bits do not depend on the order."""


def einsum(run: Run, frame: Frame, node: Any, equation: str, operands: list[Val]) -> Val:
    """torch.einsum: letters that are missing on the right are added up."""
    left, _, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, Val] = {}
    batch_letter = None
    for letters, operand in zip(left.split(","), operands, strict=False):
        if operand.dims is not None and len(operand.dims) == len(letters):
            for letter, size in zip(letters, operand.dims, strict=True):
                sizes[letter] = merge(sizes[letter], size) if letter in sizes else size
        if batch_letter is None and operand.batch is not None and operand.batch < len(letters):
            batch_letter = letters[operand.batch]
    note_call(run, frame, node, "einsum")
    for letter in dict.fromkeys(left.replace(",", "")):
        if right and letter not in right:
            check_summed(run, frame, node, "einsum", sizes.get(letter))
    value = Val(TENSOR, elem="f")
    if right and "." not in right:
        value.dims = tuple(sizes.get(letter) or num(elem="i") for letter in right)
        value.batch = right.index(batch_letter) if batch_letter is not None and batch_letter in right else None
    else:
        value.batch = 0 if batch_letter is not None else None
    return value
