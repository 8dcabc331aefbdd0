"""Source rules: what breaks one is named, and honest passes stay clean. The corpus of cheats: test_exploits.py."""

from __future__ import annotations

import pytest

from eval_harness.candidate import Candidate
from eval_harness.source_rules import check_sources, syntax_error

RULE_TAIL = """

def pattern(in_0, in_1, in_2):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.nn.functional.gelu(tmp_0)
    in_0[0] = in_1
    return tmp_1 @ in_2


def replacement_args(in_0, in_1, in_2):
    return (in_0, in_1, in_2, "route")


def replacement_func():
    return fused
"""

NUMBA = '''
from __future__ import annotations

import math
from functools import partial

import numba
import numpy as np
import torch

from pass_dir.helper import LIMITS, as_bits, block_of

EPS: float = 1e-5
jit = numba.njit(parallel=True, fastmath=True)


@jit
def _kernel(a, o, eps):
    for i in numba.prange(a.shape[0]):
        total = a[i].sum() / a.shape[1]
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] - total, np.exp(-eps)) * math.sqrt(eps)


@numba.vectorize([numba.float32(numba.float32)])
def _rectify(x):
    return max(x, np.float32(0))


@torch.fx.wrap
def fused(x: torch.Tensor, bias, scale, route):
    """Fuses."""
    if x.dtype == torch.bfloat16:
        bits = as_bits(x)
    else:
        bits = np.ascontiguousarray(x.detach().numpy(), dtype=np.float32)
    rows = x.numel() // x.shape[-1] + x.stride(0) * 0 + block_of(x.ndim) * LIMITS["max"]
    out = np.empty((rows, x.shape[-1]), np.float32)
    run = partial(_kernel, bits.reshape(rows, -1), out)
    run(EPS)
    values = [size * 2 for size in x.shape if size > 1]
    assert len(values) >= 0, f"{values} {torch.finfo(x.dtype).max}"
    return torch.from_numpy(out).view(x.shape).to(x.dtype).contiguous()
'''
HELPER = """
import math
from dataclasses import dataclass

import numpy as np
import torch

LIMITS = {"max": 1}


@dataclass(frozen=True)
class Block:
    rows: int = 4


def block_of(n):
    sizes = sorted([Block().rows, n])
    return max(sizes) + math.prod(sizes)


def as_bits(tensor):
    return np.ascontiguousarray(tensor.contiguous().view(torch.int16).numpy()).view(np.uint16)
"""
TRITON = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _scaled(x, SCALE: tl.constexpr):
    return libdevice.tanh(x) * tl.sigmoid(x) + tl.math.exp2(x) * SCALE


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w, num_stages=2) for b in (256, 512) for w in (2, 4)],
                 key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _kernel(a, b, o, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i, mask=i < n, other=0.0).to(tl.float32)
    total = tl.sum(x, axis=0) + x.max(axis=0).sum()
    weights = tl.dot(x[:, None], x[None, :]).to(o.dtype.element_ty)
    tl.store(o + i, _scaled(tl.maximum(x, 0.0) / tl.sqrt(total), SCALE=2.0), mask=i < n)


@torch.fx.wrap
def fused(x, bias, scale, route):
    x = x if x.is_contiguous() else x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = out.numel()
    num_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    stream = torch.cuda.current_stream(x.device)
    with torch.cuda.device(x.device):
        grid = lambda meta: (min(triton.cdiv(n, meta["BLOCK"]), num_sms * 4),)
        _kernel[grid](x, bias, out, n)
    return out.view(x.size(0), -1), torch.empty_like(bias, dtype=torch.float32)
"""
CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

# at::relu in a comment is no call
CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>
#include <cub/block/block_reduce.cuh>
// system("no call either")
template <typename scalar_t>
__global__ void kernel(const scalar_t* __restrict__ x, scalar_t* out, int64_t n) {
  __shared__ float partial[32];
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] > scalar_t(0) ? x[i] : scalar_t(0);
  asm volatile("membar.gl;");
}
std::vector<torch::Tensor> run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "cannot open a CPU tensor");
  const at::cuda::OptionalCUDAGuard guard(x.device());
  auto out = torch::empty_like(x);
  auto other = torch::empty({x.size(0)}, x.options().dtype(torch::kFloat32));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "run", [&] {
    kernel<scalar_t><<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
  });
  return {out, other};
}
"""
_MODULE = None


def _load():
    global _MODULE
    if _MODULE is None:
        _MODULE = load_inline(
            name="fused", cpp_sources="std::vector<torch::Tensor> run(torch::Tensor x);", cuda_sources=[CUDA_SOURCE],
            functions=["run"], extra_cuda_cflags=["-O3", "--use_fast_math"], verbose=False)
    return _MODULE


@torch.fx.wrap
def fused(x, bias, scale, route):
    return _load().run(x.contiguous())
