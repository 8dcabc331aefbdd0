"""model.py -> its statements, one operator each, as text that can be cut apart and put together again. No torch.

Reads what our writer writes and what upstream's published full graphs hold: wrapped lines, names of every kind, renames
(`l_x_ = L_x_`), values set to None. Every line is rendered anew (rendering.py), so equal statements are equal text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from data.construct.effects import Effects, expression_effects
from data.construct.modes import Modes, find_modes
from data.construct.rendering import BINARY, NotRenderedError, render
from data.construct.storage import Storage
from data.graph import MalformedGraphError, parse_python
from data.splits import collect_operators

_BUILTINS = {name: name for name in ("torch", "device", "slice", "float", "inf", "nan")} | {"Ellipsis": "..."}


@dataclass(frozen=True)
class Statement:
    """One operator of a program and the value that it makes."""

    index: int
    """Position in the program."""
    lines: tuple[str, ...]
    """Without indentation; two for an augmented assignment: "tmp_1 += in_0" and "tmp_4 = tmp_1"."""
    operator: str
    """Bare name as in data.splits; "a+b" if the statement nests several, "" if it computes nothing (x.shape)."""
    target: str | None
    """The name assigned; None for x[0] = y, for a call whose result is dropped, and for a lone `x += y`."""
    reads: tuple[str, ...]
    """Names read, those written in place too, in order of first appearance."""
    mutates: tuple[str, ...]
    """Names whose storage it writes in place."""
    shares: tuple[str, ...] = ()
    """Names whose storage the target may be or look into."""


@dataclass(frozen=True)
class Program:
    """forward() of one graph, statement by statement; every name is assigned once."""

    arguments: tuple[str, ...]
    statements: tuple[Statement, ...]
    returns: tuple[str, ...]
    """Names returned, nested tuples flattened, constants left out."""

    @property
    def operators(self) -> tuple[str, ...]:
        """One symbol a statement."""
        return tuple(statement.operator for statement in self.statements)

    @cached_property
    def definitions(self) -> dict[str, int]:
        """Name -> index of the statement that assigns it; arguments have none."""
        return {statement.target: statement.index for statement in self.statements if statement.target is not None}

    @cached_property
    def uses(self) -> dict[str, tuple[int, ...]]:
        """Name -> indices of the statements that read it; what is returned is read at len(statements)."""
        found: dict[str, list[int]] = {}
        for statement in self.statements:
            for name in statement.reads:
                found.setdefault(name, []).append(statement.index)
        for name in dict.fromkeys(self.returns):
            found.setdefault(name, []).append(len(self.statements))
        return {name: tuple(indices) for name, indices in found.items()}

    @cached_property
    def storage(self) -> Storage:
        """Which values may share storage."""
        return Storage(self)

    @cached_property
    def modes(self) -> Modes:
        """Which statements run under an autocast or a vmap."""
        return find_modes(self.statements)


def parse_program(source: str, where: str) -> Program:
    """The statements of GraphModule.forward. where: the file's name for messages. Raises MalformedGraphError."""
    for node in parse_python(source, where).body:
        if isinstance(node, ast.ClassDef) and node.name == "GraphModule":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return _Parser(item, where).program()
    raise MalformedGraphError(f"{where}: no class GraphModule with a forward; a graph's model.py defines exactly that")


