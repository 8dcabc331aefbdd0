"""The integers of one statement that are sizes, and what they become when its operands change. Reads syntax trees.

Which integers are sizes is a table of calls: shapes of views and expansions, normalized shapes, the sizes of factories,
the ends of slices and ranges. How one follows is size_rules.py's.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from data.construct.size_rules import (
    MIN_LITERAL,
    Axes,
    NotFollowedError,
    SeenSizes,
    axes_of,
    follow_expand,
    follow_view,
)
from data.device_mapping import dotted_name

_VIEWS = frozenset({"view", "reshape"})
_EXPANSIONS = frozenset({"expand", "broadcast_to"})
_NORMALIZATIONS = frozenset({"layer_norm", "rms_norm", "native_layer_norm"})
_ALL = slice(None)
_SIZES: dict[str, tuple[slice, tuple[str, ...]]] = {
    # call -> positions among the arguments after the operand, and keywords, that hold sizes
    "zeros": (_ALL, ("size",)), "ones": (_ALL, ("size",)), "empty": (_ALL, ("size",)), "full": (slice(0, 1), ("size",)),
    "new_zeros": (_ALL, ("size",)), "new_ones": (_ALL, ("size",)), "new_empty": (_ALL, ("size",)),
    "new_full": (slice(0, 1), ("size",)), "eye": (_ALL, ("n", "m")), "tril_indices": (slice(0, 2), ("row", "col")),
    "triu_indices": (slice(0, 2), ("row", "col")), "interpolate": (slice(0, 1), ("size",)),
}  # fmt: skip
_BOUNDS: dict[str, tuple[slice, tuple[str, ...]]] = {
    "arange": (slice(0, 2), ("start", "end")), "linspace": (slice(0, 3), ("start", "end", "steps")),
    "narrow": (slice(1, 3), ("start", "length")), "split": (slice(0, 1), ("split_size_or_sections", "split_size")),
    "split_with_sizes": (slice(0, 1), ("split_sizes",)), "unflatten": (slice(1, 2), ("sizes",)),
}  # fmt: skip
_FACTORIES = frozenset({"zeros", "ones", "empty", "full", "eye", "tril_indices", "triu_indices", "arange", "linspace"})

Evaluate = Callable[[ast.expr], Any]
Followed = tuple[ast.Constant, int]


def literals_that_follow(statement: ast.stmt, before: Evaluate, after: Evaluate, seen: SeenSizes) -> list[Followed]:
    """(integer, its new value) for each one that changes. before, after: an expression -> its value at either size.

    Raises NotFollowedError, and whatever evaluating an operand raises.
    """
    finder = _Finder(before, after, seen)
    finder.visit(statement)
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, before: Evaluate, after: Evaluate, seen: SeenSizes) -> None:
        self.before, self.after, self.seen = before, after, seen
        self.found: list[Followed] = []

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return
        name = node.func.attr.strip("_")
        is_function = bool(dotted_name(node.func))
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        arguments = list(node.args)
        operand: ast.expr | None = node.func.value
        if is_function:
            operand = None if name in _FACTORIES else (arguments.pop(0) if arguments else keywords.get("input"))
        if name in _VIEWS and operand is not None:
            self.follow_shape(operand, _elements(arguments or _present(keywords, "shape", "size")), self.view)
        elif name in _EXPANSIONS and operand is not None:
            self.follow_shape(operand, _elements(arguments or _present(keywords, "size")), self.expansion)
        elif name in _NORMALIZATIONS and operand is not None:
            sizes = _elements(arguments[:1] or _present(keywords, "normalized_shape"))
            self.follow_shape(operand, sizes, lambda axes, sizes: [new for _, new in axes[len(axes) - len(sizes) :]])
        elif name in _SIZES:
            self.follow_each(_chosen(_SIZES[name], arguments, keywords), min_size=1)
        elif name in _BOUNDS:
            self.follow_each(_chosen(_BOUNDS[name], arguments, keywords), min_size=MIN_LITERAL)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        operand = self.before(node.value)
        shape = getattr(operand, "shape", None)
        axes = axes_of(shape, self.after(node.value).shape) if shape is not None else []
        axis: int | None = 0
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(part, ast.Constant) and part.value is None:
                continue
            if isinstance(part, ast.Constant) and part.value is Ellipsis:
                axis = None
                continue
            for end, size in _ends(part):
                if axis is not None and axis < len(axes) and axes[axis][0] == size:
                    self.note(end, axes[axis][1])
                elif size >= MIN_LITERAL:
                    self.note(end, self.seen.follow(size))
            axis = None if axis is None else axis + 1

    def follow_shape(
        self, operand: ast.expr, nodes: Sequence[ast.expr], rule: Callable[[Axes, Sequence[int]], list[int]]
    ) -> None:
        """All sizes of a call together, which the axes of its operand explain."""
        axes = axes_of(self.before(operand).shape, self.after(operand).shape)
        sizes = [self.before(node) for node in nodes]
        if not sizes or not all(type(size) is int for size in sizes):
            return  # x.view(torch.int32), x.expand(size) with a size that follows by itself
        for node, size, new in zip(nodes, sizes, rule(axes, sizes), strict=True):
            if isinstance(node, ast.Constant) and node.value == size:
                self.note(node, new)

    def view(self, axes: Axes, sizes: Sequence[int]) -> list[int]:
        found = list(sizes)
        if -1 in found:
            others = -math.prod(found)
            if others <= 0:
                raise NotFollowedError(f"{found} leaves open which size is -1")
            found[found.index(-1)] = math.prod(before for before, _ in axes) // others
        return follow_view(axes, found, self.seen.changes)

    def expansion(self, axes: Axes, sizes: Sequence[int]) -> list[int]:
        return follow_expand(axes, sizes, self.seen)

    def follow_each(self, nodes: Sequence[ast.expr], *, min_size: int) -> None:
        """Sizes that no operand explains."""
        for node in _elements(nodes):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= min_size:
                self.note(node, self.seen.follow(node.value))

    def note(self, node: ast.Constant, new: int) -> None:
        if node.value != new:
            self.found.append((node, new))


def _elements(nodes: Sequence[ast.expr]) -> list[ast.expr]:
    """f(2, 3), f((2, 3)) and f([2, 3]) are spelled alike."""
    return [
        element
        for node in nodes
        for element in (node.elts if isinstance(node, ast.Tuple | ast.List) else [node])
        if not isinstance(element, ast.Starred)
    ]


def _present(keywords: dict[str, ast.expr], *names: str) -> list[ast.expr]:
    return [keywords[name] for name in names if name in keywords]


def _chosen(
    where: tuple[slice, tuple[str, ...]], arguments: Sequence[ast.expr], keywords: dict[str, ast.expr]
) -> list[ast.expr]:
    return [*arguments[where[0]], *_present(keywords, *where[1])]


def _ends(part: ast.expr) -> Iterator[Followed]:
    """The integers at which a slice begins and ends, each with its value."""
    ends: list[ast.expr | None] = []
    if isinstance(part, ast.Slice):
        ends = [part.lower, part.upper]
    elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "slice":
        ends = list(part.args[: 2 if len(part.args) > 1 else 1])
    for end in ends:
        if isinstance(end, ast.Constant) and type(end.value) is int and end.value > 0:
            yield end, end.value
