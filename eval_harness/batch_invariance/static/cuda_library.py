"""What CUDA C++ offers to kernels and to host code beside its operators: atomics, shuffles, block sums, casts."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.static.buffers import note_gathered, note_store
from eval_harness.batch_invariance.static.functions import strongest
from eval_harness.batch_invariance.static.reporting import report
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.triton_sums import note_atomic
from eval_harness.batch_invariance.static.values import NUM, PTR, Val, num, seq, unknown
from eval_harness.batch_invariance.static.words import words

_SHUFFLES = frozenset(
    ("__shfl_xor_sync", "__shfl_down_sync", "__shfl_up_sync", "__shfl_sync", "__ldg", "__ldcs", "__ldcg")
)
_CURAND = frozenset(("curand_init", "curand", "curand_uniform", "curand_normal", "curand_uniform4", "philox"))
_INTS = words("int int32_t int64_t uint32_t uint64_t unsigned long short size_t uint8_t int8_t bool char index_t")


def call_cuda(run: Run, frame: Frame, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.Call) -> Val | None:
    """The value of name(...) in CUDA C++; None: not known here."""
    if name in ("dim3", "make_uint3", "make_int3", "__list__"):
        return seq(list(args))
    if name == "__array__":
        return _array(args)
    if name == "__cast__":
        return _cast(args)
    if name in _SHUFFLES and args:
        return args[1] if len(args) > 1 and name.startswith("__shfl") else args[0]
    if name.startswith("atomicAdd") or name in ("red_add", "atomicAdd_block"):
        return _atomic(run, frame, args, node)
    if name in _CURAND and frame.kernel is not None:
        return _curand(run, frame, name, args, node)
    if name.startswith(
        (
            "expf",
            "__expf",
            "exp2f",
            "rsqrtf",
            "sqrtf",
            "__fmul",
            "__fdiv",
            "logf",
            "__logf",
            "tanhf",
            "__half2float",
            "__bfloat162float",
            "__float2half",
            "float2",
            "erff",
            "sinf",
            "cosf",
            "sincosf",
            "powf",
            "exp10f",
            "log2f",
            "log1pf",
            "expm1f",
            "__log2f",
            "__sinf",
            "__cosf",
            "__powf",
            "fdividef",
            "normcdff",
            "sqrt",
            "rsqrt",
            "exp",
        )
    ):
        if "2float" not in name:
            run.events["op", name] = None
        return Val(NUM, strongest(args), elem="f")
    if name in ("fmaf", "__fmaf_rn", "fma", "make_float2", "make_float4", "make_half2", "make_double2"):
        return Val(NUM, strongest(args), elem="f")
    if name in ("CUDA_CHECK", "TORCH_CHECK", "AT_CUDA_CHECK", "__syncthreads", "__syncwarp", "assert", "static_assert"):
        return unknown()
    return None


def _array(args: list[Val]) -> Val:
    """An array in shared memory or registers."""
    pointer = Val(PTR)
    pointer.elem = "i" if args and args[0].const in _INTS else "f"
    held = Val("tensor", elem=pointer.elem)
    pointer.data = held
    return pointer


def _cast(args: list[Val]) -> Val:
    kind, value = args[0].const, args[1]
    if value.kind in (PTR, "tensor"):
        return value
    changed = value.copy()
    text = str(kind)
    changed.elem = "i" if any(part in _INTS for part in text.split()) else "f" if "*" not in text else value.elem
    return changed


def _atomic(run: Run, frame: Frame, args: list[Val], node: ast.Call) -> Val:
    pointer = args[0] if args else unknown()
    added = args[1] if len(args) > 1 else unknown()
    held = pointer.data.elem if pointer.kind == PTR and isinstance(pointer.data, Val) else pointer.elem
    integers = added.elem == "i" or held == "i" or isinstance(added.const, int)
    note_store(run, frame, pointer, added, node.lineno)
    note_gathered(run, frame, "add", pointer, node, integers=integers)
    if integers:
        return num(elem="i")
    note_atomic(run, frame, node)
    return num(elem="f")


def _curand(run: Run, frame: Frame, name: str, args: list[Val], node: ast.Call) -> Val:
    for value in args[:3]:
        dep = value.dep or value.pos
        if dep is not None:
            report(run, frame, node.lineno, Mechanism.WORK_PARTITIONING, "random", dep, "the random stream of a row")
            break
    return num(elem="f")
