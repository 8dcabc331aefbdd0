# ruff: noqa: E501 - one snippet a line
"""What load_inline may be given: text that is certainly known, read as the compiler reads it, with plain flags."""

from __future__ import annotations

import pytest

from eval_harness.source_cpp import check_cpp
from eval_harness.source_rules import check_sources
from tests.test_source_rules import candidate_of

HEAD = "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
TAIL = "\ndef fused(x, y, *r): return M.f(x)"
GOOD = '"int f() { return 0; }"'


def rules(body: str, **helpers: str) -> set[str]:
    return {violation.rule for violation in check_sources(candidate_of(HEAD + body + TAIL, **helpers))}


@pytest.mark.parametrize(
    "body",
    [
        f"S = {GOOD}\nM = load_inline('a', S)",
        f"S = [{GOOD}]\nM = load_inline('a', cpp_sources=S, functions=['f'], extra_cflags=['-O3', '-march=native'])",
        "N = 256\nS = f'constexpr int n = {N}; int f() {{ return n; }}'\nM = load_inline('a', cpp_sources=S)",
        "from pass_dir.other import TEXT\nM = load_inline('a', cpp_sources=TEXT)",
        "from pass_dir import other\nM = load_inline('a', cpp_sources=[other.TEXT])",
        "S = 'int f();'\nT = 'int f() { return 0; }'\nM = load_inline('a', S, T)",
    ],
)
def test_known_text_is_accepted(body: str) -> None:
    assert rules(body, other="TEXT = 'int f() { return 0; }'\n") == set()


@pytest.mark.parametrize(
    "body",
    [
        f"S = [{GOOD}]\nS.append('int g();')\nM = load_inline('a', cpp_sources=S)",
        f"S = [{GOOD}]\ndef more(s): s[0] = 'x'\nmore(S)\nM = load_inline('a', cpp_sources=S)",
        f"S = {GOOD}\nS = S + 'x'\nM = load_inline('a', cpp_sources=S)",
        f"S = {GOOD}\ndef build(S): return load_inline('a', cpp_sources=S)\nM = build(''.join(['s', 'ystem']))",
        "M = load_inline('a', cpp_sources='int f() { return sys' + 'tem(0); }')",
        "A = 'tem'\nM = load_inline('a', cpp_sources=f'int f() {{ return sys{A}(0); }}')",
        "from pass_dir.other import TEXT\nM = load_inline('a', cpp_sources='x'.join(TEXT))",
        f"F = ['-O3']\nF.append('-lcublas')\nM = load_inline('a', cpp_sources={GOOD}, extra_cflags=F)",
        f"M = load_inline('a', cpp_sources={GOOD}, extra_cflags=['-include', '/etc/passwd'])",
        f"M = load_inline('a', cpp_sources={GOOD}, extra_ldflags=['-lcublas'])",
        f"M = load_inline('a', cpp_sources={GOOD}, extra_include_paths=['/usr/include'])",
        f"M = load_inline('a', cpp_sources={GOOD}, build_directory='/tmp/x')",
        f"A = dict(extra_ldflags=['-lm'])\nM = load_inline('a', cpp_sources={GOOD}, **A)",
    ],
)
def test_text_that_is_not_certain_is_refused(body: str) -> None:
    assert "source.cpp-call" in rules(body, other="TEXT = ['a', 'b']\n")


def test_a_line_of_a_sibling_is_named() -> None:
    text = 'TEXT = """\nint f() {\n  return system(0);\n}\n"""\n'
    body = HEAD + "from pass_dir.other import TEXT\nM = load_inline('a', cpp_sources=TEXT)" + TAIL
    (found,) = {violation.line for violation in check_sources(candidate_of(body, other=text))}
    assert found == 3


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* o) { extern __shared__ float s[]; __shared__ float t[32]; s[0] = t[0]; o[0] = s[0]; }",
        "template <typename T, int N> struct Vec { T v[N]; __device__ T sum_of() const { T s = 0; return s; } };",
        "constexpr int N = 4;\nstatic const float TABLE[2] = {1.0f, 2.0f};\n__constant__ const float T2[1] = {1.0f};",
        "static inline __device__ float g(float x) { return __expf(x) + rsqrtf(x); }\n"
        "__global__ void __launch_bounds__(256) k(float* o) { o[threadIdx.x] = g(fmaxf(o[0], 1e-5f)); }",
        "__device__ float h(const float* p) { float v; asm volatile(\"ld.global.nc.f32 %0, [%1];\" : \"=f\"(v) : \"l\"(p));"
        " return v; }",
        "namespace { __global__ void k(int n, int time) { if (n > time) return; } }",
        "int64_t a = 1'000;" and "constexpr int64_t a = 1'000; char c() { return '\"'; }",
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
        "__global__ void k(float* o) { auto g = cg::this_grid(); g.sync(); float4 v = make_float4(0, 0, 0, 0); o[0] = v.x; }",
        "void f(torch::Tensor x) { dim3 grid(1), block(2); auto go = [&](auto tag) { return tag; }; go(1);\n"
        "  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024); C10_CUDA_CHECK(cudaGetLastError()); }",
        "#define CEIL(a, b) (((a) + (b) - 1) / (b))\n#pragma unroll\nint f(int n) { return CEIL(n, 2); }",
    ],
)  # fmt: skip
def test_honest_text_is_clean(text: str) -> None:
    assert list(check_cpp(text)) == []
