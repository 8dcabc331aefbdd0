"""Sites: where rules match in a captured graph, each shown right on the values that really flow there, or left alone.

graph run once, node by node, on the inputs of the first call -> what enters and leaves each site -> the replacement
on the same -> shape, dtype, strides, values by the harness's comparison, inputs untouched -> accepted or not, and why
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from eval_harness.apply.operators import RuleOperator
from eval_harness.apply.segments import present
from eval_harness.comparison import OutputMeta, compare_metas, first_correct_level
from eval_harness.rewriting import AppliedMatch
from eval_harness.verdict import STRICT_LEVEL

_RANDOM_CALLS = frozenset(
    {"dropout", "rand", "randn", "randint", "bernoulli", "multinomial", "rand_like", "randn_like"}
)


@dataclass
class Site:
    """One match of one rule."""

    segment: int
    """Position of its segment among the graph's parts."""
    applied: AppliedMatch
    operator: RuleOperator
    nodes: list[str]
    """Names of the nodes that it replaces, in order."""
    reason: str = ""
    """Why it is left as it was; empty where it is applied."""

    @property
    def inputs(self) -> list[str]:
        """Nodes of the graph that the replacement reads."""
        return [self.applied.match.bindings[name] for name in self.operator.names]

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.applied.match.outputs


@dataclass
class _Recorder:
    """What the wanted nodes were, copied when they were made: later nodes may write in place."""

    wanted: set[str]
    values: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, value: Any) -> None:
        if name in self.wanted:
            self.values[name] = value.detach().clone() if isinstance(value, torch.Tensor) else value


class _Recording(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, recorder: _Recorder) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._recorder = recorder

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self._recorder.note(n.name, value)
        return value


def check_sites(module: torch.fx.GraphModule, sites: Sequence[Site], inputs: Sequence[Any]) -> list[str]:
    """Why each site may not be replaced on these inputs; empty text where it may. The inputs are not changed."""
    recorder = _Recorder({name for site in sites for name in (*site.inputs, *site.outputs)})
    with torch.no_grad(), torch.random.fork_rng(devices=_devices(inputs)):
        # copies: the graph may write into its inputs (caches, running statistics)
        _Recording(module, recorder).run(*map(_copied, inputs))
        return [_check(site, recorder.values) for site in sites]


def _check(site: Site, values: Mapping[str, Any]) -> str:
    inputs = [values[name] for name in site.inputs]
    given = [_copied(value) for value in inputs]
    expected = [values[name] for name in site.outputs]
    try:
        found = site.operator.results(given)
    except Exception as error:  # the pass's own code ran: anything may come out of it
        return f"its replacement raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if not all(isinstance(value, torch.Tensor) for value in found):
        return "its replacement returns something else than tensors"
    outcome, message = compare_metas([OutputMeta.of(v) for v in found], [OutputMeta.of(v) for v in expected])
    if outcome is not None:
        return f"its replacement gives another result, {outcome}: {message}"
    oracle = site.operator.reference(inputs, in_float64=True)
    for number, (ours, reference, exact) in enumerate(zip(found, expected, oracle, strict=True)):
        level, largest, message = first_correct_level(ours.detach(), reference, exact)
        if level is None or level > STRICT_LEVEL:
            return f"its replacement gives other values (output {number}, largest difference {largest:.3g}): {message}"
    for name, before, after in zip(site.inputs, inputs, given, strict=True):
        if isinstance(before, torch.Tensor) and not torch.equal(before.nan_to_num(), after.nan_to_num()):
            return f"its replacement writes into its input {name}"
    return ""


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else present(value)


def _devices(inputs: Sequence[Any]) -> list[int]:
    found = {value.device.index or 0 for value in inputs if isinstance(value, torch.Tensor) and value.is_cuda}
    return sorted(found)
