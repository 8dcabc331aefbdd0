"""Rules over the C++ and CUDA text that a pass hands to load_inline. Words and blocks, no parser.

Covered: headers, calls and qualified names by allow-list, so that a system call, a thread or a library is refused under
whatever declaration; names of the C library refused wherever they stand; mutable variables that outlive a call;
assembly outside of device code; pragmas and attributes that rename or run at load. Not covered: pointer arithmetic,
and tensor arithmetic by operators, which the dispatch guard sees because C++ goes through the same dispatcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from eval_harness import source_cpp_names as names
from eval_harness.source_cpp_text import Declaration, declarations, has_raw_string, spliced, without_literals
from eval_harness.source_names import POINTER_METHODS, READ_METHODS, UNMISTAKABLE_METHODS

_WORD = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
_NAMESPACE_USE = re.compile(r"\b(at|torch|c10|aten)\s*::\s*([A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)?)")
_CALL = re.compile(r"(?<![\w.:])(?<!->)([A-Za-z_]\w*)\s*(?:<<<|(?:<[\w\s:,*&<>]*>)?\s*\()")
_VARIABLE = re.compile(
    r"\b(?:int|float|bool|unsigned|auto|size_t|u?int\d+_t|scalar_t|T|const)\b[\s*&]+(\w+)\s*[=;,)\[]"
)
_TYPED = re.compile(r"\b(?:dim3|[\w:]*Guard|[\w:]*Tensor|std::\w+<[^;(){}]*>|%s)\s+([A-Za-z_]\w*)\s*\(")
_METHOD = re.compile(
    r"\b(?!return|else|throw|case|new|delete|and|or|not)[A-Za-z_]\w*\s+([A-Za-z_]\w*)\s*\([^;{}]*\)\s*(?:const\s*)?\{"
)
_STD_USE = re.compile(r"\bstd\s*::\s*([A-Za-z_]\w*)")
_METHOD_USE = re.compile(r"(?:\.|->)\s*([A-Za-z_]\w*)\s*\(")
_METHODS_DENIED = (UNMISTAKABLE_METHODS | READ_METHODS | POINTER_METHODS | names.METHODS_MISSED) - {
    "data_ptr", "const_data_ptr", "equal"
}  # fmt: skip
_MESSAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\busing\s+namespace\s+(at|torch|c10|std)\b"), "using namespace of a library; write the full names"),
    (re.compile(r"\bnamespace\s+\w+\s*=(?!\s*(cooperative_groups|nvcuda)\b)|\busing\s+(at|torch|c10)\s*::"),
     "renamed library namespace; write full names"),
    (re.compile(r"##|%:|\?\?="), "token pasting or another spelling of #; write the names out"),
    (re.compile(r"#\s*define\s+\w+[^\n]*\b(at|torch|c10|aten|asm|__asm__|extern|static)\b"),
     "a macro that stands for torch, assembly or storage; write it out"),
    (re.compile(r"#\s*(include_next|import|embed|line)\b"), "only #include of allowed headers"),
    (re.compile(r"\b(py|pybind11)\s*::\s*(module\w*|eval\w*|exec|globals|object|function|import|cpp_function)\b"),
     "Python called from C++; compute in the kernel"),
    (re.compile(r"\bcub\s*::\s*Device\w*"), "a device-wide algorithm of CUB; use its block and warp primitives"),
    (re.compile(r"\bTORCH_LIBRARY\w*"), "an operator registration; bind the function with PYBIND11 or functions="),
    (re.compile(r"\bextern\b(?!\s+__shared__)"), "extern; a pass declares nothing that it does not define"),
    (re.compile(r"\(\s*(?:\w+\s*::\s*)?\*\s*\w*\s*\)\s*\(|\bgoto\b"), "a pointer to a function; call it by its name"),
    (re.compile(r"(?<![\w>:)])::\s*[a-z]\w*"), "a name of the global scope; write it without ::"),
    (re.compile(r"\\u[0-9a-fA-F{]"), "an escaped letter in a name; write it out"),
)  # fmt: skip
_ASM = re.compile(r"\b(asm|__asm__|__asm)\b")
_ASM_DENIED = re.compile(
    r"\.(\d*byte|long|quad|word|short|hword|int|octa|ascii\w*|string\w*|fill|incbin|section|text|data|globl|org)"
    r"(\s|\b\s*0x)|\b(syscall|sysenter|svc|int\s+\$?0x80|globaltimer|clock(64)?)\b|%%[re]?(ax|bx|cx|dx|si|di|sp|bp|ip)\b"
)
_NOT_A_VARIABLE = re.compile(
    r"(template\s*<.*>\s*)?(using|typedef|static_assert|enum|struct|class|union|friend|namespace)\b|"
    r"(PYBIND11_MODULE|TORCH_CHECK|C10_\w+|AT_\w+)\b"
)
_ATTRIBUTES = re.compile(r"__launch_bounds__\s*\([^)]*\)|\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)")
_STATE = "a variable that outlives the call; make it const, or compute it in the call"


def check_cpp(text: str, defined_elsewhere: str = "") -> Iterator[tuple[int, str]]:
    """(line, what was found and what to do instead) for each broken rule of one C++ or CUDA text.

    defined_elsewhere: the folder's other texts, whose functions this one may declare and call.
    """
    text = spliced(text)
    if raw := has_raw_string(text):
        yield text.count("\n", 0, raw.start()) + 1, "a raw string literal; write a plain one"
        return
    code = without_literals(text)

    def line_of(match: re.Match[str]) -> int:
        return code.count("\n", 0, match.start()) + 1

    for match in re.finditer(r"#\s*include\s*(\S[^\n]*)", code):
        header = match.group(1).strip().split(" ")[0].strip("<>\"")
        if not names.HEADERS.fullmatch(header):
            yield line_of(match), f"#include {match.group(1).strip()}; only torch, CUDA, CUB and plain C++ headers"
    code = re.sub(r"#\s*include[^\n]*", "", code)
    for match in re.finditer(r"#\s*pragma\s+([^\n]*)", code):
        if not names.PRAGMAS.fullmatch(match.group(1).strip()):
            yield line_of(match), f"#pragma {match.group(1).strip()}; only once, unroll and omp"
    code = re.sub(r"#\s*pragma[^\n]*", "", code)
    for match in _NAMESPACE_USE.finditer(code):
        name = re.sub(r"\s", "", match.group(2))
        if not names.ATEN_ALLOWED.fullmatch(name) and not names.ATEN_ALLOWED.fullmatch(name.split("::")[0]):
            yield line_of(match), f"{match.group(1)}::{name}; only allocation and types, compute in your own kernel"
    for match in _STD_USE.finditer(code):
        if match.group(1) not in names.STD:
            yield line_of(match), f"std::{match.group(1)} is not allowed; write it out in plain C++"
    variables = names.ALSO_VARIABLES & set(_VARIABLE.findall(code))
    for match in _WORD.finditer(code):
        word = match.group()
        is_cuda = re.match(r"cuda[A-Z]", word) is not None
        is_variable = word in variables and code[match.end() :].lstrip()[:1] != "("
        denied = names.DENIED_NAMES.fullmatch(word) and not is_variable
        if denied or (is_cuda and not names.CUDA_RUNTIME.fullmatch(word)):
            yield line_of(match), f"{word}; a kernel calls no library, system call, thread, stream, graph or clock"
    for match in _METHOD_USE.finditer(code):
        if match.group(1) in _METHODS_DENIED:
            yield line_of(match), f".{match.group(1)}() computes through torch; write it in the kernel"
    for pattern, message in _MESSAGES:
        for match in pattern.finditer(code):
            yield line_of(match), message
    found = declarations(code)
    other_code, other_found = _other(defined_elsewhere)
    defined = _defined(code, found) | _defined(other_code, other_found) | names.CALLS
    for match in _CALL.finditer(code):
        name = match.group(1)
        known = name in defined or names.CUDA_RUNTIME.fullmatch(name)
        if not known and not names.CALL_PATTERNS.fullmatch(name):
            yield line_of(match), f"{name}() is not defined here; a pass calls its own functions, maths and intrinsics"
    others = _function_names(other_found)
    yield from _check_declarations(found, without_literals(text, keep_strings=True), others)


def _other(text: str) -> tuple[str, list[Declaration]]:
    code = re.sub(r"#\s*include[^\n]*", "", without_literals(spliced(text)))
    return code, declarations(code)


def _defined(code: str, found: list[Declaration]) -> set[str]:
    """Functions, types, macros, lambdas and variables with constructor arguments of a text."""
    types = set(re.findall(r"\b(?:struct|class|union|enum|using|typename)\s+([A-Za-z_]\w*)", code))
    defined = types | _function_names(found)
    defined |= set(re.findall(r"#\s*define\s+([A-Za-z_]\w*)", code))
    defined |= set(re.findall(r"\bauto\s*&?\s*([A-Za-z_]\w*)\s*=\s*\[", code))
    defined |= set(re.findall(r"\btypedef\b[^;()]*?([A-Za-z_]\w*)\s*;", code))
    typed = re.compile(_TYPED.pattern % "|".join(sorted(types) or ["dim3"]))
    for item in found:
        is_type = re.match(r"(template\s*<.*>\s*)?(struct|class|union)\b", item.header) is not None
        defined |= set((_METHOD if is_type else typed).findall(item.body or "")) | _grids(item.body or "")
    defined |= set(re.findall(r"[(,]\s*(?:const\s+)?[A-Z]\w*\s*&*\s*([A-Za-z_]\w*)(?=\s*[,)])", code))  # functors
    return defined


def _function_names(found: list[Declaration]) -> set[str]:
    return {name for item in found if item.body is not None and (name := _function_name(item.header))}


def _grids(body: str) -> set[str]:
    """Names of `dim3 a(1), b(2);`, without what is called inside their parentheses."""
    found: set[str] = set()
    for statement in re.findall(r"\bdim3\s+([^;{}]*);", body):
        while statement != (shorter := re.sub(r"\([^()]*\)", "@", statement)):
            statement = shorter
        found |= set(re.findall(r"([A-Za-z_]\w*)\s*@", statement))
    return found


def _function_name(header: str) -> str | None:
    header = _ATTRIBUTES.sub("", header)
    before = header.split("(")[0] if "(" in header else ""
    while before != (shorter := re.sub(r"<[^<>]*>", " ", before)):
        before = shorter
    if "=" in before or not before:
        return None
    names_found = re.findall(r"[A-Za-z_]\w*", before)
    return names_found[-1] if names_found else None


def _check_declarations(found: list[Declaration], with_strings: str, others: set[str]) -> Iterator[tuple[int, str]]:
    prototypes_of = others | _function_names(found)
    asm_lines = {with_strings.count("\n", 0, match.start()) + 1 for match in _ASM.finditer(with_strings)}
    allowed_lines: set[int] = set()
    for item in found:
        header = _ATTRIBUTES.sub("", item.header)
        name = _function_name(header)
        if item.body is not None and re.search(r"\b__(device|global)__\b", header):
            allowed_lines |= set(range(item.line, item.body_line + item.body.count("\n") + 1))
        is_type = _NOT_A_VARIABLE.match(header) is not None
        if name is None and not is_type and not _is_constant(header):
            yield item.line, f"{header[:60]}: {_STATE}"
        elif name is not None and item.body is None and not is_type and name not in prototypes_of:
            yield item.line, f"{header[:60]}: declared and not defined, or {_STATE}"
        for match in re.finditer(r"\bstatic\b([^;{=(]*)", item.body or ""):
            if not re.search(r"\b(const|constexpr|inline|__device__)\b", match.group(1)) and not is_type:
                yield item.body_line + (item.body or "").count("\n", 0, match.start()), f"static: {_STATE}"
    for line in sorted(asm_lines - allowed_lines):
        yield line, "assembly outside of a __device__ function; only PTX in device code"
    for match in _ASM.finditer(with_strings):
        statement = with_strings[match.start() : with_strings.find(";\n", match.start()) + 1 or None]
        if _ASM_DENIED.search(statement):
            yield with_strings.count("\n", 0, match.start()) + 1, "assembly that is no plain PTX; write the operations"


def _is_constant(header: str) -> bool:
    if re.search(r"\bconstexpr\b", header):
        return True
    return re.search(r"\bconst\b(?![^=]*\*(?!\s*const))", header) is not None
