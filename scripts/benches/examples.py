"""The repository's example passes and the tasks that they are written for: what the measurements time."""

from __future__ import annotations

from pathlib import Path

from eval_harness.candidate import Candidate
from eval_harness.errors import UserError

EXAMPLES_DIR = Path(__file__).resolve().parents[2] / "examples"
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


def load_example(name: str) -> Candidate:
    """Raises UserError outside a checkout."""
    path = EXAMPLES_DIR / name / "pass_dir"
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; run in a checkout of the repository")
    return Candidate.from_dir(path)
