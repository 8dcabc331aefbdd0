"""Kernels of a folder: which functions are compiled, and whether a rule's replacement reaches any.

Reaching is by name, through assignments and sibling files: it says that a kernel could be launched, not that it is
(provenance and the poisoned outputs say that).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from eval_harness import source_names as names
from eval_harness.source_scope import Folder, Scope

_COPYING = frozenset(
    ["contiguous", "clone", "to", "type", "type_as", "float", "half", "bfloat16", "double", "copy_", "astype",
     "ascontiguousarray", "copy", "array"]
)  # fmt: skip


def kernel_kind(folder: Folder, scope: Scope, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """"numba" or "triton" when a decorator compiles the function, else None."""
    for decorator in node.decorator_list:
        origins = folder.origins(scope, decorator.func if isinstance(decorator, ast.Call) else decorator)
        if origins and origins <= names.NUMBA_JIT:
            return "numba"
        if origins and origins <= names.TRITON_JIT:
            return "triton"
    return None


def jit_option_faults(node: ast.Call, origins: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(rule, message) for options of a compiler that leave compiled code or hide what was compiled."""
    if origins & names.TRITON_JIT and any(keyword.arg in ("repr", None) for keyword in node.keywords):
        yield "source.triton-call", "repr= of triton.jit renames the kernel; leave it out"
    for keyword in node.keywords if origins & names.NUMBA_JIT else ():
        off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in names.NUMBA_DENIED_KEYWORDS and not off:
            yield "source.numba-call", f"{keyword.arg}= of numba.jit; compile in nopython mode"
        elif (keyword.arg == "nopython" and off) or keyword.arg is None:
            yield "source.numba-call", "numba.jit without nopython mode; use numba.njit"


def copies_without_kernel(folder: Folder, scope: Scope) -> ast.FunctionDef | None:
    """The rule's replacement_func when nothing it reaches is a kernel but something it reaches casts or copies.

    Casts and contiguous copies are allowed around a kernel, and a violation when they are the whole work.
    """
    start = scope.functions.get("replacement_func")
    if start is None:
        return None
    todo: list[tuple[Scope, ast.AST]] = [(scope, start)]
    seen: set[int] = set()
    copies = False
    while todo:
        owner, tree = todo.pop()
        if id(tree) in seen:
            continue
        seen.add(id(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and kernel_kind(folder, owner, node):
                return None
            if isinstance(node, ast.Call):
                if folder.origins(owner, node.func) & (names.NUMBA_JIT | names.TRITON_JIT | {names.LOAD_INLINE}):
                    return None
                copies = copies or (isinstance(node.func, ast.Attribute) and node.func.attr in _COPYING)
            if isinstance(node, ast.Name | ast.Attribute):
                todo.extend(_definitions(folder, owner, node))
    return start if copies else None


def _definitions(folder: Folder, scope: Scope, node: ast.Name | ast.Attribute) -> list[tuple[Scope, ast.AST]]:
    """What a name of the folder is bound to: functions, classes, assigned expressions."""
    places = {(scope.module, node.id)} if isinstance(node, ast.Name) else set()
    for origin in folder.origins(scope, node):
        module, _, name = origin.rpartition(".")
        places.add((module, name))
    return [
        (folder.scopes[module], value)
        for module, name in places
        if module in folder.scopes and name != "pattern"
        for value in folder.scopes[module].values.get(name, ())
    ]
