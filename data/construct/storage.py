"""Which values of a program may share storage, and what follows for a cut: order, and mutations across its border.

A cut is run on its own, with inputs and outputs in storage of their own. So it is only the same computation if no write
in place would have to be seen through its border.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from data.construct.effects import METADATA

if TYPE_CHECKING:  # a program owns its analysis
    from data.construct.statements import Program, Statement


@dataclass(frozen=True)
class Access:
    """One statement's use of a storage that somebody writes in place."""

    index: int
    """Of the statement; len(statements) for what the program returns."""
    name: str
    """Through which value."""
    writes: bool


class Storage:
    """Storage of one program's values. A storage is named after the value that it was made for."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def of(self) -> dict[str, frozenset[str]]:
        """Value -> the storages that it may lie in."""
        found = {name: frozenset((name,)) for name in self.program.arguments}
        for statement in self.program.statements:
            if statement.target is not None:
                shared = frozenset().union(*(found[name] for name in statement.shares))
                found[statement.target] = shared or frozenset((statement.target,))
        return found

    @cached_property
    def accesses(self) -> dict[str, list[Access]]:
        """Storage that is written at least once -> every access, in order."""
        written = {
            root for statement in self.program.statements for name in statement.mutates for root in self.of[name]
        }
        found: dict[str, list[Access]] = {root: [] for root in self.of if root in written}
        for statement in self.program.statements if written else ():
            if looks_at_content(statement):
                for name in statement.reads:
                    for root in self.of[name] & written:
                        found[root].append(Access(statement.index, name, name in statement.mutates))
        end = len(self.program.statements)
        for name in dict.fromkeys(self.program.returns):
            for root in self.of[name] & written:
                found[root].append(Access(end, name, False))
        return found

    @cached_property
    def touched(self) -> dict[int, tuple[str, ...]]:
        """Statement -> the storages in `accesses` that it uses."""
        found: dict[int, dict[str, None]] = {}
        for root, accesses in self.accesses.items():
            for access in accesses:
                found.setdefault(access.index, {})[root] = None
        return {index: tuple(roots) for index, roots in found.items()}

    @cached_property
    def predecessors(self) -> list[tuple[int, ...]]:
        """Statement -> those that must run before it: makers of what it reads, and uses of storage around writes."""
        found: list[set[int]] = [set() for _ in self.program.statements]
        for statement in self.program.statements:
            makers = (self.program.definitions.get(name) for name in statement.reads)
            found[statement.index].update(maker for maker in makers if maker is not None)
        end = len(self.program.statements)
        for accesses in self.accesses.values():
            last_write: int | None = None
            since: list[int] = []
            for access in accesses:
                if access.index == end:
                    continue
                if last_write is not None and last_write != access.index:
                    found[access.index].add(last_write)
                if access.writes:
                    found[access.index].update(index for index in since if index != access.index)
                    last_write, since = access.index, []
                else:
                    since.append(access.index)
        return [tuple(sorted(before)) for before in found]

    def path_through(self, indices: Sequence[int]) -> int | None:
        """A statement outside that needs one of the indices and is needed by another; None if the cut is convex."""
        first, last = indices[0], indices[-1]
        if last - first + 1 == len(indices):
            return None  # every path leads forward, so none comes back into a range
        inside = set(indices)
        tainted: dict[int, int] = {}  # index -> the statement outside by which a path from inside reaches it
        for index in range(first, last + 1):
            for before in self.predecessors[index]:
                if before in tainted and index in inside:
                    return tainted[before]
                if index not in inside and (before in inside or before in tainted):
                    tainted[index] = tainted.get(before, index)
        return None

    def crossing(
        self, indices: Collection[int], inputs: Sequence[str], outputs: Sequence[str], *, inputs_may_change: bool
    ) -> str | None:
        """Why a write in place would have to be seen through the border of the cut; None if none has to."""
        inside = set(indices)
        for root in dict.fromkeys(root for index in sorted(inside) for root in self.touched.get(index, ())):
            inner = [access for access in self.accesses[root] if access.index in inside]
            writers = [access.index for access in inner if access.writes]
            entering = [name for name in inputs if root in self.of[name]]
            if writers and len(entering) > 1:
                line = self.program.statements[writers[0]].lines[0]
                return f"{line!r} writes storage that its inputs {entering[0]} and {entering[1]} may share"
            if writers and entering and not inputs_may_change:
                return f"{self.program.statements[writers[0]].lines[0]!r} writes its input {entering[0]} in place"
            reason = self._seen_outside(root, inner[0].index, writers, inside, set(outputs))
            if reason is not None:
                return reason
        return None

    def _seen_outside(
        self, root: str, first: int, writers: list[int], inside: set[int], outputs: set[str]
    ) -> str | None:
        """Outside uses of the storage after the cut began must stay within one copy of it."""
        copies = _Copies(self, root, outputs)
        written: list[tuple[frozenset[str], str]] = []
        for access in self.accesses[root]:
            if access.index in inside or access.index < first:
                continue
            copy = copies.of(access.name)
            if OUTSIDE in copy and any(writer < access.index for writer in writers):
                return f"{access.name} is used outside after {self.program.statements[writers[0]].lines[0]!r} wrote it"
            for other, line in written:
                if copy != other or len(copy) > 1:
                    return f"{line!r} outside writes storage that {access.name}, used after it, shares through the cut"
            if access.writes:
                written.append((copy, self.program.statements[access.index].lines[0]))
        return None


OUTSIDE = ""
"""The copy of a storage that values outside of a cut lie in; other copies are named after the output they leave by."""


class _Copies:
    """A cut's outputs have storage of their own, so one storage of the program becomes several copies of it."""

    def __init__(self, storage: Storage, root: str, outputs: set[str]) -> None:
        self.storage = storage
        self.root = root
        self.outputs = outputs
        self.found: dict[str, frozenset[str]] = {}

    def of(self, name: str) -> frozenset[str]:
        """The copies that a value outside may lie in."""
        pending = [name]
        while pending:
            current = pending[-1]
            if current in self.found:
                pending.pop()
            elif current in self.outputs:
                self.found[current] = frozenset((current,))
            elif self.root == current:
                self.found[current] = frozenset((OUTSIDE,))
            else:
                program = self.storage.program
                shared = program.statements[program.definitions[current]].shares
                parents = [parent for parent in shared if self.root in self.storage.of[parent]]
                missing = [parent for parent in parents if parent not in self.found]
                if missing:
                    pending += missing
                else:
                    self.found[current] = frozenset().union(*(self.found[parent] for parent in parents))
        return self.found[name]


def looks_at_content(statement: Statement) -> bool:
    """Whether a statement reads or passes on elements, not only shape, dtype or device."""
    if statement.mutates or statement.shares:
        return True
    return any(name not in METADATA for name in statement.operator.split("+") if name)
