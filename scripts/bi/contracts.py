"""`passwright bi contracts`: the contracts there are, and one of them explained with what it inherits."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_json, write_json

if TYPE_CHECKING:
    from eval_harness.batch_invariance.contract import Parameter
    from eval_harness.batch_invariance.contract_resolution import Resolution
    from eval_harness.batch_invariance.registry import ContractRegistry

HELP = "the contracts and their parents; with NAME, what one says after inheritance"

WIDTH = 110
ABOUT_WIDTH = 70
SUFFIX = ".bid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME|FILE.bid",
        help="a contract, a graph's family (attention.gqa), or a file of contracts of your own; default: list all",
    )
    parser.add_argument("--text", action="store_true", help="print it in the contract language, inheritance resolved")
    add_json(parser, "the same")


def run(args: argparse.Namespace) -> int:
    from eval_harness.batch_invariance.contract_parser import read_declarations
    from eval_harness.batch_invariance.contract_printer import print_contract
    from eval_harness.batch_invariance.registry import ContractRegistry

    registry = ContractRegistry.shipped()
    if args.name is None:
        names, lines = registry.names(), list(_table(registry))
    elif args.name.endswith(SUFFIX):
        declarations = read_declarations(Path(args.name))
        registry = registry.add(*declarations)
        names = tuple(declaration.contract.name for declaration in declarations)
        lines = ["\n\n".join(explain_contract(registry, name) for name in names)]
    else:
        names = (_name(registry, args.name),)
        lines = [explain_contract(registry, names[0])]
    if args.json:
        described = [describe_contract(registry, name) for name in names]
        # one that was asked for by its name is one object
        write_json(args.json, described[0] if args.name and not args.name.endswith(SUFFIX) else described)
    if args.json != "-":
        texts = (print_contract(registry.resolve(name).contract) for name in names)
        print("\n".join(texts if args.text else lines), end="" if args.text else "\n")
    return 0


def describe_contract(registry: ContractRegistry, name: str) -> dict[str, Any]:
    """A resolved contract as plain data; `from` maps each name to the contract that says what it means."""
    declaration, resolution = registry.declaration(name), registry.resolve(name)
    return {
        "name": name,
        "doc": declaration.doc,
        "path": declaration.source.path,
        "parents": list(registry.parents(name)),
        "lineage": list(resolution.lineage),
        "axes": [{"name": axis.name, "symbols": list(axis.symbols)} for axis in resolution.contract.axes],
        "parameters": [
            {
                "name": parameter.name,
                "semantic": str(parameter.semantic),
                "policy": str(parameter.policy),
                "aliases": list(parameter.aliases),
                "doc": resolution.docs.get(parameter.name, ""),
            }
            for parameter in resolution.contract.parameters
        ],
        "from": dict(resolution.origins),
    }


def explain_contract(registry: ContractRegistry, name: str) -> str:
    """A resolved contract for a reader: symbols and parameters, each name with the contract that it comes from."""
    declaration, resolution = registry.declaration(name), registry.resolve(name)
    lines = [f"contract {name}"]
    lines += _wrap(declaration.doc, "  ")
    lines += _wrap(" -> ".join(resolution.lineage[1:]), "  inherits, the nearest first: ")
    for axis in resolution.contract.axes:
        lines += ["", f"axis {axis.name}: no row's bits may follow these symbols, or what is computed from them"]
        lines += _by_origin(resolution, axis.symbols)
    for parameter in resolution.contract.parameters:
        lines += ["", f"parameter {parameter.name}: {parameter.semantic}, {parameter.policy}"]
        lines += _wrap(resolution.docs.get(parameter.name) or _meaning(parameter), "  ")
        lines += _by_origin(resolution, parameter.names)
    return "\n".join(lines)


def _table(registry: ContractRegistry) -> Iterator[str]:
    names = registry.names()
    parents = {name: ", ".join(registry.parents(name)) or "-" for name in names}
    width, parents_width = max(map(len, names)), max(map(len, parents.values()))
    yield f"{'contract':<{width}}  {'extends':<{parents_width}}  protected  other  about"
    for name in names:
        parameters = registry.resolve(name).contract.parameters
        protected = sum(parameter.is_protected for parameter in parameters)
        about = textwrap.shorten(registry.declaration(name).doc, ABOUT_WIDTH, placeholder=" ...")
        counted = f"{protected:>9}  {len(parameters) - protected:>5}"
        yield f"{name:<{width}}  {parents[name]:<{parents_width}}  {counted}  {about}".rstrip()


def _name(registry: ContractRegistry, asked: str) -> str:
    """The contract that was asked for; a subtype that has none of its own is answered with its family's."""
    found = registry.name_for(asked)
    return found if asked == found or asked.startswith(f"{found}.") else registry.declaration(asked).contract.name


def _by_origin(resolution: Resolution, names: Iterable[str]) -> Iterator[str]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(resolution.origins[name], []).append(name)
    for origin, group in grouped.items():
        yield from _wrap(", ".join(group), f"  from {origin}: ")


def _meaning(parameter: Parameter) -> str:
    """What a parameter of this semantic decides, where its contract has no comment."""
    from eval_harness.batch_invariance.contract import Semantic

    return {
        Semantic.SPLIT_STRUCTURE: "Into how many parts one row's sum is cut, or how wide they are.",
        Semantic.RECURRENCE_STRUCTURE: "Into how many pieces a row's recurrence is cut, or how long they are.",
        Semantic.RNG_STREAM: "Which random numbers a row gets.",
    }[parameter.semantic]


def _wrap(text: str, first: str) -> list[str]:
    indent = " " * (len(first) - len(first.lstrip()) + 2) if first.strip() else first
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
