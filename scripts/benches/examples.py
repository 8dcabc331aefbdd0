"""The repository's example passes and the tasks that they are written for: what the measurements time."""

from __future__ import annotations

from pathlib import Path

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from scripts.benches.corpus import DEFAULT_GRAPHS, make_task

_ROOT = Path(__file__).resolve().parents[2]
EXAMPLES_DIR, HONEST_DIR = _ROOT / "examples", _ROOT / "tests" / "honest"
EXAMPLES = {
    "cpu": {
        "window_layernorm_h1_numba": "mini/maskformer_window_layer_norm",
        "mask_pooling_h2_numba": "mini/sentence_masked_mean_pooling",
    },
    "cuda": {
        "window_layernorm_h1_triton": "mini/maskformer_window_layer_norm",
        "mask_pooling_h2_triton": "mini/sentence_masked_mean_pooling",
    },
}
"""Kind of device -> example -> task."""
LARGE_ROWS = {"cpu": (1024, 4096), "cuda": (32768, 65536)}
"""Rows of 1024 float32 at which memory decides, and no launch."""


def large_example(kind: str) -> tuple[str, Candidate, Task]:
    """The plain pass of tests/honest for relu(a + b) * c, and that graph at LARGE_ROWS.

    Raises UserError outside a checkout.
    """
    name = {"cpu": "numba_add_relu_mul", "cuda": "triton_add_relu_mul"}[kind]
    inputs = [
        {"in_0": f"float32[{n}, 1024]", "in_1": "float32[1024]", "in_2": f"float32[{n}, 1024]"}
        for n in LARGE_ROWS[kind]
    ]
    graphs = [
        {"name": f"rows_{n}", "body": DEFAULT_GRAPHS[0]["body"], "inputs": i}
        for n, i in zip(LARGE_ROWS[kind], inputs, strict=True)
    ]
    return name, _folder(HONEST_DIR / name), make_task(name, {"graphs": graphs})


def load_example(name: str) -> Candidate:
    """Raises UserError outside a checkout."""
    return _folder(EXAMPLES_DIR / name)


def _folder(example_dir: Path) -> Candidate:
    path = example_dir / "pass_dir"
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; run in a checkout of the repository")
    return Candidate.from_dir(path)
