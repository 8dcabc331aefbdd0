"""Contract -> text in the form of batch_identity.bid; parsing it gives the same Contract. Comments are not kept."""

from __future__ import annotations

from collections.abc import Iterable

from eval_harness.batch_invariance.contract import Contract, Parameter


def print_contract(contract: Contract) -> str:
    """The contract's text, with a newline at its end; `extends` is printed as it stands, resolved or not."""
    extends = f" extends {', '.join(contract.extends)}" if contract.extends else ""
    lines = [f"kernel {contract.name}{extends} {{"]
    lines += [f"  invariant_axis {axis.name} symbols [{', '.join(axis.symbols)}];" for axis in contract.axes]
    for parameter in contract.parameters:
        lines += _parameter_lines(parameter)
    return "\n".join([*lines, "}", ""])


def _parameter_lines(parameter: Parameter) -> Iterable[str]:
    yield f"  parameter {parameter.name} {{"
    yield f"    semantic {parameter.semantic};"
    yield f"    policy {parameter.policy};"
    if parameter.aliases:
        yield f"    aliases [{', '.join(parameter.aliases)}];"
    yield "  }"
