"""What an exception in a worker says about what was run: its kind and one readable message."""

from __future__ import annotations

import re
import traceback

from eval_harness.candidate_process.rules import CandidateRuleError

MAX_MESSAGE = 2000
MAX_FRAMES = 4
MAX_FRAME = 160
"""Lines of the traceback that are told, and characters of each."""
_COMPILE_MODULES = ("numba.core.errors", "triton.compiler", "triton.runtime.errors")


class CompileFailedError(RuntimeError):
    """The candidate could not be imported, described or built."""


class NotPlainTensorError(RuntimeError):
    """A call returned something that is no tensor with storage of its own."""


def describe(error: BaseException) -> dict[str, str]:
    """{kind: compile | oom | runtime | not-plain, message: where and what}. Never raises, whatever the exception is."""
    try:
        return {"kind": _kind(error), "message": _message(error)}
    except BaseException:  # its text is the candidate's code too
        return {"kind": "runtime", "message": f"{_type_name(error)} (it cannot be shown as text)"}


def _kind(error: BaseException) -> str:
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < 8:
        chain.append(cause)
    if isinstance(error, NotPlainTensorError):
        return "not-plain"
    if any(isinstance(item, MemoryError) or _type_name(item) == "OutOfMemoryError" for item in chain):
        return "oom"
    if "DefaultCPUAllocator" in str(error):  # a RuntimeError, unlike CUDA's
        return "oom"
    if any(str(type(item).__module__).startswith(_COMPILE_MODULES) for item in chain):
        return "compile"
    is_loading = isinstance(error, CompileFailedError | CandidateRuleError | SyntaxError | ImportError)
    if is_loading or "Error building extension" in str(error):
        return "compile"
    return "runtime"


def _type_name(error: BaseException) -> str:
    return str(type.__dict__["__name__"].__get__(type(error)))[:200]


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the error, or of what caused it, that lie in the candidate's files, innermost last."""
    for item in (error, error.__cause__, error.__context__):
        frames = traceback.extract_tb(item.__traceback__) if item is not None else []
        if own := [frame for frame in frames if "/pass_dir/" in frame.filename]:
            return own
    return []


def _place(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename.rsplit('/pass_dir/', 1)[1]}:{frame.lineno}"


def _message(error: BaseException) -> str:
    """ "File.py:line: Type: text", then the last lines of the traceback that are the candidate's own."""
    own = _own_frames(error)
    where = f"{_place(own[-1])}: " if own else ""
    lines = [f"  at {_place(frame)} in {frame.name}: {frame.line or ''}"[:MAX_FRAME] for frame in own[-MAX_FRAMES:]]
    if isinstance(error, CompileFailedError | CandidateRuleError):
        return str(error)[:MAX_MESSAGE]
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)[: 2 * MAX_MESSAGE]).strip()
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text = f"{text} (a pass may not end its process)".strip()
    said = f"{where}{_type_name(error)}: {text}"
    trace = "\n".join(["", *lines]) if lines else ""
    return said[: MAX_MESSAGE - len(trace)] + trace
