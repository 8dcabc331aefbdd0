"""torch on the host: elementwise operators, reductions, counts, orders and places over rows."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import binary
from eval_harness.batch_invariance.static.comparisons import extreme
from eval_harness.batch_invariance.static.contractions import EXACT, note_call, reduce_tensor
from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.reporting import PLACE, TOKEN_COUNTS, report
from eval_harness.batch_invariance.static.routing import FLAGS
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.triton_tiles import elem_of
from eval_harness.batch_invariance.static.values import (
    LIB,
    NUM,
    SEQ,
    STRUCT,
    TENSOR,
    Val,
    seq,
    stronger,
    struct,
    unknown,
)
from eval_harness.batch_invariance.static.words import words

REDUCTIONS = words(
    "sum mean prod std var norm logsumexp nansum max amax min amin argmax argmin any all count_nonzero median"
    " vector_norm var_mean std_mean"
)


ROW_WISE = words(
    "softmax log_softmax cumprod layer_norm rms_norm normalize logcumsumexp group_norm batch_norm instance_norm"
    " cosine_similarity cross_entropy nll_loss mse_loss kl_div avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d"
    " adaptive_avg_pool2d interpolate trace cdist fft rfft ifft irfft"
)


_COMPUTES = words(
    "exp exp2 expm1 log log2 log1p tanh erf gelu silu sigmoid softplus pow square rsqrt sqrt reciprocal relu mish elu"
    " hardswish sin cos float half bfloat16 to type mul div add sub addcmul addcdiv lerp round"
)


_INTEGER_RESULTS = words("long int argsort bucketize searchsorted nonzero bincount unique arange randint")


def first_tensor(operands: list[Val], kwargs: dict[str, Val]) -> Val | None:
    for value in (*operands, *kwargs.values()):
        if value.kind == TENSOR:
            return value
        if value.kind == SEQ and value.data:
            for item in value.data:
                if item.kind == TENSOR:
                    return item
    return None


def elementwise(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """An operator that computes every element for itself, or one not known."""
    tensor = first_tensor(operands, kwargs)
    if tensor is None:
        return unknown(struct(strongest([*operands, *kwargs.values()])))
    if tensor.elem == "f" and name in _COMPUTES:
        how = kwargs.get("approximate")
        target = operands[1].data if name == "to" and len(operands) > 1 and operands[1].kind == LIB else None
        run.events["op", name, how.const if how is not None else None, target] = None
    if len(operands) == 2 and name in ("add", "sub", "mul", "div", "true_divide"):
        return binary(ast.Add, operands[0], operands[1])
    value = tensor.copy()
    if tensor.elem == "b" and name in ("to", "int", "long", "type", "float"):
        value.name = FLAGS
    for other in operands:
        if other.kind == TENSOR and other is not tensor:
            if other.batch is not None and value.batch is None:
                value.batch, value.dims = other.batch, other.dims
            value.dep = stronger(value.dep, other.dep)
    dtype = kwargs.get("dtype") or (operands[1] if name in ("to", "type") and len(operands) > 1 else None)
    changed = elem_of(dtype) if dtype is not None and dtype.kind == LIB else None
    value.elem = changed or (
        "i" if name in _INTEGER_RESULTS else "f" if name in ("float", "half", "bfloat16") else value.elem
    )
    return value


def axes_of(operands: list[Val], kwargs: dict[str, Val]) -> tuple[list[int] | None, bool]:
    """(axes or None for all, whether they are known)."""
    axis = kwargs.get("dim", kwargs.get("axis"))
    if axis is None and len(operands) > 1:
        axis = operands[1]
    if axis is None or axis.const is None:
        return None, True
    if axis.kind == SEQ and axis.data is not None:
        axes = [item.const for item in axis.data]
        return [place for place in axes if isinstance(place, int)], True
    if isinstance(axis.const, int) and not isinstance(axis.const, bool):
        return [axis.const], True
    return [], False


def reduction(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    tensor = first_tensor(operands[:1], {})
    if tensor is None:
        if operands and operands[0].kind == NUM:
            return operands[0]
        return elementwise(run, frame, name, operands, kwargs, node)
    if name in ("max", "min") and len(operands) > 1 and operands[1].kind == TENSOR:
        return extreme(operands[:2], name)
    axes, _ = axes_of(operands, kwargs)
    if name in ("norm", "vector_norm") and "dim" not in kwargs and len(operands) < 3:
        axes = None
    is_vector = tensor.dims is not None and len(tensor.dims) == 1 and tensor.batch == 0
    if name == "sum" and axes and tensor.elem in ("i", "b") and tensor.batch is not None and tensor.batch in axes:
        return counted(frame, tensor, node)
    if axes is None or (is_vector and "keepdim" not in kwargs):
        if tensor.elem not in ("i", "b") and name not in EXACT:
            note_call(run, frame, node, name)
        if tensor.batch is not None:
            return sources.over_rows(frame, tensor, name, node.lineno)
    keep = kwargs.get("keepdim")
    keeps = (keep is not None and keep.const is not False) or any(operand.const is True for operand in operands[2:3])
    value = reduce_tensor(run, frame, node, name, tensor, axes, keeps)
    if (name in ("max", "min", "median") and axes is not None) or name.endswith("_mean"):
        return seq([value, value])
    return value


def counted(frame: Frame, tensor: Val, node: ast.Call) -> Val:
    """Counts over all rows (tokens an expert got): contents that follow the company of a row."""
    value = Val(TENSOR, sources.source(frame, node.lineno, TOKEN_COUNTS), elem="i")
    if tensor.dims is not None and tensor.batch is not None:
        value.dims = tuple(size for at, size in enumerate(tensor.dims) if at != tensor.batch)
    return value


def count(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """bincount, histc: how many of each, over all rows."""
    tensor = first_tensor(operands, kwargs)
    if tensor is None or tensor.batch is None:
        return elementwise(run, frame, name, operands, kwargs, node)
    value = counted(frame, tensor, node)
    value.dims = None
    return value


def mapped(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """unique, nonzero, searchsorted,: where rows lie, which fixes no sum."""
    value = elementwise(run, frame, name, operands, kwargs, node)
    if value.kind == TENSOR:
        value.elem = "i" if name not in ("repeat_interleave", "unique") else value.elem
        if value.dep is not None and value.dep.mode != STRUCT:
            value.dep = None
        value.dims = None
        if name in ("nonzero", "unique", "unique_consecutive"):
            value.dep = None
            value.batch = None
    return value


def running(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """cumsum: of flags over the rows, it gives every row its place among the others."""
    tensor = first_tensor(operands[:1], {})
    axes, _ = axes_of(operands, kwargs)
    if tensor is not None and tensor.elem in ("i", "b") and axes and tensor.batch in axes:
        value = tensor.copy()
        value.elem = "i"
        if tensor.elem == "b" or tensor.name == FLAGS:
            value.dep = sources.source(frame, node.lineno, PLACE)
        elif value.dep is not None and value.dep.mode != STRUCT:
            value.dep = None  # offsets
        return value
    return row_wise(run, frame, name, operands, kwargs, node)


def row_wise(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    value = elementwise(run, frame, name, operands, kwargs, node)
    if value.elem in ("i", "b"):
        return value
    if operands and operands[0].dims is not None:
        axes, _ = axes_of(operands, kwargs)
        if axes:
            reduce_tensor(run, frame, node, name, operands[0], axes, True)
            return value
    note_call(run, frame, node, name)
    return value


def topk(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """topk, sort: exact; experts that choose among all tokens make a token depend on the others."""
    value = elementwise(run, frame, name, operands, kwargs, node)
    axis = kwargs.get("dim") or (operands[2] if name == "topk" and len(operands) > 2 else None)
    if name == "topk" and axis is not None and isinstance(axis.const, int) and value.kind == TENSOR:
        place = axis.const if value.dims is None else axis.const % max(len(value.dims), 1)
        if place == value.batch:
            dep = sources.source(frame, node.lineno)
            what = "which tokens an expert takes among all of the batch"
            report(run, frame, node.lineno, Mechanism.EXPERT_ROUTING, "capacity", dep, what)
    if value.dep is not None:
        value.dep = struct(value.dep)
    indices = value.copy()
    indices.elem = "i"
    if name == "argsort":
        return indices
    return seq([value, indices])
