"""torch on the host: sizes, views, factories, reductions, products, random numbers; as functions and as methods."""

from __future__ import annotations

import ast
from collections.abc import Callable

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.arithmetic import OWN, binary, extreme
from eval_harness.batch_invariance.static.buffers import Buffer
from eval_harness.batch_invariance.static.contractions import EXACT, contraction, einsum, note_call, reduce_tensor
from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.tensor_views import VIEWS, join, sizes_from, view
from eval_harness.batch_invariance.static.triton_library import elem_of
from eval_harness.batch_invariance.static.values import (
    LIB,
    NUM,
    ROWS,
    SEQ,
    SHAPE,
    STRUCT,
    TENSOR,
    Val,
    num,
    seq,
    stronger,
    struct,
    unknown,
)

Handler = Callable[[Run, Frame, str, list[Val], dict[str, Val], ast.Call], Val]

_REDUCTIONS = frozenset(
    "sum mean prod std var norm logsumexp nansum max amax min amin argmax argmin any all count_nonzero median"
    " vector_norm var_mean std_mean".split()
)
_ROW_WISE = frozenset(
    "softmax log_softmax cumsum cumprod layer_norm rms_norm normalize logcumsumexp group_norm batch_norm instance_norm"
    " cosine_similarity cross_entropy nll_loss mse_loss kl_div avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d"
    " adaptive_avg_pool2d interpolate trace cdist fft rfft ifft irfft histc".split()
)
_PRODUCTS = frozenset("matmul mm bmm dot mv inner".split())
_OPAQUE = frozenset(
    "linear addmm baddbmm addbmm addmv conv1d conv2d conv3d conv_transpose2d tensordot scaled_dot_product_attention"
    " bilinear embedding_bag index_add index_add_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ kron outer"
    " multi_head_attention_forward lstm gru chain_matmul multi_dot _scaled_mm _grouped_mm _int_mm svd qr cholesky"
    " solve inverse index_put_ addmm_ baddbmm_ segment_reduce".split()
)
_FACTORIES = frozenset("empty zeros ones full new_empty new_zeros new_ones new_full empty_strided".split())
_RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like bernoulli multinomial dropout normal uniform_ normal_"
    " exponential_ random_ bernoulli_ randperm gumbel_softmax log_normal_ cauchy_ geometric_ alpha_dropout".split()
)
_COMPUTES = frozenset(
    "exp exp2 expm1 log log2 log1p tanh erf gelu silu sigmoid softplus pow square rsqrt sqrt reciprocal relu mish elu"
    " hardswish sin cos float half bfloat16 to type mul div add sub addcmul addcdiv lerp round".split()
)
_INTEGER_RESULTS = frozenset("long int argsort bucketize searchsorted nonzero bincount unique arange randint".split())


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
    return _elementwise(run, frame, name, operands, kwargs, node)


def first_tensor(operands: list[Val], kwargs: dict[str, Val]) -> Val | None:
    for value in (*operands, *kwargs.values()):
        if value.kind == TENSOR:
            return value
        if value.kind == SEQ and value.data:
            for item in value.data:
                if item.kind == TENSOR:
                    return item
    return None


def _elementwise(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
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


def _reduction(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    tensor = first_tensor(operands[:1], {})
    if tensor is None:
        if operands and operands[0].kind == NUM:
            return operands[0]
        return _elementwise(run, frame, name, operands, kwargs, node)
    if name in ("max", "min") and len(operands) > 1 and operands[1].kind == TENSOR:
        return extreme(operands[:2], name)
    axes, _ = axes_of(operands, kwargs)
    if name in ("norm", "vector_norm") and "dim" not in kwargs and len(operands) < 3:
        axes = None
    is_vector = tensor.dims is not None and len(tensor.dims) == 1 and tensor.batch == 0
    if axes is None or (is_vector and "keepdim" not in kwargs):
        if tensor.elem not in ("i", "b") and name not in EXACT:
            note_call(run, frame, node, name)
        if tensor.batch is not None:
            return sources.over_rows(frame, tensor, name, node.lineno)
    keep = kwargs.get("keepdim")
    keeps = (keep is not None and keep.const is not False) or any(operand.const is True for operand in operands[2:3])
    value = reduce_tensor(run, frame, node, name, tensor, axes, keeps)
    if name in ("max", "min", "median") and axes is not None or name.endswith("_mean"):
        return seq([value, value])
    return value


def _row_wise(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    value = _elementwise(run, frame, name, operands, kwargs, node)
    if value.elem in ("i", "b"):
        return value
    if operands and operands[0].dims is not None:
        axes, _ = axes_of(operands, kwargs)
        if axes:
            reduce_tensor(run, frame, node, name, operands[0], axes, True)
            return value
    note_call(run, frame, node, name)
    return value


def _product(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    values = [*operands, *kwargs.values()]
    if len(values) < 2:
        return unknown()
    return contraction(run, frame, node, name, values[0], values[1])


def _opaque(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    note_call(run, frame, node, name)
    value = _elementwise(run, frame, name, operands, kwargs, node)
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


def _topk(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    """topk, sort: exact; experts that choose among all tokens make a token depend on the others."""
    value = _elementwise(run, frame, name, operands, kwargs, node)
    axis = kwargs.get("dim") or (operands[2] if name == "topk" and len(operands) > 2 else None)
    if name == "topk" and axis is not None and isinstance(axis.const, int) and value.kind == TENSOR:
        place = axis.const if value.dims is None else axis.const % max(len(value.dims), 1)
        if place == value.batch:
            dep = sources.source(frame, node.lineno)
            what = "which tokens an expert takes among all of the batch"
            report(run, frame, node.lineno, Mechanism.EXPERT_ROUTING, "capacity", dep, what)
    indices = value.copy()
    indices.elem = "i"
    if name == "argsort":
        return indices
    return seq([value, indices])


def _join(run: Run, frame: Frame, name: str, operands: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    if not operands:
        return unknown()
    axis = operands[1] if len(operands) > 1 else kwargs.get("dim", kwargs.get("axis"))
    return join("stack" if name == "stack" else "cat", operands[0], axis)


_HANDLERS: dict[str, Handler] = {
    "size": _size,
    **dict.fromkeys(("numel", "nelement"), _numel),
    **dict.fromkeys(("dim", "ndimension", "stride", "element_size", "storage_offset", "itemsize", "get_device"), _plain_number),
    **dict.fromkeys(("data_ptr", "const_data_ptr", "mutable_data_ptr", "detach", "clone", "contiguous", "cpu", "cuda"), _pointer),
    **dict.fromkeys(("item", "tolist", "numpy"), _item),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_ROW_WISE, _row_wise),
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
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue"), _topk),
}  # fmt: skip

KNOWN = frozenset(_HANDLERS) | VIEWS
"""Names that this module knows as operators of tensors."""
