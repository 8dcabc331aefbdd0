"""Turns a sink that was reached into a Finding: which parameter, by which path, and what to do about it."""

from __future__ import annotations

from typing import Any

from eval_harness.batch_invariance.contract import Parameter, Semantic
from eval_harness.batch_invariance.findings import Finding, Mechanism, PathStep
from eval_harness.batch_invariance.static import repairs
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import EXTENT, ROWS, Dep

TOKEN_COUNTS = "<token counts>"
"""Name of the first step of a dependency on how many tokens each expert got."""
PLACE = "<place>"
"""Name of the first step of a dependency on a row's place among the others."""


TUNED = "autotune key "
"""How the step of a dependency path through @triton.autotune is named."""


def report(run: Run, frame: Frame, line: int, mechanism: Mechanism, sink: str, dep: Dep, what: str) -> None:
    """Book a finding, unless the contract lets this parameter follow the batch.

    sink: what kind of place it is (a key of repairs.REPAIRS); what: the place in words.
    """
    if dep.is_guess:
        run.leave_open(frame, line, f"{what} may follow the batch, through a function that is not among the sources")
        return
    named = _named(run, dep)
    if named is not None and not named.is_protected:
        frame_line = f"{named.name} follows the batch, which the contract allows ({named.policy.value})"
        run.leave_open(frame, line, frame_line)
        return
    module = frame.module
    parameter = (
        named.name
        if named is not None
        else "choice of kernel"
        if sink == "choice"
        else _own_name(dep, "order of the loop" if sink == "bound" else what)
    )
    if any((step.name or "").startswith(TUNED) for step in dep.chain()):
        sink = "tuning"
    if named is not None and named.name == "NUM_SPLITS" and mechanism is Mechanism.REDUCTION_ORDER:
        mechanism = Mechanism.WORK_PARTITIONING  # a step over interleaved parts
    if sink == "capacity":
        limits = run.parameters.get("capacity")
        parameter = limits.name if limits is not None else "capacity"
    if sink == "random":
        stream = _rng_parameter(run)
        if stream is not None and not stream.is_protected:
            return
        parameter = named.name if named is not None and named.semantic is Semantic.RNG_STREAM else "RNG_SEED"
    if _routes_experts(dep, what):
        mechanism = Mechanism.EXPERT_ROUTING
    place = (module.file, line + module.first_line)
    key = (*place, mechanism, parameter)
    if frame.kernel is not None:
        run.variant_kernels.add(frame.kernel.name)
    if key in run.findings:
        return
    path: list[PathStep] = []
    for step in dep.chain():
        if not path or (path[-1].file, path[-1].line) != (step.file, step.line):
            path.append(_step(run, step))
    last = PathStep(*place, run.text(*place))
    if not path or path[-1] != last:
        path.append(last)
    origin = path[0]
    run.findings[key] = Finding(
        mechanism=mechanism,
        parameter=parameter,
        file=place[0],
        line=place[1],
        path=tuple(path),
        message=f"{what} follows {_KINDS.get(dep.chain()[0].mode, 'the batch')} ({origin.file}:{origin.line}: "
        f"{origin.text}){_through(dep)}",
        repair=repairs.repair(sink, parameter),
    )


_KINDS = {ROWS: "the size of the batch", EXTENT: "the longest row of the batch"}


def _through(dep: Dep) -> str:
    names: list[str] = []
    for step in dep.chain():
        if step.name is not None and step.name not in names and not step.name.startswith("<"):
            names.append(step.name)
    return f" through {', '.join(names)}" if names else ""


def _step(run: Run, dep: Dep) -> PathStep:
    return PathStep(dep.file, dep.line, run.text(dep.file, dep.line))


def _named(run: Run, dep: Dep) -> Parameter | None:
    """The contract's parameter that the dependency last went through; a protected one wins over one that is not.

    A parameter that may follow the batch counts only as the last name: what is computed from it is looked at.
    """
    if dep.param is not None:
        parameter = run.parameters.get(dep.param[1])
        if parameter is not None:
            return parameter
    step: Dep | None = dep
    is_last = True
    while step is not None:
        if step.name is not None:
            parameter = run.parameters.get(step.name)
            if parameter is not None and (parameter.is_protected or (is_last and dep.param is None)):
                return parameter
            is_last = False
        step = step.parent
    return None


def _own_name(dep: Dep, fallback: str) -> str:
    if dep.param is not None:
        return f"{dep.param[1]} of {dep.param[0]}"
    step: Dep | None = dep
    while step is not None:
        if step.name is not None and step.parent is not None and not step.name.startswith("<"):
            return step.name
        step = step.parent
    return fallback


def _rng_parameter(run: Run) -> Parameter | None:
    return next((one for one in run.contract.parameters if one.semantic is Semantic.RNG_STREAM), None)


def _routes_experts(dep: Dep, what: str) -> bool:
    """Whether it is how many tokens an expert got, a token's place among them, or the order of experts."""
    step: Dep | None = dep
    while step is not None:
        if step.name in (TOKEN_COUNTS, PLACE):
            return True
        step = step.parent
    return "expert" in what


def follows(value: Any) -> Dep | None:
    """The dependency of a size, or None."""
    return value.dep if value is not None else None
