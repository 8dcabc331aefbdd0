"""CUDA and C++ inside Python: text handed to load_inline and its like, and the module that comes of it."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.state import Frame, Instance, Run
from eval_harness.batch_invariance.static.values import OBJ, Val

_LOADERS = frozenset(("load_inline", "load", "RawModule", "RawKernel", "compile_cuda", "_compile_kernel"))


def call_loader(
    run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call
) -> Val | None:
    """The module that load_inline gives: every C++ function of the sources is a member."""
    if name not in _LOADERS or not any(module.is_cuda for module in run.modules.values()):
        return None
    members: dict[str, Val] = {}
    for module in run.modules.values():
        if module.is_cuda:
            members.update(module.variables)
    for alias, target in _bindings(run).items():
        if target in members:
            members.setdefault(alias, members[target])
    return Val(OBJ, data=Instance(None, members))


def _bindings(run: Run) -> dict[str, str]:
    """m.def("name", &function) of a PYBIND11_MODULE."""
    found: dict[str, str] = {}
    for module in run.modules.values():
        if module.is_cuda:
            found.update(getattr(module.tree, "exported", {}))
    return found
