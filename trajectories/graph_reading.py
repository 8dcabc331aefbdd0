"""GraphReading: one graph's source, read for comparison with others: its structure without literals, and the literals.

No torch: sources are read with ast.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from data.graph import Graph
from data.syntax import parse_source


@dataclass(frozen=True)
class Literal:
    line: int
    """1-based, in the full listing as shown."""
    text: str


@dataclass(frozen=True)
class GraphReading:
    """One graph, read for comparison."""

    index: int
    graph: Graph
    structure: str
    literals: tuple[Literal, ...]
    listing: str


def tensor_text(graph: Graph, name: str) -> str:
    """Such as "float32[2, 49, 128]"; integers with their range, because it says what an index may be."""
    spec = graph.specs[name]
    text = f"{spec.dtype.removeprefix('torch.')}{list(spec.shape)}"
    if "int" in spec.dtype and spec.min_val is not None and spec.max_val is not None:
        text += f" in {spec.min_val}..{spec.max_val}"
    return text


def read_graph(index: int, graph: Graph) -> GraphReading:
    """The forward function alone, without `x = None` statements: they only free memory. index: in the task."""
    forward = next(
        item
        for node in parse_source(graph.model_source).body
        if isinstance(node, ast.ClassDef) and node.name == "GraphModule"
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "forward"
    )
    lines = [f"def forward({ast.unparse(forward.args)}):"]
    literals: list[Literal] = []
    structure: list[str] = []
    for statement in forward.body:
        if _frees(statement):
            continue
        first_line = len(lines) + 1
        lines += [f"    {line}" for line in ast.unparse(statement).split("\n")]
        finder = _LiteralFinder()
        skeleton = finder.visit(parse_source(ast.unparse(statement)).body[0])
        literals += [Literal(first_line, text) for text in finder.texts]
        structure.append(ast.dump(skeleton))
    return GraphReading(index, graph, "\n".join([lines[0], *structure]), tuple(literals), "\n".join(lines))


def _frees(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is None
    )


class _LiteralFinder(ast.NodeTransformer):
    """Takes the literals out of a statement, in order: constants, and tuples and lists of constants as one."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and _is_literal(node):
            self.texts.append(ast.unparse(node))
            return ast.Constant(value=...)
        return self.generic_visit(node)


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and isinstance(node.ctx, ast.Load) and all(_is_number(item) for item in node.elts)
    if isinstance(node, ast.Attribute):
        return _is_torch_dtype(node)
    return isinstance(node, ast.Constant) or _is_number(node)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


_DTYPES = frozenset(
    {"float32", "float64", "float16", "bfloat16", "half", "float", "double", "bool"}
    | {"int8", "int16", "int32", "int64", "uint8", "long", "int"}
)


def _is_torch_dtype(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in _DTYPES
