"""Sizes that Dynamo kept symbolic -> input_tensor_constraints.py, in the form that GraphNet's samples have.

The file names the symbols, the sizes that they had, relations that must hold, and each argument's shape in symbols.
Other sizes that keep the relations are shapes that the captured model takes in this same graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

_PRINTABLE = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Number, sympy.Symbol, sympy.floor, sympy.Mod, sympy.Rel)
_ALWAYS_IMPORTED = ("Symbol", "Expr", "Rel", "Eq")
_IMPORTED_IF_USED = ("Ne", "Mod", "floor")


def constraints_source(arguments: Sequence[torch.fx.Node], shapes: Sequence[Sequence[int]]) -> str:
    """Text of the file for the arguments in_0.. of a graph: placeholders of Dynamo's, and their shapes when it ran."""
    symbolic = [_symbolic_shape(node, shape) for node, shape in zip(arguments, shapes, strict=True)]
    environment = next((size.node.shape_env for row in symbolic for size in row if _is_symbolic(size)), None)
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    rows = []
    for row, shape in zip(symbolic, shapes, strict=True):
        texts = []
        for size, number in zip(row, shape, strict=True):
            expression = _plain(size.node.expr) if _is_symbolic(size) else None
            for symbol in sorted(expression.free_symbols, key=str) if expression is not None else ():
                names.setdefault(symbol, sympy.Symbol(f"S{len(names)}"))
            texts.append(str(number) if expression is None else str(expression.xreplace(names)))
        rows.append(f"[{', '.join(texts)}]")
    relations = [str(relation.xreplace(names)) for relation in _relations(environment, names)] if names else []
    values = {new: int(_values(environment)[old]) for old, new in names.items()}
    return _render(values, relations, rows)


def _render(values: dict[sympy.Symbol, int], relations: Sequence[str], rows: Sequence[str]) -> str:
    used = [name for name in _IMPORTED_IF_USED if any(f"{name}(" in text for text in (*relations, *rows))]
    definitions = "".join(f'{symbol} = Symbol("{symbol}")\n' for symbol in values)
    shapes = "".join(f'    ({row}, "in_{index}"),\n' for index, row in enumerate(rows))
    return (
        f"from sympy import {', '.join([*_ALWAYS_IMPORTED, *used])}\n\n"
        f"{definitions}\n"
        f"dynamic_dim_constraint_symbols = [{', '.join(map(str, values))}]\n\n"
        f"dynamic_dim_constraint_symbol2example_value = {{{', '.join(f'{s}: {v}' for s, v in values.items())}}}\n\n"
        f"dynamic_dim_constraint_relations = [{', '.join(relations)}]\n\n"
        f"dynamic_dim_constraint_input_shapes = [\n{shapes}]\n"
    )


def _symbolic_shape(node: torch.fx.Node, shape: Sequence[int]) -> Sequence[Any]:
    """The shape as Dynamo saw it; constants of the graph have numbers only."""
    example = node.meta.get("example_value")
    return tuple(example.shape) if isinstance(example, torch.Tensor) else shape


def _is_symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Expr) and not size.node.expr.is_number


def _values(environment: Any) -> dict[sympy.Symbol, Any]:
    """Symbol -> its size in the captured call; the attribute's name depends on the version of PyTorch."""
    return environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val


def _relations(environment: Any, symbols: dict[sympy.Symbol, sympy.Symbol]) -> Iterator[sympy.Rel]:
    """What Dynamo found must hold of the sizes: their ranges, and its guards as far as sympy alone can say them."""
    for symbol in symbols:
        bounds = environment.var_to_range.get(symbol)
        if bounds is not None and bounds.lower.is_Integer:
            yield sympy.Ge(symbol, bounds.lower, evaluate=False)
        if bounds is not None and bounds.upper.is_Integer and bounds.upper < torch.iinfo(torch.int64).max:
            yield sympy.Le(symbol, bounds.upper, evaluate=False)
    seen = set()
    for guard in environment.guards:
        relation = _plain(environment.simplify(guard.expr))
        if isinstance(relation, sympy.Rel) and relation not in seen and relation.free_symbols <= symbols.keys():
            seen.add(relation)
            yield relation


def _plain(expression: Any) -> Any:
    """The expression in sympy's own functions instead of PyTorch's, or None if that cannot be."""
    plain = expression.replace(FloorDiv, lambda a, b: sympy.floor(a / b)).replace(Mod, sympy.Mod)
    plain = plain.replace(PythonMod, sympy.Mod)
    return plain if all(isinstance(part, _PRINTABLE) for part in sympy.preorder_traversal(plain)) else None
