"""A graph at other sizes, by its text: arguments are resized, and the sizes written in model.py follow.

TLDR: forward runs statement by statement on fake tensors, at the old and the new sizes side by side. Before a statement
runs at the new sizes, its literals are rewritten by what its operands became (size_literals.py, size_rules.py). Then
the whole graph runs on real tensors. For graphs that come without variants of their own; a model at hand is captured
again instead.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from data.construct.size_literals import literals_that_follow
from data.construct.size_rules import Axes, SeenSizes, axes_of
from data.construct.size_symbols import Shapes, changed_shapes, size_symbols
from data.device_mapping import map_devices
from data.fake_tensors import quiet_refusals
from data.graph import (
    GRAPH_HASH_FILE,
    INPUT_CONSTRAINTS_FILE,
    INPUT_META_FILE,
    MODEL_FILE,
    WEIGHT_META_FILE,
    Graph,
    MalformedGraphError,
    TensorSpec,
)
from data.inputs import draw_inputs, torch_dtype
from data.model_check import check_model_source, load_graph_module
from data.syntax import parse_source

DRAW_SEED = 7


class ResizeError(ValueError):
    """A graph has no form at these sizes. The message names the graph and the reason, in one line."""


def resize(graph: Graph, change: Mapping[str, int]) -> Graph:
    """The graph with each symbol of `change` (data.construct.size_symbols) at its new size, and all that is tied to it.

    The text is otherwise the same; input_tensor_constraints.py, which states the old sizes, is left out. Raises
    ResizeError if a literal's meaning cannot be told, or the graph does not run at these sizes, on fake tensors and on
    real ones; MalformedGraphError if model.py is not allowed to run at all, or a file cannot be read.
    """
    check_model_source(graph)
    try:
        shapes = changed_shapes(graph, change)
    except MalformedGraphError:
        raise
    except ValueError as error:
        raise ResizeError(f"{graph.name}: {error}") from None
    symbols = size_symbols(graph)
    changes = [(symbols[name].size, size) for name, size in change.items()]
    try:
        source = _SideBySide(graph, shapes, changes).rewritten_source()
        resized = _with_shapes(graph, shapes, source)
        with torch.no_grad(), quiet_refusals():
            load_graph_module(resized)(**draw_inputs(resized, seed=DRAW_SEED))
    except ResizeError:
        raise
    except Exception as error:  # whatever an operator does at a size that it was not captured at
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
        raise ResizeError(f"{graph.name}: no form at {dict(change)} ({reason}); give other sizes") from None
    return resized


class _SideBySide:
    """One graph's forward at two sizes, on fake tensors."""

    def __init__(self, graph: Graph, shapes: Shapes, changes: Axes) -> None:
        self.graph = graph
        on_cuda = "cuda" in graph.model_source or any(spec.device.startswith("cuda") for spec in graph.specs.values())
        tree = parse_source(graph.model_source)
        self.tree = map_devices(tree, captured="cuda" if on_cuda else "cpu", target="cpu")
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.namespace = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan}
        self.seen = SeenSizes(changes)
        with self.fake:
            self.before = {name: _empty(spec, spec.shape) for name, spec in graph.specs.items()}
            self.after = {name: _empty(spec, shapes[name]) for name, spec in graph.specs.items()}
        for name, old in self.before.items():
            self.seen.note(axes_of(old.shape, self.after[name].shape))

    def rewritten_source(self) -> str:
        """model.py for the new sizes. Raises ResizeError, naming the line."""
        edits: list[_Edit] = []
        with self.fake, torch.no_grad(), quiet_refusals():
            for statement in _forward(self.tree).body:
                if isinstance(statement, ast.Return):
                    break
                try:
                    edits += self._step(statement)
                except Exception as error:  # an operator that refuses the new sizes says so in its own way
                    reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
                    where = f"{self.graph.name}/{MODEL_FILE}:{statement.lineno}"
                    raise ResizeError(f"{where}: does not follow the new sizes ({reason}); give others") from None
        return _edited(self.graph.model_source, edits)

    def _step(self, statement: ast.stmt) -> list[_Edit]:
        """Run one statement at both sizes; what was rewritten in it."""
        found = literals_that_follow(statement, self._value_before, self._value_after, self.seen)
        self._execute(statement, self.before)
        edits = []
        for node, size in found:
            edits.append(_Edit.of(node, repr(size)))
            node.value = size
        self._execute(statement, self.after)
        for name in _assigned(statement):
            self._note(self.before.get(name), self.after.get(name))
        return edits

    def _execute(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        exec(compile(ast.Module([statement], []), MODEL_FILE, "exec"), self.namespace, names)

    def _value_before(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), MODEL_FILE, "eval"), self.namespace, self.before)

    def _value_after(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), MODEL_FILE, "eval"), self.namespace, self.after)

    def _note(self, before: Any, after: Any) -> None:
        match before, after:
            case torch.Tensor(), torch.Tensor():
                self.seen.note(axes_of(before.shape, after.shape))
            case (tuple() | list(), tuple() | list()):
                if len(before) != len(after):
                    raise ValueError(f"{len(before)} values become {len(after)}")
                for old, new in zip(before, after, strict=True):
                    self._note(old, new)
            case (bool(), _):
                pass
            case (int(), int()):
                self.seen.note([(before, after)])


