"""model.py from a download is code: this checks it against an allow-list before anything runs it, and loads it.

Covered: the file can only define GraphModule.forward, and forward can only compute on its arguments, statement after
statement, with the calls of allowed_calls.py. There is no name, attribute or import left by which it could reach a
file, a process, the network or the interpreter. Not covered: how much memory or time an allowed call takes; the harness
limits those. The check imports no torch.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NoReturn

from data.allowed_calls import (
    ARITHMETIC_DUNDERS,
    FUNCTION_PREFIXES,
    FUNCTIONS,
    METHODS,
    RANDOM,
    READS_VALUES,
    TENSOR_ATTRIBUTES,
    TORCH_CONSTANTS,
)
from data.device_mapping import dotted_name, map_devices
from data.graph import MODEL_FILE, Graph, MalformedGraphError
from data.syntax import parse_source

if TYPE_CHECKING:  # torch takes a second to import, and the check needs none of it
    import torch

_RESERVED = frozenset({"torch", "self", "device", "slice", "float"})
_ANNOTATIONS = frozenset({"torch.Tensor", "torch.nn.parameter.Parameter", "torch.SymInt"})
_IMPORTED_NAMES = frozenset({"device", "inf", "nan"})
_DROPOUT = re.compile(r"dropout\d?d?$")


def check_model_source(graph: Graph) -> None:
    """Raise MalformedGraphError, naming file, line and reason, unless model.py is straight-line tensor code."""
    _Checker(f"{graph.name}/{MODEL_FILE}").check(parse_source(graph.model_source))


def load_graph_module(graph: Graph, device: str | torch.device = "cpu") -> torch.nn.Module:
    """Check model.py, execute it, and make its GraphModule, with captured devices mapped to `device`.

    Raises MalformedGraphError if the check refuses.
    """
    import torch

    check_model_source(graph)
    tree = parse_source(graph.model_source)
    target = torch.device(device)
    # a graph captured without a GPU names only the CPU, and then that is what moves
    captured = "cuda" if "cuda" in graph.model_source or _metas_on_cuda(graph) else "cpu"
    tree = map_devices(tree, captured=captured, target=str(target))
    namespace = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan, "__name__": "graph_module"}
    exec(compile(tree, f"{graph.name}/{MODEL_FILE}", "exec"), namespace)
    return namespace["GraphModule"]()  # type: ignore[operator]


def _metas_on_cuda(graph: Graph) -> bool:
    return any(spec.device.startswith("cuda") for spec in graph.specs.values())


class _Checker:
    """Walks the whole tree; every node that no method here knows is refused."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: set[str] = set()

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        line = getattr(node, "lineno", 1)
        raise MalformedGraphError(f"{self.path}:{line}: {reason}; correct the graph or leave it out")

    def check(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.Import) and [(a.name, a.asname) for a in node.names] == [("torch", None)]:
                continue
            if _is_import_of_names(node) or _is_docstring(node):
                continue
            if not (isinstance(node, ast.ClassDef) and node.name == "GraphModule"):
                self.refuse(
                    node, f"{_shown(node)!r} is not allowed at the top level, only `import torch` and GraphModule"
                )
            self.check_class(node)

    def check_class(self, node: ast.ClassDef) -> None:
        if node.decorator_list or node.keywords or [dotted_name(base) for base in node.bases] != ["torch.nn.Module"]:
            self.refuse(node, "GraphModule must derive from torch.nn.Module alone, with no decorator")
        for item in node.body:
            if not (_is_docstring(item) or (isinstance(item, ast.FunctionDef) and item.name == "forward")):
                self.refuse(item, f"{_shown(item)!r} is not allowed in GraphModule, only forward")
            if isinstance(item, ast.FunctionDef):
                self.check_forward(item)

    def check_forward(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        plain = not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults)
        if node.decorator_list or not plain or not arguments.args:
            self.refuse(node, "forward must take plain positional arguments, with no defaults and no decorator")
        shadowing = _RESERVED.intersection(argument.arg for argument in arguments.args[1:])
        if arguments.posonlyargs or arguments.args[0].arg != "self" or shadowing:
            self.refuse(node, f"forward must take self and arguments not named {', '.join(sorted(_RESERVED))}")
        annotations = [argument.annotation for argument in arguments.args] + [node.returns]
        for annotation in annotations:
            # annotations of a signature are evaluated
            if annotation is not None and not _is_text(annotation) and dotted_name(annotation) not in _ANNOTATIONS:
                self.refuse(
                    annotation,
                    f"annotation {_shown(annotation)!r} is not allowed, only strings, torch.Tensor, "
                    "torch.nn.parameter.Parameter and torch.SymInt",
                )
        self.names = {argument.arg for argument in arguments.args[1:]} | _IMPORTED_NAMES
        for statement in node.body:
            self.check_statement(statement)

    def check_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self.check_value(value)
                for target in targets:
                    self.check_target(target)
            case ast.AnnAssign(target=ast.Name() as target, annotation=ast.Constant(), value=ast.expr() as value):
                self.check_value(value)
                self.check_target(target)
            case ast.AugAssign(target=target, value=value):
                self.check_value(value)
                self.check_target(target)
            case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
                self.check_value(value)
            case ast.Delete(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                pass
            case ast.Pass():
                pass
            case _:
                self.refuse(node, f"{type(node).__name__} statement is not allowed, forward is straight-line code")

    def check_target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if name in _RESERVED:
                    self.refuse(node, f"{name!r} may not be assigned")
                self.names.add(name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self.check_target(element)
            case ast.Subscript(value=value, slice=index):
                self.check_value(value)
                self.check_value(index)
            case _:
                self.refuse(node, f"assignment to {_shown(node)!r} is not allowed")

    def check_value(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                pass
            case ast.Name(id=name):
                if name not in self.names and name != "Ellipsis":
                    self.refuse(node, f"{name!r} is neither an argument nor assigned before; weights are arguments too")
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
                self.check_all(parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                self.check_all([part for part in (lower, upper, step) if part is not None])
            case ast.BinOp(left=left, right=right):
                self.check_all([left, right])
            case ast.Compare(left=left, comparators=comparators):
                self.check_all([left, *comparators])
            case ast.UnaryOp(operand=operand):
                self.check_value(operand)
            case ast.Subscript(value=value, slice=index):
                self.check_all([value, index])
            case ast.Attribute():
                self.check_attribute(node)
            case ast.Call():
                self.check_call(node)
            case _:
                self.refuse(node, f"{type(node).__name__} {_shown(node)!r} is not allowed")

    def check_all(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            self.check_value(node)

    def check_attribute(self, node: ast.Attribute) -> None:
        dotted = dotted_name(node)
        if dotted.startswith("torch."):
            if dotted.removeprefix("torch.") not in TORCH_CONSTANTS:
                self.refuse(node, f"{dotted} is not allowed as a value")
            return
        self.check_value(node.value)
        if node.attr not in TENSOR_ATTRIBUTES:
            self.refuse(node, f"attribute {node.attr!r} is not allowed")

    def check_call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(node, "** in a call is not allowed")
        self.check_all([*node.args, *(keyword.value for keyword in node.keywords)])
        if isinstance(node.func, ast.Name):
            text_only = node.func.id == "float" and len(node.args) == 1 and _is_text(node.args[0])
            if node.func.id not in ("device", "slice") and not text_only:
                self.refuse(node, f"call of {node.func.id!r} is not allowed")
            return
        if not isinstance(node.func, ast.Attribute):
            self.refuse(node, f"call of {_shown(node.func)!r} is not allowed")
        dotted = dotted_name(node.func)
        if dotted.startswith("torch."):
            self.check_function(node, dotted)
            return
        name = node.func.attr
        self.check_special(node, name, f".{name}()")
        if name not in ARITHMETIC_DUNDERS and name not in METHODS and name.removesuffix("_") not in METHODS:
            self.refuse(node, f"tensor method {name!r} is not allowed")
        self.check_value(node.func.value)

    def check_function(self, node: ast.Call, dotted: str) -> None:
        if dotted == "torch.device":
            return
        where, _, name = dotted.rpartition(".")
        if where.startswith("torch.ops.aten."):  # torch.ops.aten.index.Tensor: the overload is no name of its own
            where, _, name = where.rpartition(".")
        self.check_special(node, name, dotted)
        prefix = FUNCTION_PREFIXES.get(where)
        if prefix is not None and name.startswith(prefix) and name.replace("_", "").isalnum() and name[0] != "_":
            return
        allowed = FUNCTIONS.get(where, frozenset())
        if name not in allowed and (name.endswith("__") or name.removesuffix("_") not in allowed):
            self.refuse(node, f"call of {dotted} is not allowed")

    def check_special(self, node: ast.Call, name: str, shown: str) -> None:
        if name.removesuffix("_") in RANDOM:
            self.refuse(node, f"{shown} draws random numbers, so the outputs have no expected value")
        if name in READS_VALUES:
            self.refuse(node, f"{shown} makes a Python value of a tensor's content")
        if _DROPOUT.search(name.removesuffix("_")) and not _dropout_is_off(node):
            self.refuse(node, f"{shown} drops at random; capture the model in evaluation mode")
        if name == "multi_head_attention_forward" and not _attention_is_in_evaluation(node):
            self.refuse(node, f"{shown} drops at random; capture the model in evaluation mode")
        if name == "scaled_dot_product_attention" and not _is_zero(_argument(node, 4, "dropout_p")):
            self.refuse(node, f"{shown} drops at random; capture the model in evaluation mode")


def _dropout_is_off(node: ast.Call) -> bool:
    training = _argument(node, 2, "training", "train")
    off = isinstance(training, ast.Constant) and training.value is False
    probability = _argument(node, 1, "p")
    return off or (probability is not None and _is_zero(probability))


def _attention_is_in_evaluation(node: ast.Call) -> bool:
    training = _argument(node, 13, "training")
    off = isinstance(training, ast.Constant) and training.value is False
    probability = _argument(node, 10, "dropout_p")
    return off or (probability is not None and _is_zero(probability))


def _argument(node: ast.Call, position: int, *names: str) -> ast.expr | None:
    if position < len(node.args):
        return node.args[position]
    return next((keyword.value for keyword in node.keywords if keyword.arg in names), None)


def _is_zero(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value in (0, 0.0))


def _is_import_of_names(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.ImportFrom) and node.module == "torch" and node.level == 0):
        return False
    return all(alias.name in _IMPORTED_NAMES and alias.asname is None for alias in node.names)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and _is_text(node.value)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:60]
