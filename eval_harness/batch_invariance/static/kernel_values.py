"""What a kernel can ask about its launch: program ids, numbers of programs and threads."""

from __future__ import annotations

from eval_harness.batch_invariance.static.state import Frame
from eval_harness.batch_invariance.static.values import PLACE, ROWS, STRUCT, Dep, Val, num


def program_id(frame: Frame, axis: int) -> Val:
    """tl.program_id(axis), blockIdx: an index; of rows, where its number follows the batch."""
    value = num(elem="i")
    value.index = True
    value.data = PLACE
    kernel = frame.kernel
    if kernel is None:
        return value
    if kernel.grid is None:
        if axis == 0:
            value.pos = _position(frame)
        return value
    if axis < len(kernel.grid):
        dep = kernel.grid[axis].dep
        if dep is not None and dep.mode == ROWS:
            value.pos = dep
    return value


def _position(frame: Frame) -> Dep | None:
    kernel = frame.kernel
    if kernel is None:
        return None
    module = kernel.func.module
    return Dep(ROWS, module.file, kernel.func.node.lineno + module.first_line, name="program_id(0)")


def num_programs(frame: Frame, axis: int) -> Val:
    """tl.num_programs(axis), gridDim."""
    kernel = frame.kernel
    if kernel is None or kernel.grid is None or axis >= len(kernel.grid):
        return num(elem="i")
    return _of_launch(frame, kernel.grid[axis], f"num_programs({axis})")


def num_threads(frame: Frame, axis: int) -> Val:
    """blockDim."""
    kernel = frame.kernel
    if kernel is None or kernel.block is None or axis >= len(kernel.block):
        return num(elem="i")
    value = _of_launch(frame, kernel.block[axis], "blockDim")
    if value.dep is not None and value.dep.mode == ROWS:
        value.dep = value.dep.into(STRUCT)
    return value


def _of_launch(frame: Frame, size: Val, name: str) -> Val:
    value = size.copy()
    kernel = frame.kernel
    if value.dep is not None and kernel is not None:
        dep = value.dep
        value.dep = Dep(dep.mode, dep.file, dep.line, dep, name=name, param=(kernel.name, name), part=dep.part)
    value.elem = "i"
    return value
