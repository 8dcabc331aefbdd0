"""Kernel provenance: were the GPU kernels of a replacement the candidate's own? A pure decision, on the judge's side.

The worker says which kernels ran while each replacement did (candidate_process.kernel_trace), in one secretly chosen
call. Own are the kernels that the folder's sources define, by exact name; besides those only what allocation, fills,
casts and contiguous copies launch may run. Covered: library kernels reached in any way, and replacements that launch
nothing of their own. Not covered: a kernel that is launched and does too little; poisoned outputs and fresh content
answer for that. Not on a CPU, where nothing tells one loop from another.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data.syntax import parse_source
from eval_harness.graph_ir import IRGraph
from eval_harness.source_kernels import kernel_kind
from eval_harness.source_scope import Folder
from eval_harness.verdict import Violation

_GLOBAL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]{0,200}\)\s*)?[\w\s:<>,*&]{0,200}?"
                     r"(?:__launch_bounds__\s*\([^)]{0,200}\)\s*)?([A-Za-z_]\w{0,200})\s*\(")  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SOURCES = (".py", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp")
_FREE = re.compile(
    r"Memset\b.*|Memcpy DtoD\b.*|(void )?at::native::.*(FillFunctor|\b\w*copy_kernel_cuda\w*|direct_copy_kernel).*",
    re.S,
)
"""What torch launches for zeros, full, casts and contiguous copies."""
_NO_KERNEL = re.compile(r"(Context|Stream|Event|Device) Sync.*|Stream Wait Event.*|Activity Buffer.*|Instrumentation.*")
"""Names of the profiler's own that are no work of the device."""
_LIBRARIES = ("at::", "c10::", "cub::", "thrust::", "cutlass::", "cudnn::", "cublas", "std::")
_VIEWS = frozenset(
    ["view", "reshape", "permute", "transpose", "t", "T", "mT", "squeeze", "unsqueeze", "expand", "expand_as",
     "flatten", "unflatten", "narrow", "select", "split", "chunk", "unbind", "getitem", "view_as", "swapaxes",
     "movedim", "size", "shape", "stride", "dim", "numel", "detach", "tensor_split"]
)  # fmt: skip
MAX_NAMED = 8


@dataclass(frozen=True)
class ReplacementTrace:
    """Kernels that ran while one replacement did."""

    rule: str
    """Name of the rule."""
    kernels: tuple[tuple[str, int], ...]
    """(name as the profiler gives it, launches)."""
    is_complete: bool
    """Whether the profiler saw the control that was launched with it; otherwise nothing is concluded."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplacementTrace:
        """Raises KeyError, TypeError or ValueError for what is no trace: it comes from a candidate's process."""
        kernels = tuple((str(name)[:4000], int(count)) for name, count in data["kernels"])
        return cls(str(data["rule"]), kernels, bool(data["is_complete"]))


def own_kernel_names(files: Mapping[str, str]) -> frozenset[str]:
    """Names of the kernels that a pass folder's sources define: Triton, numba.cuda, and __global__ in source files.

    files: relative path -> text. Files that cannot be parsed define none.
    """
    return _own_kernel_names(tuple(files.items()))


@functools.lru_cache(maxsize=4)  # asked once for each graph of a task
def _own_kernel_names(files: tuple[tuple[str, str], ...]) -> frozenset[str]:
    found: set[str] = set()
    trees: dict[str, ast.Module] = {}
    for path, text in files:
        if path.endswith(_SOURCES):
            found |= set(_GLOBAL.findall(_COMMENT.sub(" ", text)))
        if path.endswith(".py"):
            try:
                trees[path] = parse_source(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    folder = Folder(trees)
    for scope in folder.scopes.values():
        for node in ast.walk(scope.tree):
            if isinstance(node, ast.FunctionDef) and kernel_kind(folder, scope, node):
                found.add(node.name)
            origins = folder.origins(scope, node.func) if isinstance(node, ast.Call) else frozenset()
            if isinstance(node, ast.Call) and any(origin.endswith(".jit") for origin in origins):
                # kernel = triton.jit(body)
                found |= {argument.id for argument in node.args if isinstance(argument, ast.Name)}
    return frozenset(found)


def base_name(kernel: str) -> str:
    """The kernel's own name: "void ns::softmax<float, 4>(float const*)" -> "softmax"; numba's ABI tags go too."""
    text = re.sub(r"\(anonymous namespace\)::|<unnamed>::|\[abi:[^\]]*\]", "", kernel.removeprefix("void "))
    while text != (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", text)):
        text = shorter
    text = re.split(r"[<(\[]", text)[0].strip()
    return text.split("::")[-1].split(" ")[-1]


def is_own(kernel: str, own: frozenset[str]) -> bool:
    """Whether a kernel's name is one of the candidate's; a name inside a library's namespace never is."""
    if kernel.removeprefix("void ").startswith(_LIBRARIES):
        return False
    name = base_name(kernel)
    return name in own or re.sub(r"_[0-9][0-9a-z]*\Z", "", name) in own


def provenance_violations(
    traces: Sequence[ReplacementTrace], own: frozenset[str], *, trivial_rules: frozenset[str] = frozenset()
) -> list[Violation]:
    """Violations of one traced call. trivial_rules: those whose pattern holds only views, which need no kernel."""
    violations: list[Violation] = []
    for trace in traces:
        if not trace.is_complete:
            continue
        num_own = 0
        foreign: dict[str, int] = {}
        for name, count in trace.kernels:
            if is_own(name, own):
                num_own += count
            elif not _FREE.fullmatch(name) and not _NO_KERNEL.fullmatch(name):
                foreign[name] = foreign.get(name, 0) + count
        for name, count in list(foreign.items())[:MAX_NAMED]:
            message = f"{name[:200]} ran {count} times in the replacement, no kernel of this pass; write it in one"
            violations.append(_violation("provenance.foreign-kernel", trace.rule, message))
        if not num_own and not foreign and trace.rule not in trivial_rules:
            message = "the replacement launched no kernel of its own; compute the outputs in a kernel that it launches"
            violations.append(_violation("provenance.no-kernel", trace.rule, message))
    return list(dict.fromkeys(violations))


def only_views(pattern: IRGraph) -> bool:
    """Whether a pattern holds nothing but views and facts, which launch nothing in eager either."""
    called = [node for node in pattern.nodes if node.op in ("call_function", "call_method", "getattr")]
    return all(node.target.split(".")[-1] in _VIEWS for node in called)


def _violation(rule: str, pass_rule: str, message: str) -> Violation:
    return Violation(rule=rule, layer="provenance", file=f"{pass_rule}.py", message=message)
