"""Tensors that the host makes and kernels fill: who wrote them, and whether what they hold follows the batch."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.cross_row import is_statistic, statistic
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import EXTENT, PTR, ROWS, Dep, Val, stronger


class Buffer:
    """What is known of the contents of one tensor, shared by all its views."""

    __slots__ = ("dep", "writers")

    def __init__(self) -> None:
        self.dep: Dep | None = None
        self.writers: set[str] = set()
        """Names of the kernels that store into it."""


def buffer_of(pointer: Val) -> Buffer | None:
    """The buffer that a kernel's pointer points into, or a host tensor is."""
    tensor = pointer.data if pointer.kind == PTR else pointer
    found = tensor.data if isinstance(tensor, Val) else None
    return found if isinstance(found, Buffer) else None


def contents(pointer: Val) -> Dep | None:
    """How what is loaded through the pointer follows the batch."""
    tensor = pointer.data if pointer.kind == PTR else pointer
    if not isinstance(tensor, Val):
        return None
    buffer = tensor.data if isinstance(tensor.data, Buffer) else None
    return stronger(tensor.dep, buffer.dep) if buffer is not None else tensor.dep


def note_load(run: Run, pointer: Val) -> None:
    """A kernel reads the buffer."""
    buffer = buffer_of(pointer)
    if buffer is not None:
        run.loads.append(buffer)
    elif pointer.kind == PTR and (not isinstance(pointer.data, Val) or pointer.data.elem == "f"):
        run.loads.append(None)


def note_store(run: Run, frame: Frame, pointer: Val, value: Val, line: int) -> None:
    """A kernel writes the buffer: a plan of splits carries its dependency to whoever reads it."""
    buffer = buffer_of(pointer)
    if buffer is None:
        return
    if frame.kernel is not None:
        buffer.writers.add(frame.kernel.name)
        if value.elem == "f" and buffer in run.loads[frame.kernel.first_load :]:
            run.events["adds to", frame.kernel.name] = None
    if value.dep is not None and (value.elem != "f" or is_statistic(value.dep)):
        module = frame.module
        buffer.dep = stronger(buffer.dep, value.dep.step(module.file, line + module.first_line))


def note_gathered(run: Run, frame: Frame, name: str, pointer: Val, node: ast.AST, *, integers: bool) -> None:
    """An atomic on one place for all programs: afterwards it holds something taken over all rows."""
    buffer = buffer_of(pointer)
    if buffer is None or pointer.index or pointer.dims:
        return
    module = frame.module
    line = node.lineno + module.first_line  # type: ignore[attr-defined]
    dep = statistic(module.file, line)
    if integers:
        dep = Dep(ROWS if "add" in name.lower() else EXTENT, module.file, line, name="total", root="T")
    buffer.dep = stronger(buffer.dep, dep)
