"""A replacement as an operator that TorchInductor calls without looking inside.

Its arguments are those that `replacement_args` hands on; its shapes come from the pattern, run on fake tensors. One
operator a rule and kind of arguments. Results never share memory with arguments or with each other: an operator may not
return a view, so such a result is copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from eval_harness.apply.folders import LoadedRule
from eval_harness.graph_values import iter_refs, map_refs
from eval_harness.ir_execution import build_module
from eval_harness.oracle import to_float64

NAMESPACE = "passwright_apply"
_numbers = itertools.count()


class RuleOperator:
    """A rule's replacement and its pattern as functions of the placeholders that the pattern uses, in order."""

    def __init__(self, rule: LoadedRule, device: torch.device) -> None:
        self.rule = rule
        self.__name__ = self.__qualname__ = rule.key  # torch.fx names a callable by it
        self.names = list(iter_refs(rule.description.replacement_args))
        self.pattern = build_module(rule.description.pattern, {}, device=device)
        self.oracle = build_module(to_float64(rule.description.pattern), {}, device=device)
        self.num_outputs = rule.description.num_outputs
        self.returns_tuple = rule.description.returns_tuple

    def __call__(self, *values: Any) -> Any:
        """As a node of a graph calls it: one result, or a tuple of them."""
        found = self.results(values)
        return found if self.returns_tuple else found[0]

    def results(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What the replacement returns, as a tuple. Raises TypeError for another number of results."""
        by_name = dict(zip(self.names, values, strict=True))
        arguments = map_refs(self.rule.replacement_args, lambda ref: by_name[ref.name])
        found = self.rule.function(*arguments)
        results = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(results) != self.num_outputs:
            raise TypeError(f"the pattern returns {self.num_outputs} values, the replacement {len(results)}")
        return results

    def reference(self, values: Sequence[Any], *, in_float64: bool = False) -> tuple[Any, ...]:
        """What the pattern computes, as a tuple. in_float64: with its float inputs widened."""
        by_name = dict(zip(self.names, values, strict=True))
        if in_float64:
            by_name = {name: _widened(value) for name, value in by_name.items()}
        module = self.oracle if in_float64 else self.pattern
        found = module(*(by_name.get(node.name) for node in self.rule.description.pattern.placeholders))
        return tuple(found) if isinstance(found, tuple | list) else (found,)


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def define_operator(operator: RuleOperator, examples: Sequence[Any]) -> Callable[..., Any]:
    """A new operator of torch over the placeholders of operator.names.

    examples: of its arguments, which say what kind each is. Raises TypeError for a kind that no operator takes.
    """
    kinds = ", ".join(f"{_kind(example)} a{number}" for number, example in enumerate(examples))
    results = ", ".join(["Tensor"] * operator.num_outputs)
    returned = f"({results})" if operator.returns_tuple else results
    name = f"{NAMESPACE}::{operator.rule.key}_{next(_numbers)}"
    torch.library.define(name, f"({kinds}) -> {returned}")

    def run(*values: Any) -> Any:
        own = [value for value in values if isinstance(value, torch.Tensor)]
        return _returned(operator, _apart(operator.results(values), own))

    def shapes(*values: Any) -> Any:
        found = operator.reference(values)
        made = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device) for each in found]
        return _returned(operator, made)

    torch.library.impl(name, ("cpu", "cuda"), run)
    torch.library.register_fake(name, shapes)
    namespace, _, short = name.partition("::")
    return getattr(getattr(torch.ops, namespace), short).default


def _returned(operator: RuleOperator, results: Sequence[torch.Tensor]) -> Any:
    return tuple(results) if operator.returns_tuple else results[0]


def _apart(results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    taken = {argument.untyped_storage().data_ptr() for argument in arguments}
    apart = []
    for result in results:
        place = result.untyped_storage().data_ptr()
        apart.append(result.clone(memory_format=torch.preserve_format) if place in taken else result)
        taken.add(place)
    return apart


def _kind(example: Any) -> str:
    if isinstance(example, torch.Tensor):
        return "Tensor"
    if isinstance(example, bool | torch.SymBool):
        return "bool"
    if isinstance(example, int | torch.SymInt):
        return "SymInt"
    if isinstance(example, float | torch.SymFloat):
        return "float"
    raise TypeError(f"an argument of type {type(example).__name__} cannot be handed to a compiled graph")
