"""What an exception in a worker says about what was run: its kind and one readable message."""

from __future__ import annotations

import re
import traceback

from eval_harness.candidate_process.rules import CandidateRuleError

MAX_MESSAGE = 2000
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


def _message(error: BaseException) -> str:
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if "/pass_dir/" in frame.filename:
            where = f"{frame.filename.rsplit('/pass_dir/', 1)[1]}:{frame.lineno}: "
    if isinstance(error, CompileFailedError | CandidateRuleError):
        return str(error)[:MAX_MESSAGE]
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)[: 2 * MAX_MESSAGE]).strip()
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text = f"{text} (a pass may not end its process)".strip()
    return f"{where}{_type_name(error)}: {text}"[:MAX_MESSAGE]

