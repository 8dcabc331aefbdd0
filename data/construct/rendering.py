"""Expressions of model.py -> one line of text in PassNet's style, however they were laid out. No torch.

The same expression always gives the same bytes, so graphs from our writer and from upstream's, which wraps lines, are
cut into the same text.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not",
}  # fmt: skip
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not "}
_BOOLEAN = {ast.And: " and ", ast.Or: " or "}
_COMPOUND = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)

_TOKENS = re.compile(
    r"""
    (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>\d[\w.]*(?:(?<=[eE])[+-]\d+)?)
    | (?P<attribute>\.\s*[A-Za-z_]\w*)
    | (?P<name>[A-Za-z_]\w*)(?P<assigned>\s?=(?!=))?
    """,
    re.VERBOSE,
)


class NotRenderedError(ValueError):
    """An expression that no graph holds: the message names it, `node` is where."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


def render(node: ast.expr, name: Callable[[ast.Name], str]) -> str:
    """The expression on one line; name: a Name node -> how it is written. Raises NotRenderedError."""

    def inner(node: ast.expr, *, operand: bool = False) -> str:
        if operand and isinstance(node, _COMPOUND):
            return f"({inner(node)})"
        match node:
            case ast.Name():
                return name(node)
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Attribute(value=value, attr=attribute):
                return f"{inner(value, operand=True)}.{attribute}"
            case ast.Call(func=func, args=args, keywords=keywords):
                function = inner(func, operand=True)
                # upstream writes device(type='cuda', index=0) as Python prints it, every other keyword with blanks
                equals = "=" if function in ("device", "torch.device") else " = "
                named = [f"{keyword.arg}{equals}{inner(keyword.value)}" for keyword in keywords if keyword.arg]
                if len(named) != len(keywords):
                    raise NotRenderedError(node, "** in a call")
                return f"{function}({', '.join([*map(inner, args), *named])})"
            case ast.Subscript(value=value, slice=index):
                return f"{inner(value, operand=True)}[{_index(index, inner)}]"
            case ast.Tuple(elts=parts):
                return f"({', '.join(map(inner, parts))}{',' if len(parts) == 1 else ''})"
            case ast.List(elts=parts):
                return f"[{', '.join(map(inner, parts))}]"
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = [inner(end) if end is not None else "" for end in (lower, upper)]
                return ":".join([*ends, inner(step)] if step is not None else ends)
            case ast.BinOp(left=left, op=op, right=right):
                return f"{inner(left, operand=_needs_brackets(left))} {BINARY[type(op)]} " + inner(
                    right, operand=_needs_brackets(right)
                )
            case ast.UnaryOp(op=op, operand=value):
                return f"{_UNARY[type(op)]}{inner(value, operand=True)}"
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
                rest = [
                    f" {_COMPARE[type(op)]} {inner(c, operand=True)}" for op, c in zip(ops, comparators, strict=True)
                ]
                return inner(left, operand=True) + "".join(rest)
            case ast.BoolOp(op=op, values=values):
                return _BOOLEAN[type(op)].join(inner(value, operand=True) for value in values)
        raise NotRenderedError(node, f"{type(node).__name__} {ast.unparse(node)[:60]!r}")

    return inner(node)


def rename(line: str, names: Mapping[str, str]) -> str:
    """The rendered line with values renamed; attributes, keywords and text are left alone."""

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None or name not in names:
            return found[0]
        if found["assigned"] and found.start() > 0:  # a keyword of a call; at the start of a line it is the target
            return found[0]
        return f"{names[name]}{found['assigned'] or ''}"

    return _TOKENS.sub(replaced, line)


def _index(node: ast.expr, inner: Callable[[ast.expr], str]) -> str:
    """x[(0, 1)] keeps its brackets, x[0:2, 1] must not have any."""
    if isinstance(node, ast.Tuple) and any(isinstance(part, ast.Slice) for part in node.elts):
        return ", ".join(map(inner, node.elts)) + ("," if len(node.elts) == 1 else "")
    return inner(node)


def _needs_brackets(node: ast.expr) -> bool:
    """Of an operand: -1 is a literal, and no graph has a negative literal to the left of **."""
    return not (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _constant(value: object) -> str:
    if value is Ellipsis:
        return "..."
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)
