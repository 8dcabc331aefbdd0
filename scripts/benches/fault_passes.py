"""The right pass for relu(a + b) * c with lines that break it, as a pass folder: for the soak and the tests of faults.

The source rules would refuse most of these before they run, so they are evaluated with that layer switched off: what is
shown is that the processes hold where the rules would not. What breaks is in faults.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.verdict import Outcome
from scripts.benches.corpus import make_task

_RULE = """

def pattern(in_0, in_1, in_2):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.relu(tmp_0)
    return tmp_1 * in_2


def replacement_args(in_0, in_1, in_2):
    return (in_0, in_1, in_2)


def replacement_func():
    return fused
"""
CPU_KERNEL = """import numba
import numpy as np
import torch


@numba.njit
def kernel(a, b, c, o):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s = a[i, j] + b[j]
            o[i, j] = max(s, np.float32(0.0)) * c[i, j]


def launch(x, bias, scale, out):
    kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())
"""
CUDA_KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, c, o, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    s = tl.load(a + i, mask=m) + tl.load(b + i % d, mask=m)
    tl.store(o + i, tl.maximum(s, 0.0) * tl.load(c + i, mask=m), mask=m)


def launch(x, bias, scale, out):
    n = x.numel()
    kernel[(triton.cdiv(n, 512),)](x, bias, scale, out, n, bias.shape[0], BLOCK=512)
"""
_WRAPPER = """

@torch.fx.wrap
def fused(x, bias, scale):
{before}
    out = torch.empty_like(x)
    launch(x, bias, scale, out)
    return out
"""


def fault_protocol(*, in_full: bool = False, **overrides: object) -> EvaluationProtocol:
    """`strict` without the source rules, in small: short time limits and hardly any timing. Not a measurement.

    in_full: every stage, unseen shapes too, and all layers.
    """
    quick: dict[str, object] = {
        "num_draws": 1, "num_clusters": 2, "pairs_per_cluster": 2, "block_ms": 1.0, "block_cpu_ms": 1.0,
        "max_noise": 1e6, "gpu_time": False,
        "timing_cpu_s": 0.0, "timing_cuda_s": 0.0, "graph_timeout_s": 30.0, "task_timeout_s": 60.0,
    }  # fmt: skip
    if not in_full:
        quick |= {"unseen_shapes": 0, "unseen_dtypes": 0, "disabled_layers": ("source",)}
    return load_protocol("strict", **quick | overrides)


def fault_task() -> Task:
    """relu(a + b) * c on 64 x 256 float32 elements."""
    return make_task("faults", {})


def fault_pass(before: str = "", *, device: str = "cpu", kernel: str | None = None) -> Candidate:
    """The right pass for fault_task() with lines put before its launch, or with another kernel and launch."""
    kernel = kernel or (CUDA_KERNEL if device.startswith("cuda") else CPU_KERNEL)
    body = "\n".join(f"    {line}" for line in before.strip().splitlines())
    source = f"{kernel}{_WRAPPER.format(before=body)}{_RULE}"
    return Candidate({"Fault.py": source, MANIFEST_FILE: json.dumps(["Fault"])})


@dataclass(frozen=True)
class Fault:
    """One way of breaking a process."""

    name: str
    body: str
    """Lines that run before the kernel is launched; what they return is the pass's result."""
    outcomes: frozenset[Outcome]
    """What it may end in."""
    says: str = ""
    """Part of the message."""
    graph_timeout_s: float = 30.0
    max_memory_share: float = 0.75
    cuda_kernel: str | None = None
    """In place of the right Triton kernel (and its launch)."""

    def candidate(self, device: str = "cpu") -> Candidate:
        return fault_pass(self.body, device=device, kernel=self.cuda_kernel)
