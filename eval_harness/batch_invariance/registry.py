"""The contracts that ship, and the one that a graph's family chooses: global -> family -> subtype, resolved.

A family is a dotted name ("attention.gqa"), and so is its contract. Resolved: what a contract inherits has been merged
into it by the rules of contract_resolution.py. A registry never changes; `add` makes another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from eval_harness.batch_invariance.contract import Contract
from eval_harness.batch_invariance.contract_lexer import nearest
from eval_harness.batch_invariance.contract_parser import Declaration, parse_declarations, read_declarations
from eval_harness.batch_invariance.contract_printer import print_contract
from eval_harness.batch_invariance.contract_resolution import Resolution, merge
from eval_harness.errors import UserError

GLOBAL_CONTRACT = "BatchIdentity"
"""The root of every contract: BIEvolve's Appendix B, in contracts/global.bid."""

CONTRACTS_DIR = Path(__file__).resolve().parent / "contracts"


class ContractRegistry:
    """Contracts by name. A registry without the global contract answers for the names that it has only."""

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        """declarations: unresolved. Raises ContractError where two have one name."""
        self._declarations: dict[str, Declaration] = {}
        self._resolved: dict[str, Resolution] = {}
        for declaration in declarations:
            name = declaration.contract.name
            if (earlier := self._declarations.get(name)) is not None:
                again = f"'{name}' again (first at {earlier.source.path}:{earlier.place})"
                raise declaration.source.error(declaration.place, "a name that no other contract has", again)
            self._declarations[name] = declaration

    @classmethod
    def shipped(cls) -> ContractRegistry:
        """The contracts of CONTRACTS_DIR; read once a process."""
        return _shipped()

    def add(self, *contracts: Contract | Declaration) -> ContractRegistry:
        """A registry that has these too; this one stays as it is. Raises ContractError where one cannot be resolved."""
        added = [each if isinstance(each, Declaration) else _declare(each) for each in contracts]
        registry = ContractRegistry([*self._declarations.values(), *added])
        for declaration in added:  # the user's, so their mistakes are told now and not when a graph needs them
            registry.resolve(declaration.contract.name)
        return registry

    def add_file(self, path: Path | str) -> ContractRegistry:
        """`add` with every contract of a file. Raises ContractError, and UserError where it cannot be read."""
        return self.add(*read_declarations(path))

    def names(self) -> tuple[str, ...]:
        """The global contract's, then the others' in alphabetical order, a subtype behind its family."""
        return tuple(sorted(self._declarations, key=lambda name: (name != GLOBAL_CONTRACT, name.split("."))))

    def parents(self, name: str) -> tuple[str, ...]:
        """What a contract extends: as it says, else its family, else the global contract."""
        declared = self.declaration(name).contract.extends
        if declared or name == GLOBAL_CONTRACT:
            return declared
        family = self._known(name.rpartition(".")[0]) or GLOBAL_CONTRACT
        return (family,) if family in self._declarations else ()

    def declaration(self, name: str) -> Declaration:
        """The contract as written. Raises UserError with the nearest name."""
        if name not in self._declarations:
            close = nearest(name, self._declarations)
            hint = f"did you mean {close}?" if close else "`passwright bi contracts` lists them"
            raise UserError(f"{name}: no such contract; {hint}")
        return self._declarations[name]

    def resolve(self, name: str) -> Resolution:
        """The contract with what it inherits, and where each name comes from. Raises ContractError."""
        return self._resolve(name, ())

    def for_family(self, family: str | None) -> Contract:
        """The resolved contract of a graph's family; an unknown subtype gets its family's, an unknown family the
        global one. Raises nothing for a registry that has the global contract."""
        return self.resolve(self.name_for(family)).contract

    def name_for(self, family: str | None) -> str:
        """The name of the contract that `for_family` answers with."""
        return self._known(family or "") or GLOBAL_CONTRACT

    def _known(self, family: str) -> str | None:
        """The longest known part of a dotted name, from its left."""
        while family and family not in self._declarations:
            family = family.rpartition(".")[0]
        return family or None

    def _resolve(self, name: str, path: tuple[str, ...]) -> Resolution:
        """path: the contracts on the way here; one that comes again closes a cycle."""
        if (known := self._resolved.get(name)) is not None:
            return known
        declaration = self.declaration(name)
        resolved_parents: list[Resolution] = []
        for parent in self.parents(name):
            place = declaration.parent_places.get(parent, declaration.place)
            if parent not in self._declarations:
                raise declaration.source.error(
                    place, "the name of a known contract", f"'{parent}'", near=self._declarations
                )
            way = (*path, name)
            if parent in way:
                cycle = " -> ".join((*way[way.index(parent) :], parent))
                raise declaration.source.error(place, "a contract that does not extend this one", f"the cycle {cycle}")
            resolved_parents.append(self._resolve(parent, way))
        resolution = merge(declaration, resolved_parents)
        self._resolved[name] = resolution
        return resolution


@cache
def _shipped() -> ContractRegistry:
    files = sorted(CONTRACTS_DIR.glob("*.bid"))
    return ContractRegistry(declaration for path in files for declaration in read_declarations(path))


def _declare(contract: Contract) -> Declaration:
    """A contract made in code, through its text: its names are checked, and errors have a place."""
    (declaration,) = parse_declarations(print_contract(contract), f"<{contract.name}>")
    return declaration
