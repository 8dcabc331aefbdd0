"""Can a good pass be told from a bad one on this graph? robust-kbench's filters and ours, after DESIGN's probes.

    draws of several seeds -> outputs -> what they show: values, axes, inputs, operators, probes

A finding is a reason to leave a graph out. The graph runs here, on the CPU: call it in a process of its own, on graphs
whose source passed the allow-list (load_graph_module and trace_graph check it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from data.graph import Graph
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from eval_harness.comparison import first_correct_level
from eval_harness.graph_ir import IRGraph, IRNode
from eval_harness.ir_execution import on_device, run_node
from eval_harness.tracing import TensorMeta, TracedGraph, is_in_place, trace_graph
from eval_harness.verdict import STRICT_LEVEL

NUM_SEEDS = 10
"""robust-kbench's."""
THRESHOLD = 0.01
"""robust-kbench's, for magnitudes, deviations over seeds and ranges along an axis."""
NUM_PROBED = 3
"""Seeds on which a probe must be right to count as passing."""
REASONS = {
    "near_zero": "every output element lies within 0.01 of zero, for every seed",
    "same_for_all_seeds": "no output element deviates by 0.01 over the seeds",
    "uniform_axis": "an output is the same along an axis, for every seed",
    "input_without_effect": "an input can be replaced by another draw, and no output changes",
    "operator_without_effect": "an operator's result can be disturbed, and no output changes",
    "passes_zeros": "outputs of zeros are correct at t = -5",
    "passes_mean": "the mean of outputs over seeds is correct at t = -5",
    "passes_identity": "an input, or its beginning, is correct as output at t = -5",
    "does_not_run": "the graph cannot be run or traced",
}
"""Id -> what it says. The first five are of values, the probes are what a lazy pass would give."""

Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class ScreenFinding:
    """One reason against a graph."""

    reason: str
    """Of REASONS."""
    detail: str = ""
    """Which input, operator, output or axis."""


