"""What triton.language does inside a kernel: indices, tiles, loads, sums, products, scans, atomics, random numbers."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.comparisons import extreme
from eval_harness.batch_invariance.static.kernel_values import num_programs, program_id
from eval_harness.batch_invariance.static.python_containers import counter_range
from eval_harness.batch_invariance.static.state import Frame, Handler, Run
from eval_harness.batch_invariance.static.triton_sums import (
    atomic,
    dot,
    extreme_of,
    random_numbers,
    reduce_tile,
    softmax,
)
from eval_harness.batch_invariance.static.triton_tiles import (
    arange,
    argument,
    block_pointer,
    full,
    like,
    load_tile,
    pointwise,
    reshape,
    same,
    store_tile,
    where,
)
from eval_harness.batch_invariance.static.values import (
    Val,
)


def call_triton(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val | None:
    """The value of tl.name(...); None: not a function known here."""
    handler = HANDLERS.get(name)
    return handler(run, frame, name, args, kwargs, node) if handler is not None else None


def _program_id(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    axis = argument(args, kwargs, 0, "axis")
    position = axis.const if axis is not None and isinstance(axis.const, int) else 0
    return program_id(frame, position) if name == "program_id" else num_programs(frame, position)


def _pairwise(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return extreme(args, "min" if "min" in name else "max")


def _range(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val:
    return counter_range(run, frame, args, kwargs, node)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("program_id", "num_programs"), _program_id),
    "arange": arange,
    **dict.fromkeys(("zeros", "full", "empty"), full),
    **dict.fromkeys(("zeros_like", "full_like"), like),
    "load": load_tile,
    "store": store_tile,
    **dict.fromkeys(("make_block_ptr", "make_tensor_descriptor"), block_pointer),
    **dict.fromkeys(("sum", "cumsum", "cumprod", "reduce", "associative_scan", "xor_sum"), reduce_tile),
    **dict.fromkeys(("dot", "dot_scaled"), dot),
    **dict.fromkeys(("max", "min", "argmax", "argmin"), extreme_of),
    **dict.fromkeys(("maximum", "minimum"), _pairwise),
    "where": where,
    **dict.fromkeys(("range", "static_range"), _range),
    **dict.fromkeys(("rand", "randn", "randint", "rand4x", "randn4x", "randint4x", "philox"), random_numbers),
    **dict.fromkeys(("atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_or"), atomic),
    **dict.fromkeys(
        ("trans", "permute", "expand_dims", "join", "split", "cat", "interleave", "ravel", "flatten", "reshape", "view",
         "broadcast_to"),
        reshape,
    ),
    **dict.fromkeys(("cast", "multiple_of", "max_contiguous", "max_constancy", "assume", "advance", "to_tensor"), same),
    **dict.fromkeys(
        ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "sigmoid", "tanh", "erf", "fma", "floor", "ceil",
         "abs", "fdiv", "div_rn", "sqrt_rn", "pow", "fast_expf"),
        pointwise,
    ),
    "softmax": softmax,
}  # fmt: skip
