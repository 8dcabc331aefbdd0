"""Functions that the sources do not hold: what they may do stays open, protected arguments do not."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.tensor_reductions import first_tensor
from eval_harness.batch_invariance.static.values import TENSOR, Val, guess, struct, unknown
from eval_harness.batch_invariance.static.words import words

_ORDER_FREE = words(
    "relu gelu silu sigmoid tanh exp log sqrt rsqrt pow square clamp neg sign to type float half bfloat16 synchronize"
    " is_available current_device get_device_properties get_device_capability device stream Stream"
    " current_stream empty_cache"
    " set_device no_grad inference_mode compile register_buffer register_parameter Parameter warn warning info debug"
    " get finfo iinfo dtype is_contiguous is_cuda assert_close isfinite isnan where masked_fill gather scatter"
    " driver get_current_target cdiv super mark_non_differentiable save_for_backward"
)


def unknown_call(
    run: Run,
    frame: Frame,
    name: str,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.Call,
    *,
    passes_on: bool = False,
) -> Val:
    """A function that the sources do not hold: it may add anything up in any order."""
    tensor = first_tensor(args, kwargs)
    check_protected(run, frame, name, kwargs, node)
    is_plain = name in _ORDER_FREE or (frame.module.is_cuda and (name.startswith("cuda") or name.isupper()))
    if tensor is not None and frame.kernel is None and not is_plain:
        run.events[("call", name)] = None
        run.leave_open(frame, node.lineno, f"{name}: not among these sources")
    if tensor is not None:
        value = tensor.copy()
        value.dims = None
        return value
    dep = strongest([*args, *kwargs.values()])
    return unknown(struct(dep) if passes_on else guess(dep))


def check_protected(run: Run, frame: Frame, name: str, kwargs: dict[str, Val], node: ast.Call) -> None:
    """A protected parameter handed to a function that cannot be looked into."""
    for key, value in kwargs.items():
        if value.dep is None or value.kind == TENSOR:
            continue
        parameter = run.parameters.get(key)
        if parameter is not None and parameter.is_protected:
            line = next(keyword.value.lineno for keyword in node.keywords if keyword.arg in (key, None))
            dep = value.dep.step(frame.module.file, line + frame.module.first_line, key)
            report(run, frame, line, Mechanism.WORK_PARTITIONING, "opaque", dep, f"{key} of {name}")
