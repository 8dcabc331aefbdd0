"""One contract and its resolved parents -> the resolved contract, with where each name comes from.

The rules: a contract's own words win over its parents'; a parameter of the same name replaces semantic and policy;
aliases and symbols are united; a name (parameter, alias or symbol) means what the nearest contract that mentions it
says; where two parents disagree and the contract itself says nothing, that is an error at the second one's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_harness.batch_invariance.contract import Contract, InvariantAxis, Parameter
from eval_harness.batch_invariance.contract_parser import Declaration


@dataclass(frozen=True)
class Resolution:
    """A resolved contract and how it came about."""

    contract: Contract
    lineage: tuple[str, ...]
    """The contract's own name, then those it inherits from, the nearest first."""
    origins: Mapping[str, str]
    """Parameter, alias or symbol -> the contract that says what it means."""
    docs: Mapping[str, str]
    """Parameter -> what the nearest contract says of it in the comment above; may be missing."""


@dataclass(frozen=True)
class _Use:
    """What a name stands for: a symbol of an axis, or a parameter or an alias of one."""

    owner: str
    is_symbol: bool

    def __str__(self) -> str:
        return f"a symbol of {self.owner}" if self.is_symbol else f"of parameter {self.owner}"


@dataclass
class _Merged:
    """The contract while it is put together; dicts keep the order in which things were first said."""

    uses: dict[str, _Use] = field(default_factory=dict)
    axes: dict[str, None] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """Their aliases are in `uses`."""
    origins: dict[str, str] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)


def merge(declaration: Declaration, parents: Sequence[Resolution]) -> Resolution:
    """The contract with everything its parents say that it does not say otherwise. Raises ContractError."""
    contract = declaration.contract
    own_uses = dict(_uses(contract))
    merged = _Merged()
    for parent in parents:
        _check_overrides(declaration, own_uses, parent)
        _add_parent(declaration, own_uses, merged, parent)
    merged.axes |= dict.fromkeys(axis.name for axis in contract.axes)
    merged.uses |= own_uses
    merged.origins |= dict.fromkeys(own_uses, contract.name)
    merged.parameters |= {parameter.name: parameter for parameter in contract.parameters}
    merged.docs |= {name: doc for name, doc in declaration.parameter_docs.items() if doc}
    names: dict[_Use, list[str]] = {}
    for name, use in merged.uses.items():
        names.setdefault(use, []).append(name)
    axes = tuple(InvariantAxis(axis, tuple(names.get(_Use(axis, True), ()))) for axis in merged.axes)
    parameters = tuple(
        replace(parameter, aliases=tuple(name for name in names[_Use(parameter.name, False)] if name != parameter.name))
        for parameter in merged.parameters.values()
    )
    resolved = Contract(contract.name, axes, parameters)
    return Resolution(resolved, _lineage(contract.name, parents), merged.origins, merged.docs)


def _uses(contract: Contract) -> Iterator[tuple[str, _Use]]:
    for axis in contract.axes:
        for symbol in axis.symbols:
            yield symbol, _Use(axis.name, is_symbol=True)
    for parameter in contract.parameters:
        for name in parameter.names:
            yield name, _Use(parameter.name, is_symbol=False)


def _check_overrides(declaration: Declaration, own_uses: Mapping[str, _Use], parent: Resolution) -> None:
    """An inherited parameter may be declared again, but its name cannot become an alias or a symbol."""
    for parameter in parent.contract.parameters:
        use = own_uses.get(parameter.name)
        if use is not None and (use.is_symbol or use.owner != parameter.name):
            raise declaration.source.error(
                declaration.name_places[parameter.name],
                f"'{parameter.name}' to stay the parameter that {parent.origins[parameter.name]} declares",
                str(use).replace("of parameter", "an alias of"),
            )


def _add_parent(declaration: Declaration, own_uses: Mapping[str, _Use], merged: _Merged, parent: Resolution) -> None:
    """What the parent says, but for names that the contract itself mentions in another meaning."""
    place = declaration.parent_places.get(parent.contract.name, declaration.place)
    settled = {parameter.name for parameter in declaration.contract.parameters}
    for parameter in parent.contract.parameters:
        earlier = merged.parameters.get(parameter.name)
        if earlier is not None and parameter.name not in settled:
            said, now = _decision(earlier), _decision(parameter)
            if said != now:
                expected = f"{parameter.name} as in {merged.origins[parameter.name]} ({said}), or declared here"
                raise declaration.source.error(place, expected, f"{now} in {parent.origins[parameter.name]}")
        merged.parameters.setdefault(parameter.name, parameter)
    for name, use in _uses(parent.contract):
        own = own_uses.get(name, use)
        if own != use:
            continue
        before = merged.uses.get(name, use)
        if before != use:
            expected = f"'{name}' as in {merged.origins[name]} ({before}), or declared here"
            raise declaration.source.error(place, expected, f"'{name}' {use} in {parent.origins[name]}")
        merged.uses[name] = use
        merged.origins.setdefault(name, parent.origins[name])
    merged.axes |= dict.fromkeys(axis.name for axis in parent.contract.axes)
    for name, doc in parent.docs.items():
        merged.docs.setdefault(name, doc)


def _decision(parameter: Parameter) -> str:
    return f"{parameter.semantic}, {parameter.policy}"


def _lineage(name: str, parents: Sequence[Resolution]) -> tuple[str, ...]:
    """A contract stands before everything it inherits from, also where two ways lead to one ancestor."""
    order: list[str] = []
    for ancestor in [name, *(ancestor for parent in parents for ancestor in parent.lineage)]:
        if ancestor in order:
            order.remove(ancestor)
        order.append(ancestor)
    return tuple(order)
