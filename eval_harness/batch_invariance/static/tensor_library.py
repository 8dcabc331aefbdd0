"""torch on the host: sizes, views, factories, reductions, products, random numbers; as functions and as methods."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import OWN
from eval_harness.batch_invariance.static.buffers import Buffer
from eval_harness.batch_invariance.static.contractions import contraction, einsum, note_call
from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.routing import FLAGS
from eval_harness.batch_invariance.static.state import Frame, Handler, Run
from eval_harness.batch_invariance.static.tensor_reductions import (
    REDUCTIONS,
    ROW_WISE,
    count,
    elementwise,
    first_tensor,
    mapped,
    reduction,
    row_wise,
    running,
    topk,
)
from eval_harness.batch_invariance.static.tensor_views import VIEWS, join, sizes_from, view
from eval_harness.batch_invariance.static.triton_tiles import elem_of
from eval_harness.batch_invariance.static.values import (
    NUM,
    ROWS,
    SEQ,
    SHAPE,
    STRUCT,
    TENSOR,
    Val,
    num,
    seq,
    unknown,
)
from eval_harness.batch_invariance.static.words import words

_PRODUCTS = words("matmul mm bmm dot mv inner")
_OPAQUE = words(
    "linear addmm baddbmm addbmm addmv conv1d conv2d conv3d conv_transpose2d tensordot scaled_dot_product_attention"
    " bilinear embedding_bag index_add index_add_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ kron outer"
    " multi_head_attention_forward lstm gru chain_matmul multi_dot _scaled_mm _grouped_mm _int_mm svd qr cholesky"
    " solve inverse index_put_ addmm_ baddbmm_ segment_reduce"
)
_FACTORIES = words("empty zeros ones full new_empty new_zeros new_ones new_full empty_strided")
_RANDOM = words(
    "rand randn randint rand_like randn_like randint_like bernoulli multinomial dropout normal uniform_ normal_"
    " exponential_ random_ bernoulli_ randperm gumbel_softmax log_normal_ cauchy_ geometric_ alpha_dropout"
)


def call_tensor(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call, owner: Val | None
) -> Val:
    """torch.name(...), or owner.name(...) for a tensor."""
    operands = [owner, *args] if owner is not None else args
    if name in VIEWS and operands and operands[0].kind == TENSOR:
        return view(run, frame, name, operands[0], operands[1:], kwargs, node)
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(run, frame, name, operands, kwargs, node)
    return elementwise(run, frame, name, operands, kwargs, node)


def _size(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    tensor = operands[0]
    position = operands[1] if len(operands) > 1 else kwargs.get("dim")
    if position is None:
        return Val(SHAPE, data=(tensor, 0, None))
    if not isinstance(position.const, int):
        return num(elem="i")
    return sources.size_at(frame, tensor, position.const, node.lineno)


def _numel(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return sources.count_elements(frame, operands[0], node.lineno) if operands else num()


def _plain_number(
    run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val:
    return num(elem="i")


def _pointer(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return operands[0]


def _item(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """x.item(): a number; x.tolist(): one entry a row, where x has rows."""
    tensor = operands[0]
    if name == "item":
        value = num(tensor.dep, tensor.elem)
        value.batch = tensor.batch
        return value
    entry = num(tensor.dep, tensor.elem)
    entry.batch, entry.name = tensor.batch, OWN if tensor.batch is not None else None
    value = seq(None, None, entry)
    value.name = sources.PER_ROW if tensor.batch is not None else None
    return value


def _one_hot(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    value = operands[0].copy() if operands else unknown()
    if operands and operands[0].dims is not None:
        value.dims = (*operands[0].dims, num(elem="i"))
    value.elem, value.name = "i", FLAGS
    return value


def _product(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    values = [*operands, *kwargs.values()]
    if len(values) < 2:
        return unknown()
    return contraction(run, frame, node, name, values[0], values[1])


def _opaque(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    note_call(run, frame, node, name)
    value = elementwise(run, frame, name, operands, kwargs, node)
    if value.kind == TENSOR and name != "scaled_dot_product_attention" and not name.endswith("_"):
        value.dims = None
        if name in ("addmm", "baddbmm") and len(operands) > 2:
            return contraction(run, frame, node, name, operands[1], operands[2])
        if name == "linear" and len(operands) > 1 and operands[0].dims:
            value.dims = (*operands[0].dims[:-1], num(elem="i"))
    return value


def _einsum(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if operands and isinstance(operands[0].const, str):
        return einsum(run, frame, node, operands[0].const, operands[1:])
    return _opaque(run, frame, name, operands, kwargs, node)


def _factory(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    shape = operands[1:] if name.startswith("new_") else operands
    if "size" in kwargs:
        shape = [kwargs["size"], *shape]
    fill: Val | None = None
    if name in ("full", "new_full"):
        fill = shape[1] if len(shape) > 1 else kwargs.get("fill_value")
        shape = shape[:1]
    value = Val(TENSOR, elem=elem_of(kwargs.get("dtype")) or "f")
    value.dims, value.batch = sizes_from(shape, None)
    if fill is not None:
        value.dep = fill.dep
    value.data = Buffer()
    return value


def _like(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not operands:
        return unknown()
    value = operands[0].copy()
    value.dep, value.data = None, Buffer()
    value.elem = elem_of(kwargs.get("dtype")) or value.elem
    return value


def _tensor(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """torch.tensor(list): contents that follow the batch stay so; a list with an entry a row has rows."""
    if not operands:
        return unknown()
    source = operands[0]
    if source.kind == TENSOR:
        return source
    value = Val(TENSOR, strongest([source]), elem=elem_of(kwargs.get("dtype")))
    if source.kind == SEQ and source.data is None and source.dep is None:
        value.batch = 0
    return value


def _arange(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    bounds = [*operands, *(value for key, value in kwargs.items() if key in ("start", "end", "step"))]
    dep = strongest(bounds)
    value = Val(TENSOR, elem="i")
    if dep is not None and dep.mode == STRUCT:
        value.dep = dep
    value.dims = (num(dep, "i"),)
    value.batch = 0 if dep is not None and dep.mode == ROWS else None
    return value


def _random(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """One stream for all rows: a row's numbers move with its place and with the batch."""
    training = kwargs.get("training")
    if name == "dropout" and training is not None and training.const is False:
        return operands[0] if operands else unknown()
    tensor = first_tensor(operands, kwargs)
    if tensor is not None:
        value = tensor.copy()
    else:
        shape = [operand for operand in operands if operand.kind in (NUM, SEQ, SHAPE)]
        shape = shape[2:] if name == "randint" and len(shape) > 2 else shape[-1:] if name == "randint" else shape
        value = Val(TENSOR, elem="i" if name in ("randint", "randperm") else "f")
        value.dims, value.batch = sizes_from([*shape, *([kwargs["size"]] if "size" in kwargs else [])], None)
    if name == "multinomial":
        value.elem = "i"
    dep = next((size.dep for size in value.dims or () if size.dep is not None), None)
    if dep is None and value.batch is not None:
        dep = sources.source(frame, node.lineno)
    if dep is not None:
        what = f"the random stream that {name} shares out to all rows"
        report(run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "random", dep, what)
    return value


