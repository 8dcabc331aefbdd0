"""input_tensor_constraints.py of a dynamic full graph -> data: symbols, example values, relations, shapes of inputs.

Read with ast and never executed; sympy is not needed. A dimension is an int or an expression of symbols kept as text
("S0", "2*S0 + 1"), computed here over whole numbers with what such files may hold: + - * // / % **, comparisons, and
sympy's Eq, Ne, Lt, Le, Gt, Ge, Min, Max, Mod, Abs, floor, ceiling. What symbols may be replaced by is for
the caller to try: the files give no bounds.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from data.graph import INPUT_CONSTRAINTS_FILE, Graph, MalformedGraphError, parse_python
from data.syntax import parse_expression

_PREFIX = "dynamic_dim_constraint_"
_SYMBOLS, _EXAMPLES = f"{_PREFIX}symbols", f"{_PREFIX}symbol2example_value"
_RELATIONS, _SHAPES = f"{_PREFIX}relations", f"{_PREFIX}input_shapes"
_MAX_EXPONENT = 64
"""A power beyond this is no dimension of a tensor, and computing it could take for ever."""

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Eq": operator.eq, "Ne": operator.ne, "Lt": operator.lt, "Le": operator.le, "Gt": operator.gt, "Ge": operator.ge,
    "Min": min, "Max": max, "Mod": operator.mod, "Abs": abs, "floor": math.floor, "ceiling": math.ceil,
    "Integer": int, "Rational": Fraction,
}  # fmt: skip

Dimension = int | str
"""A size, or an expression of symbols as text."""


@dataclass(frozen=True)
class InputConstraints:
    """Which dimensions of a graph's inputs may vary together."""

    symbols: Mapping[str, int] = field(default_factory=dict)
    """Symbol -> the value that the graph was captured with, in the file's order."""
    relations: tuple[str, ...] = ()
    """Comparisons of symbols that must hold, as text."""
    shapes: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)
    """Argument of forward, as the file names it -> its shape."""

    @property
    def dynamic(self) -> dict[str, tuple[Dimension, ...]]:
        """Only the arguments whose shape holds a symbol."""
        return {name: shape for name, shape in self.shapes.items() if any(isinstance(size, str) for size in shape)}

    def shape_of(self, name: str, values: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """Sizes of one argument with the symbols replaced; the example's values where none are given.

        Raises ValueError where a size comes out as no whole number above -1, KeyError for an unknown argument.
        """
        chosen = {**self.symbols, **(values or {})}
        return tuple(size if isinstance(size, int) else _size(size, chosen) for size in self.shapes[name])

    def holds(self, values: Mapping[str, int] | None = None) -> bool:
        """Do the relations hold, and is every size above 0?"""
        chosen = {**self.symbols, **(values or {})}
        if not all(bool(_compute(parse_expression(text), chosen)) for text in self.relations):
            return False
        try:
            return all(size > 0 for name in self.dynamic for size in self.shape_of(name, chosen))
        except ValueError:
            return False


def graph_constraints(graph: Graph) -> InputConstraints | None:
    """Constraints of a graph's file, None if it has none or an empty one. Raises MalformedGraphError."""
    text = graph.files.get(INPUT_CONSTRAINTS_FILE, "")
    if not text.strip():
        return None
    return parse_constraints(text, f"{graph.name}/{INPUT_CONSTRAINTS_FILE}")


def parse_constraints(text: str, path: str) -> InputConstraints:
    """The file's four lists as data. Raises MalformedGraphError naming path, line and fault."""
    return _Reader(path).read(text)


class _Reader:
    """Goes through the assignments of one file; whatever is no assignment or import of sympy is refused."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.symbols: dict[str, str] = {}
        self.lists: dict[str, ast.expr] = {}

    def refuse(self, node: ast.AST, reason: str) -> MalformedGraphError:
        line = getattr(node, "lineno", 1)
        return MalformedGraphError(f"{self.path}:{line}: {reason}; correct the line or empty the file")

    def read(self, text: str) -> InputConstraints:
        for node in parse_python(text, self.path, cure="correct or empty it").body:
            self.read_statement(node)
        examples = self.read_examples()
        relations = tuple(self.expression(item) for item in self.items(_RELATIONS))
        shapes = dict(self.read_shape(item) for item in self.items(_SHAPES))
        return InputConstraints(examples, relations, shapes)

    def read_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.ImportFrom(module="sympy") | ast.Import(names=[ast.alias(name="sympy")]):
                return
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if _is_symbol(call):
                self.symbols[name] = _symbol_name(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.startswith(_PREFIX):
                self.lists[name] = value
            case _:
                raise self.refuse(node, f"{ast.unparse(node)[:60]!r} is no assignment of symbols or lists")

    def items(self, name: str) -> list[ast.expr]:
        value = self.lists.get(name)
        if value is None:
            return []
        if not isinstance(value, ast.List | ast.Tuple):
            raise self.refuse(value, f"{name} is no list")
        return value.elts

    def read_examples(self) -> dict[str, int]:
        """Example value of every symbol of the list, in its order."""
        value = self.lists.get(_EXAMPLES)
        if value is not None and not isinstance(value, ast.Dict):
            raise self.refuse(value, f"{_EXAMPLES} is no dict")
        pairs = zip(value.keys, value.values, strict=True) if value is not None else ()
        examples = {}
        for key, example in pairs:
            if not (isinstance(key, ast.Name) and isinstance(example, ast.Constant) and type(example.value) is int):
                raise self.refuse(example, f"{_EXAMPLES} holds something else than `symbol: int`")
            examples[self.symbol(key)] = example.value
        listed = [self.symbol(item) for item in self.items(_SYMBOLS)]
        for item, name in zip(self.items(_SYMBOLS), listed, strict=True):
            if name not in examples:
                raise self.refuse(item, f"no example value of {name} in {_EXAMPLES}")
        return {name: examples[name] for name in listed}

    def symbol(self, node: ast.expr) -> str:
        if not (isinstance(node, ast.Name) and node.id in self.symbols):
            raise self.refuse(node, f"{ast.unparse(node)[:40]!r} is no symbol that the file defines")
        return self.symbols[node.id]

    def read_shape(self, node: ast.expr) -> tuple[str, tuple[Dimension, ...]]:
        match node:
            case ast.Tuple(elts=[ast.List() | ast.Tuple() as shape, ast.Constant(value=str() as name)]):
                return name, tuple(self.dimension(size) for size in shape.elts)
        raise self.refuse(node, f"{_SHAPES} holds something else than `(shape, name)`")

    def dimension(self, node: ast.expr) -> Dimension:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        return self.expression(node)

    def expression(self, node: ast.expr) -> str:
        """The expression as text, with names as the symbols are called."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id not in _FUNCTIONS:
                self.symbol(inner)
        renamed = _Renamer(self.symbols).visit(parse_expression(ast.unparse(node)))
        try:
            # computed once with other values: it holds nothing that cannot be computed later
            _compute(renamed, dict.fromkeys(self.symbols.values(), 7))
        except (ValueError, ZeroDivisionError) as error:
            raise self.refuse(node, str(error)) from None
        return ast.unparse(renamed)


class _Renamer(ast.NodeTransformer):
    """A Python name -> the name of the symbol that it holds."""

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self.symbols = symbols

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.symbols.get(node.id, node.id), node.ctx)


def _is_symbol(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    text_argument = bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    return name == "Symbol" and text_argument


def _symbol_name(call: ast.Call) -> str:
    return str(call.args[0].value)  # type: ignore[attr-defined]


def _size(text: str, values: Mapping[str, int]) -> int:
    computed = _compute(parse_expression(text), values)
    whole = int(computed)
    if whole != computed or whole < 0:
        raise ValueError(f"the size {text} is {computed} with {dict(values)}: no whole number of elements")
    return whole


def _compute(node: ast.expr, values: Mapping[str, int]) -> Any:
    """The expression's value. Raises ValueError on anything but arithmetic of symbols."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in values:
            return Fraction(values[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand, values)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _compute(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _compute(left, values), _compute(right, values)
            if isinstance(op, ast.Pow) and abs(b) > _MAX_EXPONENT:
                raise ValueError(f"{ast.unparse(node)!r}: the exponent is beyond {_MAX_EXPONENT}")
            return _BINARY[type(op)](a, b)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return _COMPARED[type(op)](_compute(left, values), _compute(right, values))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_compute(argument, values) for argument in args))
    raise ValueError(f"{ast.unparse(node)[:60]!r} is no arithmetic of symbols")
