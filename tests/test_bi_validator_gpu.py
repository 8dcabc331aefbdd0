"""The dynamic validator on a GPU: Triton kernels of both kinds, and what the gate costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from eval_harness.batch_invariance.contexts import ContextPolicy  # noqa: E402
from eval_harness.batch_invariance.dynamic_result import DynamicOutcome  # noqa: E402
from eval_harness.batch_invariance.kernel_folder import validate_folder  # noqa: E402
from eval_harness.batch_invariance.kernel_nursery import KernelNursery  # noqa: E402
from eval_harness.batch_invariance.validator import validate_kernel  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SPEC = {
    "family": "normalization",
    "inputs": [
        {"shape": ["B", 4096], "dtype": "float32", "batch_dim": 0},
        {"shape": [4096], "dtype": "float32"},
    ],
    "outputs": [{"batch_dim": 0}],
}
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _partial(x, sums, N, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    length = tl.cdiv(N, SPLITS)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(split * length, (split + 1) * length, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mine = (offsets < (split + 1) * length) & (offsets < N)
        values = tl.load(x + row * N + offsets, mask=mine, other=0.0).to(tl.float32)
        total += values * values
    tl.store(sums + row * SPLITS + split, tl.sum(total))


@triton.jit
def _scale(x, weight, sums, out, N, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.full([], 0.0, tl.float32)
    for split in range(SPLITS):
        total += tl.load(sums + row * SPLITS + split)
    rstd = tl.rsqrt(total / N + 1e-6)
    for start in range(0, N, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * N + offsets).to(tl.float32) * rstd * tl.load(weight + offsets).to(tl.float32)
        tl.store(out + row * N + offsets, values)


def run(x, weight):
    splits = SPLITS_RULE
    sums = torch.empty(x.shape[0], splits, device=x.device)
    out = torch.empty_like(x)
    _partial[(x.shape[0], splits)](x, sums, x.shape[1], splits, 256)
    _scale[(x.shape[0],)](x, weight, sums, out, x.shape[1], splits, 1024)
    return out
"""
STATEFUL = "splits = _first.setdefault('splits', 1 if x.shape[0] >= 64 else 8)"


@pytest.fixture(scope="module")
def nursery():
    with KernelNursery() as running:
        yield running


def folder_of(tmp_path: Path, rule: str) -> Path:
    source = KERNEL.replace("splits = SPLITS_RULE", rule).replace("@triton.jit", "_first = {}\n\n\n@triton.jit", 1)
    (tmp_path / "kernel.py").write_text(source)
    (tmp_path / "kernel.json").write_text(json.dumps(SPEC))
    return tmp_path


def test_an_honest_kernel_is_confirmed_and_cheap(tmp_path, nursery, capsys):
    result = validate_folder(folder_of(tmp_path, "splits = 4"), device="cuda", repeats=10, nursery=nursery)
    assert result.outcome is DynamicOutcome.INVARIANT, result.message
    assert result.confirmed, result.message
    with capsys.disabled():
        print(f"\nhonest: {result.num_contexts} batches in {result.warm_ms:.2f} ms, then {result.confirm_ms:.0f} ms")
    assert result.warm_ms < 20


@pytest.mark.parametrize("rule", ["splits = max(1, 256 // x.shape[0])", "splits = 1 if x.shape[0] > 16 else 4"])
def test_splits_by_batch_are_found_soon(tmp_path, rule, capsys):
    result = validate_folder(folder_of(tmp_path, rule), device="cuda", repeats=10)
    assert result.outcome is DynamicOutcome.VARIANT, result.message
    with capsys.disabled():
        print(f"\n{rule}: {result.num_contexts} batches in {result.warm_ms:.2f} ms: {result.message}")


def test_what_the_first_call_decided_is_found_in_fresh_processes(tmp_path, nursery):
    result = validate_folder(folder_of(tmp_path, STATEFUL), device="cuda", nursery=nursery)
    assert result.outcome is DynamicOutcome.VARIANT, result.message
    assert result.difference is not None and result.difference.process == "rising"


def test_atomic_sums_are_not_deterministic():
    def atomic_sum(x):
        index = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
        return torch.zeros(x.shape[0], 1, device=x.device).index_add_(1, index, x)

    result = validate_kernel(
        atomic_sum, [torch.randn(8, 1 << 14, device="cuda")], in_axes=[0], out_axes=[0], confirm=False
    )
    assert result.outcome is DynamicOutcome.NOT_DETERMINISTIC, result.message


def test_a_lost_device_is_said_and_kept_in_a_child(tmp_path, nursery):
    """Only the child's device is lost: an out-of-range index trips an assertion there."""
    from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
    from eval_harness.batch_invariance.runner import ProcessRunner
    from eval_harness.batch_invariance.validator import validate

    (tmp_path / "kernel.py").write_text(
        "import torch\n\ndef run(x):\n    return x[torch.arange(len(x), device='cuda') * 9]\n"
    )
    runner = ProcessRunner(tmp_path / "kernel.py", nursery=nursery)
    layout = BatchLayout((RowAxis(0),), (RowAxis(0),), 8, resizable=True)
    result = validate(runner, [torch.randn(8, 16, device="cuda")], layout, policy=ContextPolicy(far_sizes=()))
    assert result.outcome is DynamicOutcome.NOT_APPLICABLE and result.is_lost
    assert float(torch.ones(3, device="cuda").sum()) == 3.0
