"""Rules over the C++ and CUDA text that a pass hands to load_inline (DESIGN section 6). Patterns, no parser.

Covered: library calls by name (at::, torch::, c10:: by allow-list; cuBLAS, cuDNN, the C library's system calls,
threads, the Python C API by deny-list), headers by allow-list, compiler flags. Not covered: tensor arithmetic by
operators, which the dispatch guard sees because C++ goes through the same dispatcher.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from eval_harness.source_names import POINTER_METHODS, READ_METHODS, UNMISTAKABLE_METHODS
from eval_harness.source_scope import Folder, Scope

_HEADERS = re.compile(
    r"(torch/(extension|types|torch)\.h|ATen/(ATen|cuda/CUDAContext|cuda/CUDAContextLight|Parallel|Dispatch|"
    r"DeviceGuard)\.h|c10/(cuda/(CUDAGuard|CUDAStream|CUDAException)|util/(Half|BFloat16|Exception|complex))\.h|"
    r"cuda(_runtime(_api)?|_fp16|_bf16|_fp8|_pipeline|_pipeline_primitives)?\.h|cuda_fp16\.hpp|cuda_bf16\.hpp|"
    r"cuda/(pipeline|barrier|std/.*)|cooperative_groups(/.*)?(\.h)?|mma\.h|cub/.*|device_launch_parameters\.h|"
    r"vector_types\.h|math_constants\.h|immintrin\.h|x86intrin\.h|arm_neon\.h|omp\.h|"
    r"c?(math|stdint|float|limits|assert|string|stddef)(\.h)?|algorithm|array|vector|tuple|utility|type_traits|"
    r"limits|numeric|optional|string|memory|bit|initializer_list|iterator)"
)
_ATEN_ALLOWED = re.compile(
    r"(Tensor|TensorOptions|TensorBase|IntArrayRef|ArrayRef|Scalar|ScalarType|Device|DeviceType|Half|BFloat16|"
    r"opmath_type|acc_type|empty|empty_like|empty_strided|zeros|zeros_like|ones|full|from_blob_never|"
    r"k(Float|Double|Half|BFloat16|Int|Long|Short|Char|Byte|Bool|CUDA|CPU|Strided)\w*|dtype|device|options|"
    r"cuda::(getCurrentCUDAStream|CUDAGuard|OptionalCUDAGuard|CUDAStream|getCurrentDeviceProperties|"
    r"getDeviceProperties|current_device)|PackedTensorAccessor\w*|RestrictPtrTraits|GenericPackedTensorAccessor|"
    r"MemoryFormat(::\w+)?|DeviceGuard|OptionalDeviceGuard|parallel_for|get_num_threads|detail::\w+|"
    r"Layout|nullopt|optional|Float|Long|BFloat16)"
)
_NAMESPACE_USE = re.compile(r"\b(at|torch|c10|aten)\s*::\s*([A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)?)")
_DENIED_NAMES = re.compile(
    r"\b(cublas\w*|cudnn\w*|cusolver\w*|cusparse\w*|cufft\w*|cutlass\w*|nvrtc\w*|mkl\w*|cblas_\w+|[sd]gemm_?|"
    r"cudaGraph\w*|cudaStreamBeginCapture\w*|cudaEvent\w*|cudaDeviceSet\w*|cudaCtx\w*|cudaLaunchHostFunc|"
    r"cudaStreamAddCallback|cudaStreamCreate\w*|cudaHost\w*|cudaIpc\w*|cudaMallocManaged|cu[A-Z]\w*Host\w*|"
    r"cuModule\w*|cuGetProcAddress\w*|cudaGetDriverEntryPoint\w*|cudaDeviceReset|cudaProfiler\w*|"
    r"system|popen|fork|vfork|clone|execl|execle|execlp|execv|execve|execvp|execvpe|posix_spawn\w*|"
    r"dlopen|dlsym|dlmopen|dladdr|dl_iterate_phdr|syscall|ptrace|mprotect|mmap|munmap|mremap|memfd_create|"
    r"open|openat|creat|fopen|freopen|fdopen|ifstream|ofstream|fstream|filesystem|getenv|setenv|putenv|environ|"
    r"socket|connect|kill|raise|signal|sigaction|_exit|quick_exit|atexit|process_vm_\w+|shm_open|"
    r"pthread_\w+|jthread|async|future|promise|packaged_task|clock_gettime|gettimeofday|chrono|"
    r"Py[A-Z]\w*_\w+|__builtin_return_address|constructor|destructor|setjmp|longjmp|goto_never)\b(?!\s*:(?!:))"
)
_MESSAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"std\s*::\s*thread\b"), "std::thread; work belongs in the call itself"),
    (re.compile(r"\busing\s+namespace\s+(at|torch|c10)\b"), "using namespace of torch; write the full names"),
    (re.compile(r"\bnamespace\s+\w+\s*=|\busing\s+(at|torch|c10)\s*::"), "renamed torch namespace; write full names"),
    (re.compile(r"##|%:%:"), "token pasting; write the names out"),
    (re.compile(r"#\s*define\s+\w+[^\n]*\b(at|torch|c10|aten)\b"), "a macro that stands for torch; write it out"),
    (re.compile(r"\b(py|pybind11)\s*::\s*(module\w*|eval\w*|exec|globals|object|function|import|cpp_function)\b"),
     "Python called from C++; compute in the kernel"),
    (re.compile(r"\basm\b[^;]*\b(syscall|sysenter|int\s+0x80)\b"), "a system call in assembly"),
    (re.compile(r"\bTORCH_LIBRARY\w*"), "an operator registration; bind the function with PYBIND11 or functions="),
)
_METHOD_USE = re.compile(r"(?:\.|->)\s*([A-Za-z_]\w*)\s*\(")
_CPP_METHODS_DENIED = (UNMISTAKABLE_METHODS | READ_METHODS | POINTER_METHODS | {
    "sum", "mean", "add", "add_", "mul", "mul_", "sub", "sub_", "div", "div_", "exp", "tanh", "sqrt", "pow", "amax",
    "relu_", "sigmoid_", "norm", "argmax", "transpose_never",
}) - {"data_ptr", "const_data_ptr", "equal"}
_FLAGS = re.compile(
    r"-(O[0-3s]|O|std=(c|gnu)\+\+\d\w|W\w[\w-]*|g|march=[\w-]+|mtune=[\w-]+|m(avx|sse|fma|f16c)[\w.-]*|"
    r"f(openmp|fast-math|PIC|no-math-errno|finite-math-only|unroll-loops|tree-vectorize)|lineinfo|"
    r"-use_fast_math|use_fast_math|-expt-(relaxed-constexpr|extended-lambda)|-extended-lambda|"
    r"-ptxas-options=[\w=,-]+|Xptxas|-gencode(=.*)?|gencode(=.*)?|arch=\w+|-fmad=\w+|-maxrregcount=\d+|D\w+(=\d+)?|"
    r"lgomp|-threads=\d+)|-?[ \w=,.-]*v|arch=compute_\w+,code=\w+"
)


def check_cpp(text: str) -> Iterator[tuple[int, str]]:
    """(line, what was found and what to do instead) for each broken rule of one C++ or CUDA text."""
    text = _without_comments(text.replace("\\\n", " "))

    def line_of(match: re.Match[str]) -> int:
        return text.count("\n", 0, match.start()) + 1

    for match in re.finditer(r"#\s*include\s*(\S[^\n]*)", text):
        header = match.group(1).strip().strip("<>\"")
        if not _HEADERS.fullmatch(header):
            yield line_of(match), f"#include {match.group(1).strip()}; only torch, CUDA, CUB and plain C++ headers"
    for match in _NAMESPACE_USE.finditer(text):
        name = re.sub(r"\s", "", match.group(2))
        if not _ATEN_ALLOWED.fullmatch(name) and not _ATEN_ALLOWED.fullmatch(name.split("::")[0]):
            yield line_of(match), f"{match.group(1)}::{name}; only allocation and types, compute in your own kernel"
    for match in _DENIED_NAMES.finditer(text):
        yield line_of(match), f"{match.group(1)}; a kernel calls no vendor library, system call, thread or clock"
    for match in _METHOD_USE.finditer(text):
        if match.group(1) in _CPP_METHODS_DENIED:
            yield line_of(match), f".{match.group(1)}() computes through torch; write it in the kernel"
    for pattern, message in _MESSAGES:
        for match in pattern.finditer(text):
            yield line_of(match), message


def _without_comments(text: str) -> str:
    """The text with comments and string literals blanked, line numbers kept; include lines keep their names."""
    token = re.compile(r"//[^\n]*|/\*.*?\*/|(?P<include>#\s*include[^\n]*)|(?P<text>\"(?:\\.|[^\"\\\n])*\")", re.S)

    def blank(match: re.Match[str]) -> str:
        if match.group("include"):
            return match.group()
        if match.group("text") and "syscall" in match.group():
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return token.sub(blank, text)


_SOURCE_KEYWORDS = ("cpp_sources", "cuda_sources")
_FLAG_KEYWORDS = ("extra_cflags", "extra_cuda_cflags")
_FREE_KEYWORDS = frozenset({"name", "functions", "verbose", "with_cuda", "with_pytorch_error_handling", "use_pch"})
_POSITIONS = ("name", "cpp_sources", "cuda_sources", "functions", "extra_cflags", "extra_cuda_cflags")


def check_load_inline(node: ast.Call, scope: Scope, folder: Folder) -> Iterator[tuple[int | None, str]]:
    """Broken rules of one load_inline call: its sources must be constant text, its flags plain."""
    arguments: list[tuple[str | None, ast.expr]] = list(zip(_POSITIONS, node.args, strict=False))
    arguments += [(keyword.arg, keyword.value) for keyword in node.keywords]
    if len(node.args) > len(_POSITIONS) or any(isinstance(value, ast.Starred) for _, value in arguments):
        yield None, "load_inline by position; name its arguments"
    for name, value in arguments:
        if name in _FREE_KEYWORDS:
            continue
        if name in _SOURCE_KEYWORDS or name in _FLAG_KEYWORDS:
            texts = constant_texts(value, scope, folder)
            if texts is None:
                yield value.lineno, f"load_inline({name}=...) is not constant text; write the source as a literal"
                continue
            for first_line, text in texts:
                if name in _SOURCE_KEYWORDS:
                    for line, message in check_cpp(text):
                        yield first_line + line - 1, message
                elif not _FLAGS.fullmatch(text):
                    yield value.lineno, f"compiler flag {text!r}; optimisation and architecture flags only"
        elif not (isinstance(value, ast.Constant) and not value.value) and not (
            isinstance(value, ast.List) and not value.elts
        ):
            yield value.lineno, f"load_inline({name}=...); leave it out"


def constant_texts(
    node: ast.expr, scope: Scope, folder: Folder, depth: int = 0
) -> list[tuple[int, str]] | None:
    """(first line, text) of each string that an expression certainly is, or None when that cannot be told.

    Follows +, f-strings of constants, lists, and names bound exactly once to such text, siblings too. A name that comes
    from a sibling keeps the sibling's line numbers.
    """
    if depth > 8:
        return None
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return [(node.lineno, node.value)]
        return [] if node.value is None else None
    if isinstance(node, ast.List | ast.Tuple):
        collected: list[tuple[int, str]] = []
        for element in node.elts:
            part = constant_texts(element, scope, folder, depth + 1)
            if part is None:
                return None
            collected += part
        return collected
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = constant_texts(node.left, scope, folder, depth + 1)
        right = constant_texts(node.right, scope, folder, depth + 1)
        if left is None or right is None or not left:
            return None
        if isinstance(node.left, ast.List):
            return left + right
        return [(left[0][0], "".join(text for _, text in left + right))]
    if isinstance(node, ast.Name):
        return _constant_of_name(node.id, scope, folder, depth)
    return None


def _constant_of_name(
    name: str, scope: Scope, folder: Folder, depth: int
) -> list[tuple[int, str]] | None:
    stores = [n for n in ast.walk(scope.tree) if isinstance(n, ast.Name) and n.id == name
              and not isinstance(n.ctx, ast.Load)]
    values = [n.value for n in ast.walk(scope.tree) if isinstance(n, ast.Assign)
              and any(isinstance(target, ast.Name) and target.id == name for target in n.targets)]
    if len(stores) == 1 and len(values) == 1 and name not in scope.origins:
        return constant_texts(values[0], scope, folder, depth + 1)
    if not stores:
        for origin in scope.origins.get(name, ()):
            module, _, attribute = origin.rpartition(".")
            if len(scope.origins[name]) == 1 and module in folder.scopes:
                return _constant_of_name(attribute, folder.scopes[module], folder, depth + 1)
    return None