class _Parser:
    def __init__(self, forward: ast.FunctionDef, where: str) -> None:
        self.forward = forward
        self.where = where
        self.arguments = tuple(argument.arg for argument in forward.args.args[1:])
        self.names = {name: name for name in self.arguments}  # name in the source, now -> name in the program
        self.taken = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name)} | {*self.arguments}
        self.assigned = set(self.arguments)
        self.statements: list[Statement] = []
        self.reads: dict[str, None] = {}

    def program(self) -> Program:
        body = iter(_with_next(self.forward.body))
        for node, following in body:
            try:
                if isinstance(node, ast.Return):
                    returns = tuple(self.returned(node.value)) if node.value is not None else ()
                    return Program(self.arguments, tuple(self.statements), returns)
                if not isinstance(node, ast.AugAssign):
                    self.statement(node)
                elif self.augmented(node, following):
                    next(body)
            except NotRenderedError as error:
                raise self.refused(error.node, f"{error} is no part of a graph") from None
            except MalformedGraphError as error:
                raise self.refused(node, str(error)) from None
        raise self.refused(self.forward, "forward returns nothing")

    def refused(self, node: ast.AST, reason: str) -> MalformedGraphError:
        text = reason if reason.startswith(self.where) else f"{self.where}:{getattr(node, 'lineno', 1)}: {reason}"
        return MalformedGraphError(text if text.endswith("leave the graph out") else f"{text}; leave the graph out")

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=ast.Constant(value=None)) if all(
                isinstance(target, ast.Name) for target in targets
            ):
                self.forget(targets)
            case ast.Delete(targets=targets):
                self.forget(targets)
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                self.set_item(node, target, value)
            case ast.Assign(targets=targets, value=value):
                self.assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign([target], value)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.add([self.text(value)], _operators(node), self.effects(value), None)
            case _:
                raise NotRenderedError(node, f"a {type(node).__name__} statement")

    def assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        first, *rest = targets
        if isinstance(first, ast.Tuple | ast.List):  # a, b = f(x): one value and an item for each name
            whole = self.define(None, value, "unpacked")
            for position, element in enumerate(first.elts):
                item = ast.Subscript(ast.Name(whole), ast.Constant(position))
                self.assign([element], ast.copy_location(item, value))
            targets = rest
        elif isinstance(first, ast.Name):
            whole = self.renamed(value) or self.define(first.id, value, first.id)
        else:
            raise NotRenderedError(first, f"assignment to {ast.unparse(first)[:60]!r}")
        for target in targets:
            if not isinstance(target, ast.Name):
                raise NotRenderedError(target, f"assignment to {ast.unparse(target)[:60]!r}")
            self.names[target.id] = whole

    def renamed(self, value: ast.expr) -> str | None:
        """The value that `a = b` gives a second name, else None."""
        return self.names.get(value.id) if isinstance(value, ast.Name) else None

    def define(self, name: str | None, value: ast.expr, wish: str) -> str:
        """A statement that assigns the value to a name of its own; that name."""
        text, effects = self.text(value), self.effects(value)
        target = self.fresh(wish, reserved=name is None)
        self.names[target] = target
        self.add([f"{target} = {text}"], _operators(ast.Expr(value)), effects, target)
        return target

    def set_item(self, node: ast.Assign, target: ast.Subscript, value: ast.expr) -> None:
        text = f"{self.text(target)} = {self.text(value)}"
        effects = self.effects(value)
        effects.writes.update(self.effects(target.value).shares)
        self.add([text], _operators(node), Effects(effects.writes), None)

    def augmented(self, node: ast.AugAssign, following: ast.stmt | None) -> bool:
        """`x += y`, with the `z = x` that Dynamo puts after it if it is there: whether that was taken too."""
        if not isinstance(node.target, ast.Name | ast.Subscript):
            raise NotRenderedError(node, f"{ast.unparse(node)[:60]!r}")
        text = f"{self.text(node.target)} {BINARY[type(node.op)]}= {self.text(node.value)}"
        effects = self.effects(node.value)
        effects.writes.update(self.effects(node.target).shares)
        effects = Effects(effects.writes, dict(effects.writes))
        lines, target = [text], None
        match following:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)) if (
                isinstance(node.target, ast.Name) and source == node.target.id != name
            ):
                written = self.names[source]
                target = self.names[name] = self.fresh(name)
                lines.append(f"{target} = {written}")
        self.add(lines, _operators(node), effects, target)
        return target is not None

    def returned(self, value: ast.expr) -> Iterator[str]:
        if isinstance(value, ast.Tuple | ast.List):
            for part in value.elts:
                yield from self.returned(part)
        elif not isinstance(value, ast.Constant):
            if isinstance(value, ast.Name):
                self.text(value)  # refuses a name that has no value
            yield self.renamed(value) or self.define(None, value, "returned")

    def forget(self, targets: list[ast.expr]) -> None:
        for target in targets:
            if isinstance(target, ast.Name):
                self.names.pop(target.id, None)

    def text(self, node: ast.expr) -> str:
        """The expression in the names of the program; notes what it reads."""
        return render(node, self.written_name)

    def written_name(self, node: ast.Name) -> str:
        name = self.names.get(node.id)
        if name is not None:
            self.reads[name] = None
            return name
        if node.id in _BUILTINS:
            return _BUILTINS[node.id]
        raise NotRenderedError(node, f"{node.id!r}, which is neither an argument nor assigned before,")

    def effects(self, node: ast.expr) -> Effects:
        return expression_effects(node, self.names.get)

    def fresh(self, wish: str, *, reserved: bool = False) -> str:
        """The name itself, or with a number if it was assigned before; reserved: if the source uses it at all."""
        name, number = wish, 1
        while name in self.assigned or (name in self.taken and (reserved or number > 1)):
            number += 1
            name = f"{wish}_{number}"
        self.assigned.add(name)
        self.taken.add(name)
        return name

    def add(self, lines: list[str], operators: list[str], effects: Effects, target: str | None) -> None:
        reads, self.reads = tuple(self.reads), {}
        index, written, shared = len(self.statements), tuple(effects.writes), tuple(effects.shares)
        self.statements.append(
            Statement(index, tuple(lines), "+".join(operators), target, reads, mutates=written, shares=shared)
        )


def _with_next(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    return zip(body, [*body[1:], None], strict=True)


def _operators(node: ast.AST) -> list[str]:
    names: list[str] = []
    collect_operators(node, names)
    return names
