"""Coverage: how much of a graph's own work a rewrite replaced.

The share of the eager time of a graph's operators other than vendor primitives that was replaced. Vendor primitives
(matmul, convolution, attention) count on neither side: a pass neither gains nor loses by leaving them to the vendor's
library. time_nodes measures eager time a node; it runs in the trusted reference process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from eval_harness.graph_ir import IRGraph, IRNode
from eval_harness.graph_targets import resolve_target
from eval_harness.graph_values import map_refs
from eval_harness.ir_execution import on_device
from eval_harness.tracing import TracedGraph, is_in_place

_VENDOR = frozenset(
    """
    matmul imatmul __matmul__ __rmatmul__ mm bmm mv dot vdot inner addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ addmv
    addmv_ chain_matmul multi_dot tensordot einsum bilinear linear _scaled_mm scaled_mm grouped_mm scaled_grouped_mm
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc convolution _convolution
    cudnn_convolution scaled_dot_product_attention multi_head_attention_forward _native_multi_head_attention
    lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    """.split()  # noqa: SIM905 - a table of words reads better than a list of quoted ones
)
_WARMUPS = 2


def is_vendor_primitive(node: IRNode) -> bool:
    """Whether a node is matrix multiplication, convolution, attention or a recurrent layer, however it is spelled."""
    if node.op == "call_method":
        return node.target in _VENDOR
    if node.op != "call_function":
        return False
    parts = node.target.split(".")
    # torch.ops.aten.mm.default carries an overload after the name
    name = parts[3] if node.target.startswith("torch.ops.aten.") else parts[-1]
    return name in _VENDOR


def coverage(traced: TracedGraph, replaced_nodes: Collection[str], node_seconds: Mapping[str, float]) -> float:
    """The share, in 0..1, of the time of operators other than vendor primitives that was replaced.

    1.0 if the graph has no such operators and something was replaced, 0.0 if nothing was. node_seconds: of time_nodes;
    a node without a time counts as free.
    """
    if not replaced_nodes:
        return 0.0
    seconds = {node.name: max(node_seconds.get(node.name, 0.0), 0.0) for node in traced.ir.calls}
    own = [node.name for node in traced.ir.calls if not is_vendor_primitive(node)]
    total = sum(seconds[name] for name in own)
    if not own:
        return 1.0
    replaced = [name for name in own if name in replaced_nodes]
    if total <= 0.0:
        # too fast for the clock: by count
        return len(replaced) / len(own)
    return min(1.0, sum(seconds[name] for name in replaced) / total)


def time_nodes(
    ir: IRGraph, inputs: Sequence[torch.Tensor], device: torch.device | str, repeats: int = 15
) -> dict[str, float]:
    """Node -> seconds of eager time, the median over `repeats` runs of the graph, without the clock's own cost.

    inputs: in the order of the graph's arguments, on `device`; they are not changed. The clock is around each call
    alone: what the interpreter does between calls is not in it. On CUDA it is a pair of events around the call, with
    the device idle before, so it is the longer of launching and computing.
    """
    target = torch.device(device)
    clock = _cuda_clock if target.type == "cuda" else _cpu_clock
    nodes = [on_device(node, target) for node in ir.nodes]
    last_use = {ref: index for index, node in enumerate(nodes) for ref in node.refs()}
    frees: dict[int, list[str]] = {}
    for name, index in last_use.items():
        frees.setdefault(index, []).append(name)
    changes_inputs = any(is_in_place(node) for node in nodes)
    empty = statistics.median(clock(lambda: None)[1] for _ in range(101))
    taken: dict[str, list[float]] = {node.name: [] for node in ir.calls}
    with torch.no_grad():
        for repeat in range(_WARMUPS + repeats):
            values: dict[str, Any] = {}
            remaining = iter(tensor.clone() for tensor in inputs) if changes_inputs else iter(inputs)
            for index, node in enumerate(nodes):
                if node.op == "placeholder":
                    values[node.name] = next(remaining)
                elif node.op != "output":
                    values[node.name], seconds = clock(_bound_call(node, values))
                    if repeat >= _WARMUPS:
                        taken[node.name].append(max(seconds - empty, 0.0))
                for name in frees.get(index, ()):
                    del values[name]
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _bound_call(node: IRNode, values: Mapping[str, Any]) -> Callable[[], Any]:
    args = map_refs(node.args, lambda ref: values[ref.name])
    kwargs = map_refs(dict(node.kwargs), lambda ref: values[ref.name])
    if node.op == "call_function":
        function = resolve_target(node.target)
        return lambda: function(*args, **kwargs)
    owner, target, rest = args[0], node.target, args[1:]
    if node.op == "call_method":
        return lambda: getattr(owner, target)(*rest, **kwargs)
    return lambda: getattr(owner, target)


def _cpu_clock(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _cuda_clock(call: Callable[[], Any]) -> tuple[Any, float]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    result = call()
    end.record()
    end.synchronize()
    return result, start.elapsed_time(end) / 1e3
