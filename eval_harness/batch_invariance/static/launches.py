"""Kernel launches: binds arguments, tuned and computed meta-parameters and the grid, then runs the kernel's body."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.branches import evaluate_ways
from eval_harness.batch_invariance.static.functions import call_function
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.spreads import fill_parameters
from eval_harness.batch_invariance.static.state import Event, Frame, Func, KernelContext, Run
from eval_harness.batch_invariance.static.tuning import choose_configuration
from eval_harness.batch_invariance.static.values import (
    ANY,
    FUNC,
    MAP,
    NC,
    NUM,
    PTR,
    ROWS,
    SEQ,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    struct,
    unknown,
)

ORDER_WITHIN_TILE = frozenset(("sum", "scan"))
"""Reductions whose order the number of warps decides."""
_REDUCES = frozenset(("sum", "scan", "loop"))


def launch(
    run: Run, frame: Frame, target: Val, args: list[Val], kwargs: dict[str, Val], node: ast.Call, spread: Val | None
) -> Val:
    """kernel[grid](...): each kernel that the target may be."""
    grid = target.dims[0] if target.dims else unknown()
    ways = [
        lambda func=func: _launch_one(run, frame, func, grid, list(args), dict(kwargs), node, spread)
        for func in target.data
    ]
    if len(ways) == 1:
        return ways[0]()
    return evaluate_ways(run, frame, node, struct(target.dep), ways)


def _launch_one(
    run: Run,
    frame: Frame,
    func: Func,
    grid: Val,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.Call,
    spread: Val | None,
) -> Val:
    if not func.is_jit:
        return call_function(run, func, args, kwargs, frame, node, spread)
    args = with_template(func, [*func.positional, *args], node)
    kwargs = {**func.keywords, **kwargs}
    arguments: ast.arguments = func.node.args
    names = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    args = fill_parameters(run, frame, args, names, frozenset(kwargs), node.lineno)
    bound: dict[str, Val] = {}
    lines = {keyword.arg: keyword.value.lineno for keyword in node.keywords if keyword.arg}
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    for position, (name, value) in enumerate(zip(names, args, strict=False)):
        nodes = node.args
        line = nodes[position].lineno if not starred and position < len(nodes) else node.lineno
        bound[name] = _enter(frame, func, name, value, line)
    extras: dict[str, Val] = {}
    for name, value in kwargs.items():
        entered = _enter(frame, func, name, value, lines.get(name, node.lineno))
        (bound if name in names else extras)[name] = entered
    if spread is not None:
        for name in names:
            bound.setdefault(name, spread)
    for tuning in func.tuning:
        choose_configuration(run, frame, func, tuning, bound, extras, names)
    for name, function in func.heuristics.items():
        if name not in bound and function.kind == FUNC:
            value = call_function(run, function.data[0], [Val(MAP, data=dict(bound))], {}, frame, node)
            bound[name] = _enter(frame, func, name, value, func.node.lineno)
    defaults = dict(zip(names[len(arguments.args) - len(arguments.defaults) :], arguments.defaults, strict=False))
    for name in names:
        if name not in bound:
            bound[name] = run.eval(defaults[name], Frame(func.module)) if name in defaults else unknown()
    context = _context(run, frame, func, grid, bound, extras, node)
    events = run_kernel(run, context, bound)
    if events:
        run.events[("kernel", func.name)] = None
        run.events.update(dict.fromkeys(events))
        _check_warps(run, frame, context, events, node)
    return unknown()


def with_template(func: Func, args: list[Val], node: Any) -> list[Val]:
    """Template arguments come first; those that C++ deduces are not known."""
    declared = getattr(func.node, "num_template", 0)
    given = getattr(node, "num_template", 0)
    if declared <= given:
        return args
    return [*args[:given], *(unknown() for _ in range(declared - given)), *args[given:]]


def _enter(frame: Frame, func: Func, name: str, value: Val, line: int) -> Val:
    """A host value as a kernel sees it."""
    if value.kind == TENSOR:
        pointer = Val(PTR, data=value)
        pointer.name = name
        return pointer
    if value.dep is None or value.kind not in (NUM, ANY):
        if value.kind == NUM and value.name is not None:
            value = value.copy()
            value.name = None
        return value
    dep = value.dep
    entered = value.copy()
    entered.dep = Dep(
        dep.mode,
        frame.module.file,
        line + frame.module.first_line,
        dep,
        name=name,
        param=(func.name, name),
        part=dep.part,
        root=dep.root,
    )
    entered.name = name
    entered.index, entered.pos = False, None
    return entered


def _context(
    run: Run, frame: Frame, func: Func, grid: Val, bound: dict[str, Val], extras: dict[str, Val], node: ast.Call
) -> KernelContext:
    if grid.kind == FUNC and grid.data:
        grid = call_function(run, grid.data[0], [Val(MAP, data={**bound, **extras})], {}, frame, node)
    block: list[Val] | None = None
    if func.module.is_cuda and grid.kind == SEQ and grid.data:
        block = sizes_of(grid.data[1]) if len(grid.data) > 1 else None
        grid = grid.data[0]
    return KernelContext(func, sizes_of(grid), block, extras.get("num_warps"))


def sizes_of(value: Val) -> list[Val] | None:
    """A grid or block as a list of sizes."""
    if value.kind == SEQ:
        return value.data
    return [value] if value.kind == NUM else None


def run_kernel(run: Run, context: KernelContext, bound: dict[str, Val]) -> tuple[Event, ...]:
    """The reductions of the kernel's body, in order; its findings are booked on the way."""
    func = context.func
    key = (
        id(func.node),
        id(func.closure) if func.closure is not None else 0,
        tuple((name, _signature(value)) for name, value in bound.items()),
        tuple(_signature(size) for size in context.grid) if context.grid is not None else None,
        tuple(_signature(size) for size in context.block) if context.block is not None else None,
    )
    known = run.kernel_results.get(key)
    if known is not None:
        return known
    run.kernel_results[key] = ()
    frame = Frame(func.module, func.closure, func)
    frame.kernel = context
    context.first_load = len(run.loads)
    frame.variables = bound
    run.visited.add(id(func.node))
    outer, run.events = run.events, {}
    run.stack.append(id(func.node))
    run.depth += 1
    try:
        run.exec_block(func.node.body, frame)
        _note_pass(run, context)
        events = tuple(run.events)
    finally:
        run.events = outer
        run.stack.pop()
        run.depth -= 1
    run.kernel_results[key] = events
    return events