def _seed(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    dep = strongest([*operands, *kwargs.values()])
    if dep is not None:
        report(run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "random", dep, "the seed of the random numbers")
    return unknown()


def _join(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not operands:
        return unknown()
    axis = operands[1] if len(operands) > 1 else kwargs.get("dim", kwargs.get("axis"))
    return join("stack" if name == "stack" else "cat", operands[0], axis)


_HANDLERS: dict[str, Handler] = {
    "size": _size,
    **dict.fromkeys(("numel", "nelement"), _numel),
    **dict.fromkeys(words("dim ndimension stride element_size storage_offset itemsize get_device"), _plain_number),
    **dict.fromkeys(words("data_ptr const_data_ptr mutable_data_ptr detach clone contiguous cpu cuda"), _pointer),
    **dict.fromkeys(("item", "tolist", "numpy"), _item),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(ROW_WISE, row_wise),
    "cumsum": running,
    "one_hot": _one_hot,
    **dict.fromkeys(("bincount", "histc", "histogram"), count),
    **dict.fromkeys(
        ("unique", "unique_consecutive", "nonzero", "searchsorted", "bucketize", "repeat_interleave"), mapped
    ),
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_OPAQUE, _opaque),
    "einsum": _einsum,
    **dict.fromkeys(("stack", "cat", "concat", "concatenate"), _join),
    **dict.fromkeys(_FACTORIES, _factory),
    **dict.fromkeys(("empty_like", "zeros_like", "ones_like", "full_like"), _like),
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy", "asarray", "IntTensor", "LongTensor"), _tensor),
    **dict.fromkeys(("arange", "linspace"), _arange),
    **dict.fromkeys(_RANDOM, _random),
    **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state"), _seed),
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue"), topk),
}  # fmt: skip

KNOWN = frozenset(_HANDLERS) | VIEWS
"""Names that this module knows as operators of tensors."""
