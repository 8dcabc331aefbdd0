"""An imported rule module -> RuleDescription as JSON data. Runs in the candidate process.

`pattern` is traced into a graph; `replacement_args` is traced too, only to see which arguments it hands on: it may
return the pattern's arguments and literals, and whatever tensor operation or attribute it evaluates is a violation,
because it would run outside of the replacement. The judge validates what is returned here; it trusts nothing of it.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from typing import Any

from eval_harness.graph_ir import IRFormatError, IRGraph, IRNode
from eval_harness.graph_values import encode_value, iter_refs
from eval_harness.pattern import InvalidPatternError, Pattern
from eval_harness.recording import TraceError, map_traced, record_call
from eval_harness.rewriting import RuleDescription
from eval_harness.tracing import trace_callable
from eval_harness.verdict import Violation

MAX_VARARGS = 64
_FUNCTIONS = ("pattern", "replacement_args", "replacement_func")


class CandidateRuleError(Exception):
    """A rule cannot be used. One line: file, line, what is wrong, the cure. It becomes the outcome COMPILE_ERROR."""

    stage = "compile"


def describe_rule(module: types.ModuleType, rule_name: str) -> dict[str, Any]:
    """RuleDescription of an imported rule module, as JSON data. Raises CandidateRuleError."""
    file = f"{rule_name}.py"
    functions = {name: _function(module, name, file) for name in _FUNCTIONS}
    replacement_function(module, rule_name)
    pattern = _trace_pattern(functions["pattern"], functions["replacement_args"], file)
    names = [node.name for node in pattern.placeholders]
    args, violations = _trace_replacement_args(functions["replacement_args"], names, file)
    description = RuleDescription(rule_name, pattern, args, violations)
    data = description.to_json()
    try:
        Pattern.from_ir(pattern)
        RuleDescription.from_json(data)
    except (InvalidPatternError, IRFormatError) as error:
        raise CandidateRuleError(f"{_at(functions['pattern'], file)}: {error}") from None
    return data


def replacement_function(module: types.ModuleType, rule_name: str) -> Callable[..., Any]:
    """What replacement_func returns: the same callable each time. Raises CandidateRuleError."""
    file = f"{rule_name}.py"
    factory = _function(module, "replacement_func", file)
    where = _at(factory, file)
    try:
        first, second = factory(), factory()
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise CandidateRuleError(f"{where}: replacement_func raised {type(error).__name__}: {text}") from error
    if not callable(first):
        raise CandidateRuleError(
            f"{where}: replacement_func returned {type(first).__name__}; return the function itself, without calling it"
        )
    if first is not second:
        raise CandidateRuleError(
            f"{where}: replacement_func returns another callable at each call; return one function of the module's "
            "top level"
        )
    return first


def _function(module: types.ModuleType, name: str, file: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        raise CandidateRuleError(f"{file}: defines no function {name}; a rule has {', '.join(_FUNCTIONS)}")
    return function


def _at(function: Callable[..., Any], file: str) -> str:
    code = getattr(function, "__code__", None)
    return file if code is None else f"{file}:{code.co_firstlineno}"


def _trace_pattern(pattern: Callable[..., Any], replacement_args: Callable[..., Any], file: str) -> IRGraph:
    names, varargs = _parameters(pattern, file)
    if varargs is None:
        try:
            return trace_callable(pattern, names)
        except (TraceError, IRFormatError) as error:
            raise CandidateRuleError(_located(error, _at(pattern, file))) from error
    # *args says nothing of its length: that of replacement_args, or the smallest one with which the body is a pattern
    given, given_varargs = _parameters(replacement_args, file)
    counts = range(MAX_VARARGS + 1) if given_varargs is not None else [max(len(given) - len(names), 0)]
    failure: Exception | None = None
    for count in counts:
        try:
            ir = trace_callable(pattern, [*names, *(f"{varargs}_{index}" for index in range(count))])
            Pattern.from_ir(ir)
            return ir
        except (TraceError, InvalidPatternError) as error:
            failure = error
            if isinstance(error, TraceError) and not isinstance(error.__cause__, (IndexError, ValueError, TypeError)):
                break
    where = f"{_at(pattern, file)}: pattern takes *{varargs}; name its arguments one by one"
    raise CandidateRuleError(f"{where} ({failure})") from failure


_LOCATION = re.compile(r"(?P<path>[^\n:]*):(?P<line>[0-9]+): (?P<rest>.*)\Z", re.DOTALL)


def _located(error: Exception, otherwise: str) -> str:
    """ "File.py:line: text", with the file's name in the pass folder in place of its path."""
    found = _LOCATION.match(str(error))
    if found is None:
        return f"{otherwise}: {error}"
    return f"{found['path'].rsplit('/', 1)[-1]}:{found['line']}: {found['rest']}"


def _parameters(function: Callable[..., Any], file: str) -> tuple[list[str], str | None]:
    """Names of the parameters without a default, and of *args."""
    names, varargs = [], None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            varargs = parameter.name
        elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            if parameter.default is parameter.empty:
                raise CandidateRuleError(
                    f"{_at(function, file)}: {parameter.name} is a keyword argument; take positional arguments only"
                )
        elif parameter.default is parameter.empty:
            names.append(parameter.name)
    return names, varargs


def _trace_replacement_args(
    function: Callable[..., Any], names: list[str], file: str
) -> tuple[tuple[Any, ...], tuple[Violation, ...]]:
    own_names, varargs = _parameters(function, file)
    if varargs is None and len(own_names) != len(names):
        raise CandidateRuleError(
            f"{_at(function, file)}: replacement_args takes {len(own_names)} arguments, pattern takes {len(names)}; "
            "give both the same"
        )
    try:
        recorder, returned = record_call(function, names)
    except TraceError as error:
        raise CandidateRuleError(_located(error, _at(function, file))) from error
    if not isinstance(returned, (tuple, list)):
        raise CandidateRuleError(
            f"{_at(function, file)}: replacement_args returned {type(returned).__name__}; return a tuple of arguments"
        )
    computed = [node for node in recorder.nodes if node.op != "placeholder"]
    if computed:
        args = tuple(_if_argument(value, names) for value in map_traced(tuple(returned)))
        return args, tuple(_traced_compute(node, file) for node in computed[:8])
    plain = map_traced(tuple(returned))
    try:
        encode_value(plain)
    except IRFormatError as error:
        raise CandidateRuleError(f"{_at(function, file)}: replacement_args: {error}") from None
    return plain, ()


def _if_argument(value: Any, names: list[str]) -> Any:
    """The value if it may be handed on; None in the place of what was computed (the rule is refused anyway)."""
    try:
        encode_value(value)
    except IRFormatError:
        return None
    return value if set(iter_refs(value)) <= set(names) else None


def _traced_compute(node: IRNode, file: str) -> Violation:
    line = node.where.rpartition(":")[2]
    return Violation(
        rule="structure.traced-compute",
        layer="structure",
        file=file,
        line=int(line) if line.isdigit() else None,
        message=f"replacement_args evaluates {node}; return the pattern's arguments and literals only, and read shapes "
        "or compute inside the replacement",
    )