@dataclass(frozen=True)
class _Edit:
    """New text for a part of a source; positions as in the syntax tree, columns in bytes."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str

    @classmethod
    def of(cls, node: ast.expr, text: str) -> _Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return cls((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def _edited(source: str, edits: Sequence[_Edit]) -> str:
    if not edits:
        return source
    lines = source.encode().split(b"\n")
    for edit in sorted(set(edits), key=lambda edit: edit.start, reverse=True):
        (first, start), (last, end) = edit.start, edit.end
        lines[first - 1 : last] = [lines[first - 1][:start] + edit.text.encode() + lines[last - 1][end:]]
    return b"\n".join(lines).decode()


def _with_shapes(graph: Graph, shapes: Shapes, source: str) -> Graph:
    files = {name: text for name, text in graph.files.items() if name != INPUT_CONSTRAINTS_FILE}
    for file in (WEIGHT_META_FILE, INPUT_META_FILE):
        if file in files:
            files[file] = _resized_meta(files[file], graph.specs, shapes)
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Graph(graph.name, {**files, MODEL_FILE: source, GRAPH_HASH_FILE: digest})


def _resized_meta(text: str, specs: Mapping[str, TensorSpec], shapes: Shapes) -> str:
    """A meta file with shapes, and the content of small constants, at the new sizes."""
    by_class = {spec.class_name: spec for spec in specs.values()}
    edits = []
    for node in parse_source(text).body:
        spec = by_class.get(node.name) if isinstance(node, ast.ClassDef) else None
        if spec is None or shapes[spec.name] == spec.shape:
            continue
        for field in (part for part in node.body if isinstance(part, ast.Assign)):  # type: ignore[attr-defined]
            name = ast.unparse(field.targets[0])
            if name == "shape":
                edits.append(_Edit.of(field.value, str(list(shapes[spec.name]))))
            elif name == "data" and spec.data is not None:
                values = _flat(spec.data)
                count = math.prod(shapes[spec.name])
                repeated = (values * (count // max(len(values), 1) + 1))[:count]
                edits.append(_Edit.of(field.value, repr(repeated)))
    return _edited(text, edits)


def _flat(data: Any) -> list[Any]:
    return [item for part in data for item in _flat(part)] if isinstance(data, list | tuple) else [data]


def _forward(tree: ast.Module) -> ast.FunctionDef:
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _empty(spec: TensorSpec, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=torch_dtype(spec.dtype))
