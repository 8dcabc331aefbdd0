"""Looks names up: locals, what a function closes over, its module, other files of the sources, libraries."""

from __future__ import annotations

import ast
import builtins

from eval_harness.batch_invariance.static.state import Frame, Module, Run
from eval_harness.batch_invariance.static.values import LIB, Val, unknown

_BUILTINS = frozenset(dir(builtins))
_LIBRARIES = frozenset(("torch", "at", "c10", "std", "cub", "cuda"))
_GPU_BUILTINS = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"))


def lookup(run: Run, name: str, frame: Frame) -> Val:
    """What the name stands for here."""
    scope: Frame | None = frame
    while scope is not None:
        value = scope.variables.get(name)
        if value is not None:
            return value
        scope = scope.outer
    value = frame.module.variables.get(name)
    if value is not None:
        return value
    if frame.module.is_cuda:
        return _cuda_name(run, name)
    if name in _BUILTINS:
        return Val(LIB, data="builtins." + name)
    value = unknown()
    value.name = name
    return value


def _cuda_name(run: Run, name: str) -> Val:
    """C++ sees every function of the sources by its name."""
    for module in run.modules.values():
        if module.is_cuda and name in module.variables:
            return module.variables[name]
    if name in _LIBRARIES:
        return Val(LIB, data=name)
    return Val(LIB, data=("gpu." if name in _GPU_BUILTINS else "cpp.") + name)


def ensure_ready(run: Run, module: Module) -> None:
    """Run the body of a module once."""
    if module.is_ready:
        return
    module.is_ready = True
    frame = Frame(module)
    frame.variables = module.variables
    run.exec_block(module.tree.body, frame)


def find_module(run: Run, dotted: str) -> Module | None:
    """The file of the sources that `import dotted` would find, by the last part of its name."""
    return run.modules.get(dotted.rpartition(".")[2]) if dotted else None


def import_names(run: Run, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
    """Bind what an import statement brings."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            module = find_module(run, alias.name)
            if module is not None and module is not frame.module:
                ensure_ready(run, module)
                frame.variables[alias.asname or alias.name.partition(".")[0]] = Val(LIB, data=module)
            else:
                dotted = alias.name if alias.asname else alias.name.partition(".")[0]
                frame.variables[alias.asname or dotted] = Val(LIB, data=dotted)
        return
    module = find_module(run, node.module or "")
    if module is not None and module is not frame.module:
        ensure_ready(run, module)
    for alias in node.names:
        name = alias.asname or alias.name
        if module is not None and module is not frame.module:
            if alias.name == "*":
                frame.variables.update({key: value for key, value in module.variables.items() if key[:1] != "_"})
            else:
                frame.variables[name] = module.variables.get(alias.name, unknown())
            continue
        inner = find_module(run, alias.name)
        if inner is not None and inner is not frame.module and (node.level or not node.module):
            ensure_ready(run, inner)
            frame.variables[name] = Val(LIB, data=inner)
        else:
            frame.variables[name] = Val(LIB, data=f"{node.module}.{alias.name}" if node.module else alias.name)
