"""Autotuning: what a launch chooses among configurations by, and which meta-parameters differ between them."""

from __future__ import annotations

from eval_harness.batch_invariance.static.functions import call_function, strongest
from eval_harness.batch_invariance.static.reporting import TUNED
from eval_harness.batch_invariance.static.state import Frame, Func, Run, Tuning
from eval_harness.batch_invariance.static.values import FUNC, MAP, NC, STRUCT, Dep, Val, num, seq


def choose_configuration(
    run: Run, frame: Frame, func: Func, tuning: Tuning, bound: dict[str, Val], extras: dict[str, Val], names: list[str]
) -> None:
    dep: Dep | None = None
    key_name = ""
    for key in tuning.keys:
        value = bound.get(key) or extras.get(key)
        if value is not None and value.dep is not None and (dep is None or value.dep.mode > dep.mode):
            dep, key_name = value.dep, key
    if dep is None and tuning.prune is not None:
        dep, key_name = _pruned_by(run, frame, func, tuning, bound), "pruning"
    if tuning.varying is None:
        if dep is not None:
            run.leave_open(
                frame_of(func), tuning.line, f"{func.name} is tuned by {key_name}, over configurations not known here"
            )
        return
    differs = False
    for name, value in tuning.varying.items():
        if name in bound:
            continue
        target = bound if name in names else extras
        if value.const is not NC:
            target[name] = value
            continue
        differs = True
        chosen = num(elem="i")
        if dep is not None:
            module = func.module
            line = tuning.line + module.first_line
            step = Dep(STRUCT, module.file, line, dep, name=TUNED + key_name)
            chosen.dep = Dep(STRUCT, module.file, line, step, name=name, param=(func.name, name))
        target[name] = chosen
    if differs:
        reason = (
            "chooses its configuration by the batch"
            if dep is not None
            else "chooses its configuration at its first call"
        )
        run.leave_open(frame_of(func), tuning.line, f"autotuning of {func.name} {reason}")


def _pruned_by(run: Run, frame: Frame, func: Func, tuning: Tuning, bound: dict[str, Val]) -> Dep | None:
    """What the functions that leave configurations out look at."""
    if tuning.prune is None or tuning.prune.kind != MAP:
        return None
    arguments = Val(MAP, data=dict(bound))
    config = Val(MAP, data=dict(tuning.varying or {}))
    node = func.node
    for name, function in tuning.prune.data.items():
        if function.kind != FUNC:
            continue
        if name == "perf_model":
            value = call_function(run, function.data[0], [], {**(tuning.varying or {}), **bound}, frame, node)
        else:
            value = call_function(run, function.data[0], [seq(None, None, config), arguments], {}, frame, node)
        dep = strongest([value])
        if dep is not None:
            return dep
    return None


def frame_of(func: Func) -> Frame:
    return Frame(func.module, None, func)
