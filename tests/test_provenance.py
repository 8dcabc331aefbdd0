# ruff: noqa: E501 - names as the profiler gives them
"""Kernel provenance as a decision: whose kernels ran, from names as the profiler gives them. No GPU."""

from __future__ import annotations

import pytest
import torch

from eval_harness.provenance import (
    ReplacementTrace,
    base_name,
    is_own,
    only_views,
    own_kernel_names,
    provenance_violations,
)
from eval_harness.tracing import trace_callable
from tests.test_source_rules import CUDA, RULE_TAIL, TRITON

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"
HALF = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, at::native::detail::ClampLimits)::{lambda()#1}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
GEMM = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"
OWN = frozenset({"_kernel", "softmax", "k"})


def rules(*kernels: str, is_complete: bool = True, own: frozenset[str] = OWN, trivial: str = "") -> set[str]:
    trace = ReplacementTrace("Fuse", tuple((name, 1) for name in kernels), is_complete)
    found = provenance_violations([trace], own, trivial_rules=frozenset({trivial}))
    assert all(violation.layer == "provenance" and violation.file == "Fuse.py" for violation in found)
    return {violation.rule for violation in found}


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("_kernel", "_kernel"),
        ("void softmax<float, 4>(float const*, float*, long)", "softmax"),
        ("(anonymous namespace)::softmax(float*)", "softmax"),
        ("void ns::inner::softmax<c10::Half, (bool)1>(c10::Half const*)", "softmax"),
        ("cudapy::pass_dir::Fuse::k[abi:v1,cw51cXTLSUwv1sCUt9](Array<float, 1, C, mutable, aligned>)", "k"),
    ],
)
def test_base_name_of_a_kernel(kernel: str, name: str) -> None:
    assert base_name(kernel) == name
    assert is_own(kernel, OWN)


def test_names_of_libraries_are_never_own() -> None:
    assert not is_own("void at::native::softmax<float>(float*)", OWN)
    assert not is_own("void cub::DeviceReduceKernel<k>(int)", OWN)
    assert not is_own(GEMM, OWN)


def test_own_kernels_with_what_allocation_and_casts_launch_are_clean() -> None:
    assert rules("_kernel") == set()
    assert rules("_kernel", FILL, CAST, HALF, "Memset (Device)", "Memcpy DtoD (Device -> Device)", "Context Sync") == set()
    assert rules("_kernel_0d1d2de") == set()


def test_foreign_kernels_are_named() -> None:
    assert rules("_kernel", RELU) == {"provenance.foreign-kernel"}
    assert rules(GEMM) == {"provenance.foreign-kernel"}
    assert rules("_kernel", "triton_poi_fused_add_relu_0") == {"provenance.foreign-kernel"}
    assert rules("_kernel", "Memcpy DtoH (Device -> Pageable)") == {"provenance.foreign-kernel"}


def test_a_replacement_without_a_kernel_is_a_violation_unless_it_only_looks() -> None:
    assert rules() == {"provenance.no-kernel"}
    assert rules(FILL, CAST) == {"provenance.no-kernel"}
    assert rules(trivial="Fuse") == set()


def test_an_incomplete_trace_accuses_nobody() -> None:
    assert rules(GEMM, is_complete=False) == set()


def test_own_names_are_read_from_the_sources() -> None:
    by_call = "import triton\ndef body(a): pass\nkernel = triton.jit(body)\ndef helper(a): pass\n"
    bounds = 'S = """extern "C" __global__ void __launch_bounds__(256, 2) one(float* o) {}\n' \
             '__launch_bounds__(64) __global__ void two(int n) {}\n"""'  # fmt: skip
    assert own_kernel_names({"Fuse.py": TRITON + RULE_TAIL}) == {"_scaled", "_kernel"}
    assert own_kernel_names({"Fuse.py": CUDA + RULE_TAIL}) == {"kernel"}
    assert own_kernel_names({"Fuse.py": by_call}) == {"body"}
    assert own_kernel_names({"a.py": bounds, "b.py": "def f(:"}) == {"one", "two"}


def test_a_report_of_another_form_is_refused() -> None:
    assert ReplacementTrace.from_json({"rule": "A", "kernels": [["k", 2]], "is_complete": True}).kernels == (("k", 2),)
    for data in ({}, {"rule": "A", "kernels": [1], "is_complete": True}, {"rule": "A", "kernels": [["k", "x"]], "is_complete": 1}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            ReplacementTrace.from_json(data)


def test_patterns_of_views_only_are_told() -> None:
    assert only_views(trace_callable(lambda x: x.view(4, 2).transpose(0, 1), ["x"]))
    assert not only_views(trace_callable(lambda x: torch.relu(x.view(4, 2)), ["x"]))
