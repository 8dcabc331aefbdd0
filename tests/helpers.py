"""Small graphs, tasks and pass folders that several tests use. Not a test."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from scripts.benches import corpus

SHORT_CLOCK: dict[str, Any] = {
    "num_clusters": 2,
    "pairs_per_cluster": 2,
    "timing_cpu_s": 0.0,
    "timing_cuda_s": 0.0,
    "block_ms": 2.0,
    "block_cpu_ms": 2.0,
    "max_noise": 1e3,
}
"""Protocol overrides for tests that need a timing and no precision."""
ADD_RELU_MUL = """
        tmp_0 = in_0 + in_1
        tmp_1 = torch.relu(tmp_0)
        tmp_2 = tmp_1 * in_2
        return (tmp_2,)
"""
ADD_LAYER_NORM = """
        tmp_0 = in_2 + in_3
        tmp_1 = torch.nn.functional.layer_norm(tmp_0, (128,), in_1, in_0, 1e-05)
        return (tmp_0, tmp_1)
"""


def make_graph(name: str, body: str, specs: Mapping[str, tuple[Sequence[int], str]], *, std: float = 1.5) -> Graph:
    """A graph in PassNet's format. specs: argument -> (shape, dtype such as "float32"); an int is 0..9."""
    inputs = {argument: f"{dtype}{list(shape)}" for argument, (shape, dtype) in specs.items()}
    lines = textwrap.dedent(body).strip("\n").splitlines()
    return corpus.make_graph(name, body=lines, inputs=inputs, statistics=dict.fromkeys(specs, (0.1, std)))


def add_relu_mul(name: str = "add_relu_mul", *, rows: int = 64, columns: int = 256, dtype: str = "float32") -> Graph:
    shape = [rows, columns]
    return make_graph(
        name, ADD_RELU_MUL, {"in_0": (shape, dtype), "in_1": ([columns], dtype), "in_2": (shape, dtype)}
    )


def add_layer_norm(name: str = "add_layer_norm", *, rows: int = 96, dtype: str = "float32") -> Graph:
    rows_shape = [rows, 128]
    specs = {"in_0": ([128], dtype), "in_1": ([128], dtype), "in_2": (rows_shape, dtype), "in_3": (rows_shape, dtype)}
    return make_graph(name, ADD_LAYER_NORM, specs)


def make_task(*graphs: Graph, task_id: str = "made") -> Task:
    return Task(task_id=task_id, graphs=graphs)


HEADER = "import numba\nimport numpy as np\nimport torch\n"
ADD_RELU_MUL_KERNEL = """

@numba.njit(parallel=False)
def _kernel(a, b, c, o):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s = a[i, j] + b[j]
            o[i, j] = max(s, np.float32(0.0)) * c[i, j]
"""
ADD_RELU_MUL_RULE = """

def pattern(in_0, in_1, in_2):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.relu(tmp_0)
    return tmp_1 * in_2


def replacement_args(in_0, in_1, in_2):
    return (in_0, in_1, in_2)


def replacement_func():
    return fused
"""
ADD_RELU_MUL_WRAPPER = """

@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    _kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())
    return out
"""


def one_rule(source: str, *, name: str = "Fuse", **more_files: str) -> Candidate:
    """A pass folder with one rule file; more_files: stem -> text."""
    files = {f"{name}.py": source, MANIFEST_FILE: json.dumps([name])}
    return Candidate(files | {f"{stem}.py": text for stem, text in more_files.items()})


def add_relu_mul_pass(*, wrapper: str = ADD_RELU_MUL_WRAPPER, kernel: str = ADD_RELU_MUL_KERNEL) -> Candidate:
    """The honest float32 pass for add_relu_mul, or one with its wrapper or kernel replaced."""
    return one_rule(HEADER + kernel + wrapper + ADD_RELU_MUL_RULE)


ADD_LAYER_NORM_PASS = (
    HEADER
    + """import math


@numba.njit
def _kernel(a, r, w, b, total, norm):
    rows, d = a.shape
    for i in range(rows):
        mean = 0.0
        for j in range(d):
            s = a[i, j] + r[i, j]
            total[i, j] = s
            mean += s
        mean /= d
        var = 0.0
        for j in range(d):
            t = total[i, j] - mean
            var += t * t
        inv = 1.0 / math.sqrt(var / d + 1e-5)
        for j in range(d):
            norm[i, j] = (total[i, j] - mean) * inv * w[j] + b[j]


@torch.fx.wrap
def fused(bias, weight, x, residual):
    total = torch.empty_like(x)
    norm = torch.empty_like(x)
    _kernel(x.numpy(), residual.numpy(), weight.numpy(), bias.numpy(), total.numpy(), norm.numpy())
    return total, norm


def pattern(in_0, in_1, in_2, in_3):
    tmp_0 = in_2 + in_3
    tmp_1 = torch.nn.functional.layer_norm(tmp_0, (128,), in_1, in_0, 1e-05)
    return (tmp_0, tmp_1)


def replacement_args(in_0, in_1, in_2, in_3):
    return (in_0, in_1, in_2, in_3)


def replacement_func():
    return fused
"""
)