def _note_pass(run: Run, context: KernelContext) -> None:
    """A kernel that adds up what another one left of its sums is a second pass, though it reduces alike."""
    if not any(event[0] in _REDUCES for event in run.events):
        return
    number = 1
    for buffer in run.loads[context.first_load :]:
        for writer in buffer.writers if buffer is not None else ():
            if writer != context.name:
                number = max(number, run.passes.get(writer, 0) + 1)
    run.passes[context.name] = max(number, run.passes.get(context.name, 0))
    if number > 1:
        run.events["pass", number] = None


def _signature(value: Val) -> Any:
    if value.const is not NC:
        return (type(value.const).__name__, value.const if isinstance(value.const, int | str | float) else None)
    dep = value.dep
    inner = value.data.dep if value.kind == PTR and isinstance(value.data, Val) else None
    return (
        value.kind,
        value.elem,
        None if dep is None else (dep.mode, dep.part, dep.param),
        None if inner is None else inner.mode,
    )


def _check_warps(run: Run, frame: Frame, context: KernelContext, events: tuple[Event, ...], node: ast.Call) -> None:
    warps = context.warps
    if not any(event[0] in ORDER_WITHIN_TILE for event in events):
        return
    if warps is None:
        return
    run.events[("warps", warps.const if warps.const is not NC else "?")] = None
    if warps.dep is not None:
        line = next((keyword.value.lineno for keyword in node.keywords if keyword.arg == "num_warps"), node.lineno)
        report(
            run,
            frame,
            line,
            Mechanism.REDUCTION_ORDER,
            "warps",
            warps.dep.into(STRUCT) if warps.dep.mode == ROWS else warps.dep,
            f"num_warps of {context.name}, which adds up within a tile,",
        )