def screen_graph(graph: Graph, *, num_seeds: int = NUM_SEEDS) -> list[ScreenFinding]:
    """Everything that speaks against a graph; empty if nothing does. Never raises for a fault of the graph.

    num_seeds: robust draws, at least 2.
    """
    try:
        module = load_graph_module(graph, "cpu")
        draws = [draw_inputs(graph, seed=seed, mode="robust") for seed in range(num_seeds)]
        with torch.no_grad():
            outputs = [_run(module, inputs) for inputs in draws]
            return [
                *_of_values(outputs),
                *_of_inputs_and_operators(graph, module, draws, outputs[0]),
                *_of_probes(draws, outputs),
            ]
    except Exception as error:  # the graph's own code ran: anything may come out of it
        return [ScreenFinding("does_not_run", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")]


def screen_reason(graph: Graph, *, num_seeds: int = NUM_SEEDS) -> str | None:
    """What screen_graph finds, as one line that begins with the first reason's id; None if nothing."""
    found = [
        f"{each.reason} ({each.detail})" if each.detail else each.reason
        for each in screen_graph(graph, num_seeds=num_seeds)
    ]
    if not found:
        return None
    return f"{found[0].split(' (')[0]}: {'; '.join(found)}"


def _run(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Outputs:
    outputs = module(**{name: value.clone() for name, value in inputs.items()})
    return tuple(outputs)


def _of_values(outputs: Sequence[Outputs]) -> Iterator[ScreenFinding]:
    floats = [index for index, output in enumerate(outputs[0]) if output.is_floating_point()]
    # seeds, then the output's own shape
    stacked = {index: torch.stack([run[index].double() for run in outputs]) for index in floats}
    if not stacked:
        return
    if all(float(values.abs().max()) <= THRESHOLD for values in stacked.values()):
        yield ScreenFinding("near_zero")
    if all(float(values.std(dim=0).max()) < THRESHOLD for values in stacked.values()):
        yield ScreenFinding("same_for_all_seeds")
    for index, values in stacked.items():
        for axis in range(1, values.dim()):
            if values.shape[axis] > 1 and float((values.amax(axis) - values.amin(axis)).max()) < THRESHOLD:
                yield ScreenFinding("uniform_axis", f"output {index}, axis {axis - 1}")


def _of_inputs_and_operators(
    graph: Graph, module: torch.nn.Module, draws: Sequence[Mapping[str, torch.Tensor]], outputs: Outputs
) -> Iterator[ScreenFinding]:
    traced, inputs = trace_graph(graph), draws[0]
    is_pure = not any(is_in_place(node) for node in traced.ir.nodes)
    values = _interpret(traced.ir, inputs, None)
    nodes = {node.target: node for node in traced.ir.nodes if node.op == "placeholder"}
    for name in inputs:
        others = [draw[name] for draw in draws[1:] if not torch.equal(draw[name], inputs[name])]
        if not others:  # an input with one possible value, such as a full mask
            continue
        if is_pure:
            has_effect = any(_reaches_output(traced.ir, values, nodes[name], other) for other in others[:2])
        else:
            has_effect = any(not _equal(_run(module, {**inputs, name: other}), outputs) for other in others[:2])
        if not has_effect:
            yield ScreenFinding("input_without_effect", name)
    plain = _outputs(traced.ir, values)
    for node in traced.ir.nodes:
        if node.op not in ("call_function", "call_method") or not _is_of_tensor(traced, node):
            continue
        try:
            if is_pure:
                changed = _reaches_output(traced.ir, values, node, _other_values(values[node.name]))
            else:
                changed = not _equal(_outputs(traced.ir, _interpret(traced.ir, inputs, node)), plain)
        except Exception:  # an index out of bounds, a shape: the result was needed
            continue
        if not changed:
            yield ScreenFinding("operator_without_effect", f"{node.short_target} ({node.name})")


def _reaches_output(ir: IRGraph, values: Mapping[str, Any], disturbed: IRNode, other: torch.Tensor) -> bool:
    """Whether another value of one node changes an output. Only what depends on it is run again.

    For graphs in which nothing is written in place: the values of a plain run serve for all the rest.
    """
    others: dict[str, Any] = {disturbed.name: other}
    begun = False
    for node in ir.nodes:
        if node.name == disturbed.name:
            begun = True
        elif begun and not others.keys().isdisjoint(node.refs()):
            found = run_node(on_device(node, torch.device("cpu")), {**values, **others})
            if not _same(found, values[node.name]):
                others[node.name] = found
    return ir.output.name in others


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return _equal((left,), (right,))
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and left == right


def _is_of_tensor(traced: TracedGraph, node: IRNode) -> bool:
    return isinstance(traced.values.get(node.name), TensorMeta)


def _interpret(ir: IRGraph, inputs: Mapping[str, torch.Tensor], disturbed: IRNode | None) -> dict[str, Any]:
    """The value of every node; the result of `disturbed` is replaced by other values of its shape."""
    values: dict[str, Any] = {}
    for node in ir.nodes:
        if node.op == "placeholder":
            values[node.name] = inputs[node.target].clone()
            continue
        value = run_node(on_device(node, torch.device("cpu")), values)
        if disturbed is not None and node.name == disturbed.name and isinstance(value, torch.Tensor):
            other = _other_values(value)
            # later operators may read what was written rather than the result
            value = value.copy_(other) if is_in_place(node) else other
        values[node.name] = value
    return values


def _outputs(ir: IRGraph, values: Mapping[str, Any]) -> Outputs:
    outputs = values[ir.output.name]
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def _other_values(value: torch.Tensor) -> torch.Tensor:
    """Of the same shape and dtype, and different everywhere or nearly so."""
    if value.dtype == torch.bool:
        return ~value
    if not value.is_floating_point():
        return torch.where(value > 0, value - 1, value + 1)
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(0)).to(value.dtype)
    finite = torch.where(torch.isfinite(value), value, torch.zeros_like(value))
    return finite * (1 + 0.5 * noise) + noise


def _of_probes(draws: Sequence[Mapping[str, torch.Tensor]], outputs: Sequence[Outputs]) -> Iterator[ScreenFinding]:
    """What a lazy pass would return, by the harness's own comparison."""
    probed = outputs[:NUM_PROBED]
    if all(_is_right(tuple(torch.zeros_like(output) for output in run), run) for run in probed):
        yield ScreenFinding("passes_zeros")
    means = tuple(_mean([run[index] for run in outputs]) for index in range(len(outputs[0])))
    if all(_is_right(means, run) for run in probed):
        yield ScreenFinding("passes_mean")
    names = []
    for index in range(len(outputs[0])):
        runs = list(zip(draws[:NUM_PROBED], probed, strict=True))
        name = next((n for n in draws[0] if all(_is_beginning(d[n], run[index]) for d, run in runs)), None)
        names.append(name)
    if all(name is not None for name in names):
        yield ScreenFinding("passes_identity", ", ".join(map(str, names)))


def _mean(values: Sequence[torch.Tensor]) -> torch.Tensor:
    if not values[0].is_floating_point():
        return values[0]
    return torch.stack([value.double() for value in values]).mean(0).to(values[0].dtype)


def _is_beginning(argument: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether the first elements of an argument are the output, in whatever shape."""
    if argument.dtype != output.dtype or argument.numel() < output.numel():
        return False
    return _is_right((argument.reshape(-1)[: output.numel()].reshape(output.shape),), (output,))


def _is_right(candidate: Outputs, expected: Outputs) -> bool:
    levels = [first_correct_level(ours, theirs)[0] for ours, theirs in zip(candidate, expected, strict=True)]
    return all(level is not None and level <= STRICT_LEVEL for level in levels)


def _equal(left: Outputs, right: Outputs) -> bool:
    return all(
        one.shape == two.shape and torch.equal(one.nan_to_num(), two.nan_to_num())
        for one, two in zip(left, right, strict=True)
    )
