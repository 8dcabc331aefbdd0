"""Arithmetic on arrays outside kernels, as far as the syntax tree tells which names hold arrays.

The dispatch guard sees arithmetic on tensors, but nothing sees numpy's own loops (`x.numpy() + y.numpy()`), so arrays
are followed here: from .numpy(), numpy and torch allocation and views, through assignments, subscripts, returns and
arguments of functions of the folder. An array that arrives in another way is missed; an int never counts as one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator

from eval_harness.source_scope import Folder, Scope, assignments

_PRODUCERS = frozenset(
    f"{library}.{name}"
    for library, listed in (
        ("numpy", "empty empty_like zeros zeros_like ones ones_like full full_like asarray ascontiguousarray array "
         "reshape ravel transpose squeeze expand_dims moveaxis swapaxes broadcast_to require"),
        ("torch", "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like from_numpy as_strided "
         "reshape permute transpose squeeze unsqueeze flatten broadcast_to"),
    )
    for name in listed.split()
)  # fmt: skip
_KEEPING_METHODS = frozenset(
    ["astype", "view", "reshape", "ravel", "transpose", "squeeze", "copy", "swapaxes", "to", "contiguous", "clone",
     "unsqueeze", "permute", "flatten", "expand", "float", "half", "bfloat16", "double", "int", "long", "detach"]
)  # fmt: skip
_REDUCING_BUILTINS = frozenset({"sum", "max", "min", "abs", "pow", "round", "divmod"})
_MAX_ROUNDS = 6

IsKernel = Callable[[Scope, ast.FunctionDef], bool]


class ArrayFlow:
    """Which names of which functions of a folder hold arrays."""

    def __init__(self, folder: Folder, is_kernel: IsKernel) -> None:
        self.folder = folder
        self.functions: dict[str, tuple[Scope, ast.FunctionDef]] = {}
        """Dotted name -> function that runs as plain Python. `pattern` only describes and is left out."""
        for scope in folder.scopes.values():
            for name, node in scope.functions.items():
                if name.split("@")[0] != "pattern" and not is_kernel(scope, node):
                    self.functions[f"{scope.module}.{name}"] = (scope, node)
        self._nodes = {dotted: list(_own_nodes(function)) for dotted, (_, function) in self.functions.items()}
        self.arrays: dict[str, set[str]] = defaultdict(set)
        """Dotted function name -> its names that hold arrays."""
        self.returning: set[str] = set()
        for _ in range(_MAX_ROUNDS):
            before = (sum(map(len, self.arrays.values())), len(self.returning))
            for dotted in self.functions:
                self._flow_through(dotted)
            if (sum(map(len, self.arrays.values())), len(self.returning)) == before:
                break

    def _flow_through(self, dotted: str) -> None:
        scope, _ = self.functions[dotted]
        known = self.arrays[dotted]
        for node in self._nodes[dotted]:
            for target, value in assignments(node):
                if isinstance(target, ast.Name) and self.is_array(scope, value, known):
                    known.add(target.id)
            if isinstance(node, ast.Return) and node.value is not None and self.is_array(scope, node.value, known):
                self.returning.add(dotted)
            if isinstance(node, ast.Call):
                self._flow_into(scope, node, known)

    def _flow_into(self, scope: Scope, call: ast.Call, known: set[str]) -> None:
        for callee in self._callees(scope, call.func):
            parameters = self.functions[callee][1].args.args
            for parameter, argument in zip(parameters, call.args, strict=False):
                if self.is_array(scope, argument, known):
                    self.arrays[callee].add(parameter.arg)

    def _callees(self, scope: Scope, function: ast.expr) -> list[str]:
        found = {f"{scope.module}.{function.id}"} if isinstance(function, ast.Name) else set()
        return [name for name in found | self.folder.origins(scope, function) if name in self.functions]

    def is_array(self, scope: Scope, node: ast.expr, known: set[str]) -> bool:
        """Whether the expression certainly is an array or tensor."""
        if isinstance(node, ast.Name):
            return node.id in known
        if isinstance(node, ast.Subscript):
            return self.is_array(scope, node.value, known)
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and self.is_array(scope, node.value, known)
        if isinstance(node, ast.IfExp):
            return self.is_array(scope, node.body, known) or self.is_array(scope, node.orelse, known)
        if isinstance(node, ast.BinOp):
            return self.is_array(scope, node.left, known) or self.is_array(scope, node.right, known)
        if not isinstance(node, ast.Call):
            return False
        if self.folder.origins(scope, node.func) & _PRODUCERS:
            return True
        if any(callee in self.returning for callee in self._callees(scope, node.func)):
            return True
        if isinstance(node.func, ast.Attribute):
            keeps = node.func.attr in _KEEPING_METHODS and self.is_array(scope, node.func.value, known)
            return keeps or node.func.attr == "numpy"
        return False

    def arithmetic(self, scope: Scope) -> Iterator[tuple[ast.AST, str]]:
        """(node, what was found and what to do instead) for each operation on arrays in one file."""
        for dotted, (owner, _) in self.functions.items():
            if owner is not scope:
                continue
            known = self.arrays[dotted]
            for node in self._nodes[dotted]:
                if any(self.is_array(scope, operand, known) for operand in _operands(node)):
                    text = ast.unparse(node)  # type: ignore[arg-type]
                    yield node, f"{text[:60]}: arithmetic on an array outside a kernel; write it in the kernel"


def _operands(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    identity = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
    if isinstance(node, ast.Compare) and not any(isinstance(op, identity) for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REDUCING_BUILTINS:
        return list(node.args)
    return []


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Nodes of a function's body, nested functions left out (they are functions of their own)."""
    todo: list[ast.AST] = list(reversed(function.body))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(reversed(list(ast.iter_child_nodes(node))))
