"""Recording the calls that a Python function makes on traced values; tracing.py makes graphs of them.

In-place operators and assignments to a slice stay nodes of their own (`a += b` is iadd, `x[0] = y` is setitem),
factories are nodes and not baked-in constants, `a, b = x.shape` unpacks. What depends on data (a condition, a loop,
int(x)) has no graph: TraceError names its file and line.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from eval_harness import graph_values
from eval_harness.graph_ir import IRFormatError, IRNode, Op, Ref
from eval_harness.graph_targets import is_attribute_name, is_method_name, target_name
from eval_harness.graph_values import encode_value, map_refs

_OWN_FILES = {__file__, graph_values.__file__, contextlib.__file__}
_TORCH_DIR = str(Path(torch.__file__).parent)
_NAME_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
MAX_TRACED_NODES = 20_000


class TraceError(ValueError):
    """A function cannot be traced. One line: file:line, what was met, the cure."""


class TracedValue:
    """Stands for the result of a node while a function is traced."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        object.__setattr__(self, "_recorder", recorder)
        object.__setattr__(self, "_name", name)

    _recorder: Recorder
    _name: str

    def _ref(self) -> Ref:
        return Ref(self._name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _recorder_of((args, kwargs)).torch_function(func, args, kwargs or {})

    def __getattr__(self, name: str) -> TracedValue:
        if is_attribute_name(name) and not is_method_name(name):
            return self._recorder.record("getattr", name, (self,))
        return TracedAttribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise TraceError(f"{_where()}: sets .{name} of a traced value; only x[...] = y can be part of a graph")

    def __getitem__(self, index: Any) -> TracedValue:
        return self._recorder.record("call_function", "_operator.getitem", (self, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._recorder.record("call_function", "_operator.setitem", (self, index, value))

    def __iter__(self) -> Iterator[TracedValue]:
        return iter([self[index] for index in range(_unpack_count())])

    def __bool__(self) -> bool:
        raise TraceError(
            f"{_where()}: a condition on a traced value; a graph is straight-line code, write one rule a case instead"
        )

    def _not_a_number(self, *_: Any) -> Any:
        raise TraceError(f"{_where()}: needs the value of a traced tensor while tracing; keep it symbolic")

    __int__ = __float__ = __index__ = __len__ = __contains__ = __complex__ = __format__ = _not_a_number

    def __hash__(self) -> int:
        return id(self)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._not_a_number()


class TracedAttribute(TracedValue):
    """`x.name` before it is known whether it will be called (a method) or used (a getattr node)."""

    def __init__(self, owner: TracedValue, attribute: str) -> None:
        object.__setattr__(self, "_recorder", owner._recorder)
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_attribute", attribute)
        object.__setattr__(self, "_found", None)

    _owner: TracedValue
    _attribute: str
    _found: TracedValue | None

    def _ref(self) -> Ref:
        if self._found is None:
            object.__setattr__(self, "_found", self._recorder.record("getattr", self._attribute, (self._owner,)))
        assert self._found is not None
        return self._found._ref()

    def __call__(self, *args: Any, **kwargs: Any) -> TracedValue:
        return self._recorder.record("call_method", self._attribute, (self._owner, *args), kwargs)


def _binary(name: str, reflected: bool) -> Callable[..., Any]:
    def method(self: TracedValue, other: Any) -> TracedValue:
        args = (other, self) if reflected else (self, other)
        return self._recorder.record("call_function", f"_operator.{name}", args)

    return method


def _unary(name: str) -> Callable[..., Any]:
    return lambda self: self._recorder.record("call_function", f"_operator.{name}", (self,))


def _add_operators() -> None:
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "lshift",
        "rshift",
        "and",
        "or",
        "xor",
    ]:
        function = f"{name}_" if name in ("and", "or") else name
        setattr(TracedValue, f"__{name}__", _binary(function, reflected=False))
        setattr(TracedValue, f"__r{name}__", _binary(function, reflected=True))
        setattr(TracedValue, f"__i{name}__", _binary(f"i{name}", reflected=False))
    for name in ["lt", "le", "gt", "ge", "eq", "ne"]:
        setattr(TracedValue, f"__{name}__", _binary(name, reflected=False))
    for name in ["neg", "pos", "abs", "invert"]:
        setattr(TracedValue, f"__{name}__", _unary(name))


_add_operators()


class Recorder(TorchFunctionMode):
    """Collects nodes. As a TorchFunctionMode it also sees calls that no traced value takes part in: factories."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[IRNode] = []
        self.names: set[str] = set()
        self._counts: dict[str, int] = {}

    def placeholder(self, name: str) -> TracedValue:
        return self._append("placeholder", name, (), {}, name)

    def record(self, op: Op, target: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> TracedValue:
        where = _where()
        accepted = {"call_method": is_method_name, "getattr": is_attribute_name}.get(op)
        if accepted is not None and not accepted(target):
            raise TraceError(f"{where}: .{target} of a tensor cannot be part of a graph; use a torch operation")
        hint = _NAME_UNSAFE.sub("_", target.rsplit(".", 1)[-1]).strip("_") or "value"
        return self._append(op, target, self.plain(args, where), self.plain(kwargs or {}, where), hint, where)

    def plain(self, value: Any, where: str) -> Any:
        """Traced values -> Refs. Raises TraceError for what a graph cannot hold."""
        plain = map_traced(value)
        try:
            encode_value(plain)
        except IRFormatError as error:
            raise TraceError(f"{where}: {error}") from None
        return plain

    def _append(
        self, op: Op, target: str, args: tuple[Any, ...], kwargs: dict[str, Any], hint: str, where: str = ""
    ) -> TracedValue:
        if len(self.nodes) >= MAX_TRACED_NODES:
            raise TraceError(f"{where}: more than {MAX_TRACED_NODES} operations; a graph must be smaller")
        name, count = hint, self._counts.get(hint, 0)
        while name in self.names:
            count += 1
            name = f"{hint}_{count}"
        self._counts[hint] = count
        self.names.add(name)
        self.nodes.append(IRNode(name, op, target, args, kwargs, where))
        return TracedValue(self, name)

    def torch_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = target_name(func)
        if name is not None:
            return self.record("call_function", name, tuple(args), dict(kwargs))
        method = getattr(func, "__name__", "")
        if getattr(torch.Tensor, method, None) is func:
            return self.record("call_method", method, tuple(args), dict(kwargs))
        if isinstance(getattr(func, "__self__", None), type(torch.Tensor.dtype)) and method == "__get__":
            return self.record("getattr", func.__self__.__name__, tuple(args))
        raise TraceError(f"{_where()}: {method or func} cannot be part of a graph; use a torch operation")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _has_traced((args, kwargs)) and (isinstance(func, type) or target_name(func) is None):
            # torch.device(...), default dtypes and the like: no tensors, so plain values
            return func(*args, **kwargs)
        return self.torch_function(func, args, kwargs)


def map_traced(value: Any) -> Any:
    """The value with every TracedValue replaced by its Ref."""
    return map_refs(value, lambda ref: ref, lambda leaf: leaf._ref() if isinstance(leaf, TracedValue) else leaf)


def _find_traced(value: Any) -> TracedValue | None:
    if isinstance(value, TracedValue):
        return value
    items: Any = ()
    if isinstance(value, (tuple, list)):
        items = value
    elif isinstance(value, dict):
        items = value.values()
    elif isinstance(value, slice):
        items = (value.start, value.stop, value.step)
    for item in items:
        found = _find_traced(item)
        if found is not None:
            return found
    return None


def _has_traced(value: Any) -> bool:
    return _find_traced(value) is not None


def _recorder_of(value: Any) -> Recorder:
    found = _find_traced(value)
    if found is None:
        raise TraceError(f"{_where()}: a tensor operation outside of a trace")
    return found._recorder


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file_name = frame.f_code.co_filename
        if file_name not in _OWN_FILES and not file_name.startswith(_TORCH_DIR):
            return frame
        frame = frame.f_back
    return None


def _where() -> str:
    frame = _user_frame()
    return "" if frame is None else f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def short_path(file_name: str) -> str:
    return "/".join(Path(file_name).parts[-2:]) if len(file_name) > 100 else file_name


def _unpack_count() -> int:
    """How many values the statement that iterates a traced value unpacks it into."""
    frame = _user_frame()
    if frame is not None:
        instructions = dis.get_instructions(frame.f_code)
        for instruction in instructions:
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return int(instruction.arg or 0)
    raise TraceError(
        f"{_where()}: iterates over a traced value; its length is not known while tracing, index it instead"
    )


_SIZE_FACTORIES = ("zeros", "ones", "empty", "rand", "randn")


@contextmanager
def _size_factories(recorder: Recorder) -> Iterator[None]:
    """torch.zeros(n, 4) with a traced n fails in the argument parser, before any mode sees it."""
    originals = {name: getattr(torch, name) for name in _SIZE_FACTORIES}
    # the tables of graph_targets must be made of the real functions
    assert all(target_name(original) == f"torch.{name}" for name, original in originals.items())

    def wrap(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: recorder.record("call_function", f"torch.{name}", args, kwargs)

    for name in originals:
        setattr(torch, name, wrap(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)


def record_call(fn: Callable[..., Any], arg_names: Sequence[str]) -> tuple[Recorder, Any]:
    """Call fn on traced values; return the recorder and what fn returned, traced values included."""
    recorder = Recorder()
    values = [recorder.placeholder(name) for name in arg_names]
    try:
        with _size_factories(recorder), recorder:
            return recorder, fn(*values)
    except (TraceError, RecursionError) as error:
        raise (
            error if isinstance(error, TraceError) else TraceError(f"{function_where(fn)}: endless recursion")
        ) from None
    except Exception as error:
        where = _raised_at(error) or function_where(fn)
        text = " ".join(str(error).split())[:300]
        raise TraceError(f"{where}: cannot be traced: {type(error).__name__}: {text}") from error


def _raised_at(error: BaseException) -> str:
    found, traceback = "", error.__traceback__
    while traceback is not None:
        file_name = traceback.tb_frame.f_code.co_filename
        if file_name not in _OWN_FILES and not file_name.startswith(_TORCH_DIR):
            found = f"{short_path(file_name)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def function_where(fn: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return "" if code is None else f"{short_path(code.co_filename)}:{code.co_firstlineno}"
