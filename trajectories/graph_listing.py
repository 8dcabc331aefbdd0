"""The graphs of a task as compact text: one full listing for each structure, and a table of how the others differ.

Two graphs have one structure when their sources are the same but for literals; then a row names only what differs:
shapes and dtypes of arguments, and literals by line. No torch: sources are read with ast.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from data.graph import Graph
from data.task import Task
from trajectories.workspace import INDEX_FILE, graph_dir

_MIN_LISTING_CHARS = 400
"""A listing that would be cut below this is left out."""


@dataclass(frozen=True)
class _Literal:
    line: int
    """1-based, in the full listing as shown."""
    text: str


@dataclass(frozen=True)
class _Reading:
    """One graph, read for comparison."""

    index: int
    graph: Graph
    structure: str
    literals: tuple[_Literal, ...]
    listing: str


def render_graphs(task: Task, *, max_chars: int) -> str:
    """Listings and tables, at most max_chars characters; what is left out is said, and where to look."""
    groups: dict[str, list[_Reading]] = {}
    for index, graph in enumerate(task.graphs):
        reading = _read(index, graph)
        groups.setdefault(reading.structure, []).append(reading)
    blocks: list[str] = []
    left = max_chars - 160  # the closing note
    num_unlisted = num_rows_left_out = 0
    for position, readings in enumerate(groups.values()):
        # every structure gets an equal share of what is left, so that the first does not take it all
        share = left // (len(groups) - position)
        block, rows_left_out = _render_group(readings, share)
        if not block:
            num_unlisted += len(readings)
            continue
        blocks.append(block)
        left -= len(block) + 2
        num_rows_left_out += rows_left_out
    if num_unlisted or num_rows_left_out:
        num_hidden = num_unlisted + num_rows_left_out
        blocks.append(f"({num_hidden} graphs are not shown here; {INDEX_FILE} names all of them.)")
    return "\n\n".join(blocks)[:max_chars]


def _render_group(readings: Sequence[_Reading], max_chars: int) -> tuple[str, int]:
    """The text ("" if there is no room for any), and how many of its graphs it does not show."""
    first = readings[0]
    arguments = "\n".join(_argument_lines(first.graph))
    text = f"{_label(first)}\n{first.listing}\n{arguments}"
    if len(text) > max_chars:
        if max_chars < _MIN_LISTING_CHARS:
            return "", len(readings)
        note = f"\n... cut; see {graph_dir(first.index)}/model.py and weight_meta.py"
        return text[: max_chars - len(note)] + note, len(readings) - 1
    if len(readings) == 1:
        return text, 0
    text += "\nThe same with other shapes, dtypes or literals:"
    for shown, reading in enumerate(readings[1:], start=1):
        row = f"\n{_label(reading)} {_differences(first, reading)}"
        if len(text) + len(row) > max_chars:
            return text, len(readings) - shown
        text += row
    return text, 0


def _label(reading: _Reading) -> str:
    return f"{graph_dir(reading.index)} ({reading.graph.name.rstrip('/').split('/')[-1][-60:]}):"


def _differences(first: _Reading, other: _Reading) -> str:
    """What of `other` is not as in `first`; arguments that changed in the same way share an entry."""
    changed: dict[str, list[str]] = {}
    for name in other.graph.arguments:
        now = _tensor_text(other.graph, name)
        if now != _tensor_text(first.graph, name):
            changed.setdefault(now, []).append(name)
    parts = [f"{','.join(names)} {text}" for text, names in changed.items()]
    literals: dict[int, dict[str, None]] = {}
    for before, after in zip(first.literals, other.literals, strict=True):
        if before.text != after.text:
            literals.setdefault(before.line, {})[f"{before.text} -> {after.text}"] = None
    parts += [f"line {line}: {', '.join(changes)}" for line, changes in literals.items()]
    return "; ".join(parts) or "no difference but the statistics of its inputs"


def _argument_lines(graph: Graph) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name in graph.arguments:
        by_text.setdefault(_tensor_text(graph, name), []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def _tensor_text(graph: Graph, name: str) -> str:
    """Such as "float32[2, 49, 128]"; integers with their range, because it says what an index may be."""
    spec = graph.specs[name]
    text = f"{spec.dtype.removeprefix('torch.')}{list(spec.shape)}"
    if "int" in spec.dtype and spec.min_val is not None and spec.max_val is not None:
        text += f" in {spec.min_val}..{spec.max_val}"
    return text


def _read(index: int, graph: Graph) -> _Reading:
    """The forward function alone, without `x = None` statements: they only free memory."""
    forward = next(
        item
        for node in ast.parse(graph.model_source).body
        if isinstance(node, ast.ClassDef) and node.name == "GraphModule"
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "forward"
    )
    lines = [f"def forward({ast.unparse(forward.args)}):"]
    literals: list[_Literal] = []
    structure: list[str] = []
    for statement in forward.body:
        if _frees(statement):
            continue
        first_line = len(lines) + 1
        lines += [f"    {line}" for line in ast.unparse(statement).split("\n")]
        finder = _LiteralFinder()
        skeleton = finder.visit(ast.parse(ast.unparse(statement)).body[0])
        literals += [_Literal(first_line, text) for text in finder.texts]
        structure.append(ast.dump(skeleton))
    return _Reading(index, graph, "\n".join([lines[0], *structure]), tuple(literals), "\n".join(lines))


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