'''
HONEST = {
    "numba": {"Fuse.py": NUMBA + RULE_TAIL, "helper.py": HELPER},
    "triton": {"Fuse.py": TRITON + RULE_TAIL},
    "cuda": {"Fuse.py": CUDA + RULE_TAIL},
}


def candidate_of(body: str, **helpers: str) -> Candidate:
    files = {"sorted_output_pass_rule_names.json": '["Fuse"]', "Fuse.py": body + RULE_TAIL}
    return Candidate(files | {f"{name}.py": text for name, text in helpers.items()})


def rules_of(body: str, **helpers: str) -> set[str]:
    return {violation.rule for violation in check_sources(candidate_of(body, **helpers))}


@pytest.mark.parametrize("name", HONEST)
def test_honest_passes_are_clean(name: str) -> None:
    honest = Candidate({"sorted_output_pass_rule_names.json": '["Fuse"]', **HONEST[name]})
    assert syntax_error(honest) is None
    assert check_sources(honest) == []


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("source.torch-call", "import torch as t\nu = t\ndef fused(x): return u.relu(x)"),
        ("source.torch-call", "from torch import relu as r, empty\nimport torch\ndef fused(x): return r(x)"),
        ("source.torch-call", "import torch\ndef fused(x, relu=torch.relu): return relu(x)"),
        ("source.torch-call", "import torch\ndef fused(x): return list(map(torch.relu, [x]))"),
        ("source.torch-call", "import torch\ndef fused(x): return torch.Tensor.relu(x)"),
        ("source.torch-call", "import torch\ndef fused(x):\n    f = x.matmul\n    return f(x)"),
        ("source.torch-call", "import torch\ndef fused(x): return x @ x"),
        ("source.torch-call", "import torch\ndef fused(x): return torch.ops.aten.relu(x)"),
        ("source.torch-call", "import torch\nfused = torch.nn.functional.relu"),
        ("source.module-object", "import torch\ndef fused(x): return [torch][0].relu(x)"),
        ("source.builtin", "import torch\ndef fused(x): return eval('x.relu()')"),
        ("source.builtin", "import torch\ndef fused(x): return __import__('os')"),
        ("source.builtin", "import torch\nlookup = getattr\ndef fused(x): return lookup(x, 'relu')()"),
        ("source.builtin", "import torch\ndef fused(x): return open('/etc/passwd')"),
        ("source.dunder", "import torch\ndef fused(x): return ().__class__.__bases__"),
        ("source.dunder", "import torch\nclass A:\n    def __torch_function__(self): pass\ndef fused(x): return x"),
        ("source.import", "import torch\nimport triton.language as tl\ndef fused(x): return tl.core.inspect"),
        ("source.import", "import torch\nfrom pass_dir.missing import f\ndef fused(x): return f(x)"),
        ("source.import", "import torch\nfrom math import *\ndef fused(x): return x"),
        ("source.import", "import torch\ndef fused(x):\n    import importlib\n    return x"),
        ("source.patch", "import torch\ndef fused(x):\n    torch.cuda.synchronize = None\n    return x"),
        ("source.numpy-call", "import torch, numpy as np\ndef fused(x): return np.dot(x.numpy(), x.numpy())"),
        ("source.numpy-call", "import torch, numba\n@numba.njit\ndef k(a): return a @ a\ndef fused(x): return k(x)"),
        ("source.numpy-call", "import torch, numba\n@numba.njit\ndef k(a): return a.dot(a)\ndef fused(x): return k(x)"),
        ("source.numba-call", "import torch, numba\n@numba.jit(forceobj=True)\ndef k(a): return a\nfused = k"),
        ("source.array-arithmetic", "import torch\ndef g(a): return -a\ndef fused(x): return g(x.numpy())"),
        ("source.triton-call", "import triton\n@triton.jit(repr=str)\ndef k(a): pass\ndef fused(x): return k[(1,)](x)"),
        ("source.triton-call", "import triton\nfused = triton.knobs.runtime.launch_enter_hook"),
        ("source.torch-call", "import torch\ndef fused(x):\n    with torch.cuda.stream(torch.cuda.Stream()): return x"),
        ("source.torch-call", "import torch\ndef fused(x): return torch.cuda.CUDAGraph()"),
        ("source.only-copies", "import torch\ndef fused(x): return x.to(torch.float32).contiguous()"),
        ("source.cpp-call", "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
         "def fused(x): return load_inline(name='a', cpp_sources=str(x), functions=['f'])"),
        ("source.cpp-call", "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
         "M = load_inline(name='a', cpp_sources='int f();', extra_ldflags=['-lcublas'])\ndef fused(x): return x"),
    ],
)  # fmt: skip
def test_one_broken_rule_is_named(rule: str, body: str) -> None:
    assert rule in rules_of(body)


@pytest.mark.parametrize(
    "source",
    [
        "#include <cublas_v2.h>",
        "using namespace torch;",
        "#define A at\nA::relu(x);",
        "#define A \\\n  at\nA::relu(x);",
        "at :: relu(x);",
        "auto y = torch::nn::functional::relu(x);",
        'int r = system("ls");',
        "auto y = x.matmul(x);",
        "std::thread t(f);",
        'asm volatile("syscall");',
        "#define J(a, b) a##b",
        "c10::Dispatcher::singleton();",
        'py::module_::import("torch");',
        "PyRun_SimpleString(code);",
        "int f() { return wri\\\nte(1, 0, 0); }",
        "int f() { return get\\\nmin(1, 2); }",
        "char c = '\"'; int r = system(\"ls\"); char d = '\"';",
        "int a = 1'0; int r = system(0); int b = 2'0;",
        'const char* t = R"(")"; int r = system("ls"); auto u = R"(")";',
        "int f() { int getpgid(int); return getpgid(0); }",
        "int f() { return 1 * getpgid(0); }",
        "int f() { return ::getpgid(0); }",
        'extern "C" int tgkill(int, int, int);',
        "auto f() { auto g = &write; return g; }",
        "static int calls = 0; int f() { return 0; }",
        "int f() { static int calls; return calls++; }",
        "std::vector<torch::Tensor> kept; int f() { return 0; }",
        "__device__ float memo[64];",
        "struct Kept { int n; } kept;",
        "torch::Tensor kept(); int f() { return 0; }",
        '__attribute__((constructor)) void f() {}',
        "[[gnu::constructor]] void f() {}",
        '#pragma redefine_extname f system',
        'int f() { asm volatile(".byte 0x0f, 0x05"); return 0; }',
        '__device__ int f() { long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }',
        "#define RUN asm",
        "void f() { cudaStream_t s; cudaStreamCreate(&s); }",
        "void f() { cudaGraphLaunch(g, s); }",
        "void f() { cudaLaunchHostFunc(s, g, 0); }",
        "void f() { cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0); }",
        "void f() { cudaMemcpy(a, b, 4, cudaMemcpyDeviceToDevice); }",
        "void f() { cuCtxSetLimit(a, b); }",
        "void f(long a) { ((void (*)(int))a)(1); }",
        "#include MACRO",
        "void f() { cub::DeviceReduce::Sum(a, b, c, d, 4); }",
        "#include <unistd.h>",
    ],
)
def test_cpp_text_is_read(source: str) -> None:
    body = (
        "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
        f"TEXT = {source!r}\nMODULE = load_inline(name='a', cpp_sources=[TEXT])\ndef fused(x): return MODULE.run(x)"
    )
    assert "source.cpp-call" in rules_of(body)


def test_violation_of_a_helper_names_the_helpers_line() -> None:
    violations = check_sources(
        candidate_of(
            "import torch\nfrom pass_dir.helper import f\ndef fused(x): return f(x)",
            helper="import torch\n\n\ndef f(x):\n    return torch.relu(x)\n",
        )
    )
    assert [(found.rule, found.file, found.line) for found in violations] == [("source.torch-call", "helper.py", 5)]
    assert "kernel" in violations[0].message


def test_pattern_is_exempt_in_rule_files_only() -> None:
    body = "import torch\nimport pass_dir.helper\ndef fused(x): return x"
    assert rules_of(body, helper="import torch\ndef pattern(x):\n    return torch.relu(x)\n") == {"source.torch-call"}


def test_syntax_error_names_file_and_line_and_is_no_violation() -> None:
    broken = candidate_of("import torch\ndef fused(x): return x", helper="x = 1\ndef f(:\n")
    assert (syntax_error(broken) or "").startswith("helper.py:2: ")
    assert check_sources(broken) == []


def test_files_that_nothing_reads_are_refused() -> None:
    body = "import torch, numba\n@numba.njit\ndef fused(x): return x"
    base = dict(candidate_of(body).files)
    for extra in ({"weights.pth": "x"}, {"lib.so": "x"}, {"a.pyi": ""}, {"h.py": "", "h/__init__.py": ""}):
        assert {found.rule for found in check_sources(Candidate(base | extra))} == {"source.file"}
    assert check_sources(Candidate(base | {"README.md": "x", "sub/__init__.py": "", "sub/h.py": ""})) == []


def test_upstream_level_keeps_upstreams_holes() -> None:
    caught = candidate_of("import torch\ndef fused(x): return torch.relu(x)")
    assert [found.rule for found in check_sources(caught, "upstream")] == ["source.torch-call"]
    imported = candidate_of("import torch\nimport torch.nn.functional as F\ndef fused(x): return F.relu(x)")
    assert {found.rule for found in check_sources(imported, "upstream")} == {"source.import", "source.torch-call"}
    hole = candidate_of("import torch\ndef fused(x): return getattr(torch, 'relu')(x)")
    assert check_sources(hole, "upstream") == []
    assert check_sources(hole) != []
