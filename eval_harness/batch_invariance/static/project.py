"""Reads the sources into modules, finds what is called from outside, and runs it with arguments guessed by name."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from data.syntax import parse_source
from eval_harness.batch_invariance.static import sources
from eval_harness.batch_invariance.static.functions import call_function, instantiate
from eval_harness.batch_invariance.static.launches import run_kernel
from eval_harness.batch_invariance.static.names import ensure_ready
from eval_harness.batch_invariance.static.state import BudgetError, Class, Frame, Func, KernelContext, Module, Run
from eval_harness.batch_invariance.static.values import CLASS, FUNC, PTR, Val, num, unknown

_CUDA_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp")
_NOT_RUN = frozenset(
    ("pattern", "replacement_args", "main", "test", "bench", "benchmark", "get_inputs", "get_init_inputs")
)
"""Functions of a pass that the harness reads or calls apart, and functions around a kernel that are not the kernel."""
_METHODS = ("forward", "__call__", "plan", "begin_forward", "run", "apply")


OUR_FAILURE = "the analysis failed here"
"""Begins the reason of what stays open through a fault of ours; the tests allow none."""


def load_sources(run: Run, texts: Mapping[str, str]) -> None:
    """Parse every file; one that cannot be parsed stays open."""
    for name, text in texts.items():
        lines = text.splitlines()
        run.files[name] = lines
        stem = name.replace("\\", "/").rpartition("/")[2]
        if name.endswith(_CUDA_SUFFIXES):
            _add_cuda(run, stem, name, text, 0)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in the candidate's strings
                tree = parse_source(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            run.leave_open(
                Frame(Module(stem, lines, ast.Module([], []), file=name)), line, f"not valid Python: {error}"
            )
            continue
        module = Module(stem, lines, tree, file=name)
        run.modules[stem.removesuffix(".py")] = module
        if "__global__" in text or "<<<" in text:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_cuda_text(node.value):
                    # the text begins on the line after the opening quotes, or on their own
                    _add_cuda(run, f"{stem}:{node.lineno}", name, node.value, node.lineno - 1)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "torch::Tensor" in node.value:
                    _add_cuda(run, f"{stem}:{node.lineno}", name, node.value, node.lineno - 1)


def _is_cuda_text(text: str) -> bool:
    return "__global__" in text or "<<<" in text or "__device__" in text


def _add_cuda(run: Run, stem: str, file: str, text: str, first_line: int) -> None:
    from eval_harness.batch_invariance.static.cpp_parser import parse_cpp

    tree = parse_cpp(text)
    run.modules[stem] = Module(stem, text.splitlines(), tree, is_cuda=True, first_line=first_line, file=file)


def run_sources(run: Run) -> None:
    """Run every module's body, then its entries; then what no entry reached."""
    for module in sorted(run.modules.values(), key=lambda module: not module.is_cuda):
        _guarded(run, module, functools.partial(ensure_ready, run, module))
    for value, owner in find_entries(run):
        module = owner.module if owner is not None else value.data[0].module
        _guarded(run, module, functools.partial(_run_entry, run, value, owner))
    if not run.kernel_results:
        for module in run.modules.values():
            _guarded(run, module, functools.partial(_run_bare_kernels, run, module))
    for writers, book in run.tentative:
        if writers & run.variant_kernels:
            book()


def _guarded(run: Run, module: Module, action: Callable[[], None]) -> None:
    """Run one part of the sources. A gate must answer for any text, so what fails stays open, ours included."""
    try:
        action()
    except BudgetError:
        run.leave_open(Frame(module), 1, "too large to follow through")
    except RecursionError:
        run.leave_open(Frame(module), 1, "nested too deeply to follow through")
    except Exception as error:
        run.leave_open(Frame(module), 1, f"{OUR_FAILURE}: {type(error).__name__}: {error}")


def find_entries(run: Run) -> list[tuple[Val, Class | None]]:
    """Functions and classes that are called from outside.

    `run`, or what replacement_func returns, where there is one; otherwise whatever public is not used by another
    function of the sources.
    """
    python = [module for module in run.modules.values() if not module.is_cuda]
    for name in ("run", "replacement_func"):
        found = [module.variables[name] for module in python if _is_function(module.variables.get(name))]
        if found:
            return [(value, None) for value in found]
    used = _used_names(run)
    entries: list[tuple[Val, Class | None]] = []
    private: list[tuple[Val, Class | None]] = []
    for module in run.modules.values():
        if module.is_cuda and python:
            continue
        for name, value in module.variables.items():
            if name in _NOT_RUN or name.startswith(("test_", "bench_", "reference", "ref_", "torch_ref")):
                continue
            if value.kind == CLASS and value.data.module is module:
                entries.append((value, value.data))
            elif _is_function(value) and value.data[0].module is module and name not in used:
                func: Func = value.data[0]
                if not func.is_jit:
                    is_private = name.startswith("_") and not func.decorators
                    (private if is_private else entries).append((value, None))
    return entries or private


def _is_function(value: Val | None) -> bool:
    return value is not None and value.kind == FUNC and len(value.data) == 1


def _used_names(run: Run) -> set[str]:
    """Names that the body of a function (not its own) reads."""
    used: set[str] = set()
    for module in run.modules.values():
        for statement in module.tree.body:
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id != statement.name:
                    used.add(node.id)
                elif isinstance(node, ast.Attribute):
                    used.add(node.attr)
    return used


def _run_entry(run: Run, value: Val, owner: Class | None) -> None:
    if owner is not None:
        _run_class(run, value, owner)
        return
    func: Func = value.data[0]
    if id(func.node) in run.visited:
        return
    frame = Frame(func.module)
    run.events = {}
    result = call_function(run, func, guess_arguments(run, func, frame), {}, frame, func.node)
    if result.kind == FUNC:  # replacement_func returns the function that runs
        for returned in result.data:
            if not returned.is_jit and id(returned.node) not in run.visited:
                inner = Frame(returned.module)
                call_function(run, returned, guess_arguments(run, returned, inner), {}, inner, returned.node)


def _run_class(run: Run, value: Val, cls: Class) -> None:
    """A module or wrapper: made with guessed arguments, then its methods in order."""
    init = cls.method("__init__")
    frame = Frame(cls.module)
    names = [name for name in cls.methods if name in _METHODS or not name.startswith("_")]
    if not any(id(cls.methods[name].node) not in run.visited for name in names):
        return
    args = guess_arguments(run, init, frame)[1:] if init is not None else []
    for argument in args:
        argument.dep = None  # sizes given once, when the module is made
    instance = instantiate(run, value.data, args, {}, frame, cls.node)
    for name in names:
        method = cls.methods[name]
        if id(method.node) in run.visited or "property" in method.decorators:
            continue
        bound = method.clone()
        run.events = {}
        guessed = guess_arguments(run, method, frame)
        if "staticmethod" not in method.decorators:
            bound.bound = instance
            guessed = guessed[1:]
        call_function(run, bound, guessed, {}, frame, method.node)


def guess_arguments(run: Run, func: Func, frame: Frame) -> list[Val]:
    """Arguments of a function that is called from outside, by annotation, default and name."""
    arguments: ast.arguments = func.node.args
    parameters = [*arguments.posonlyargs, *arguments.args]
    names = [parameter.arg for parameter in parameters]
    has_partner = bool({"a", "x", "A", "inp", "input"} & set(names))
    no_default = len(parameters) - len(arguments.defaults)
    values: list[Val] = []
    for position, parameter in enumerate(parameters):
        if position >= no_default:
            break  # the default is what runs
        values.append(_guess(run, parameter, func, frame, has_partner))
    return values


def _guess(run: Run, parameter: ast.arg, func: Func, frame: Frame, has_partner: bool) -> Val:
    name = parameter.arg
    kind = _annotated_kind(parameter.annotation)
    if kind == "tensor":
        return sources.new_tensor(name, has_partner=has_partner)
    if sources.counts_rows(run, name) and (kind == "number" or name.lower() not in ("b", "m")):
        dep = sources.source(frame, parameter.lineno, name, sources.mode_of(name))
        value = num(dep, "i")
        value.name = name
        return value
    if kind == "number":
        return num(elem="i")
    value = unknown()
    value.name = name
    if kind is None and name not in ("self", "ctx", "cls"):
        value = sources.new_tensor(name, has_partner=has_partner)
        value.kind = "any" if value.elem is None else "tensor"
    return value


def _annotated_kind(annotation: Any) -> str | None:
    """ "tensor", "number", "other", or None without an annotation."""
    if annotation is None:
        return None
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    text = str(text)
    if "Tensor" in text or "*" in text:
        return "tensor"
    if text.split("|")[0].strip() in ("int", "float", "bool", "Optional[int]", "int64_t", "long", "size_t", "unsigned"):
        return "number"
    return "other"


def _run_bare_kernels(run: Run, module: Module) -> None:
    """Kernels that nothing launches: sizes by name."""
    for value in list(module.variables.values()):
        if not _is_function(value) or not value.data[0].is_jit:
            continue
        if getattr(value.data[0].node, "is_helper", False) or id(value.data[0].node) in run.visited:
            continue
        func: Func = value.data[0]
        frame = Frame(module)
        bound: dict[str, Val] = {}
        for parameter in (*func.node.args.posonlyargs, *func.node.args.args, *func.node.args.kwonlyargs):
            name = parameter.arg
            if sources.counts_rows(run, name):
                dep = sources.source(frame, parameter.lineno, name, sources.mode_of(name))
                bound[name] = num(dep, "i")
            elif "ptr" in name.lower():
                bound[name] = Val(PTR)
            else:
                bound[name] = unknown()
                bound[name].name = name
        run_kernel(run, KernelContext(func, None, None, None), bound)
