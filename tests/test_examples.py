"""The paper's two showcase passes (PassNet, cases H.1 and H.2) in numba: CORRECT on every graph of their tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.passbench import load_task
from eval_harness.candidate import Candidate
from eval_harness.presets import load_protocol
from eval_harness.verdict import Outcome
from tests.helpers import SHORT_CLOCK

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROTOCOL = load_protocol("strict", num_draws=2, **SHORT_CLOCK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "task", "num_outputs"),
    [
        ("mask_pooling_h2_numba", "mini/sentence_masked_mean_pooling", 1),
        ("window_layernorm_h1_numba", "mini/maskformer_window_layer_norm", 2),
    ],
)
def test_a_showcase_pass_is_correct_on_every_graph(executor, folder, task, num_outputs):
    loaded = load_task(task)
    assert loaded.graphs[0].model_source.rstrip().rsplit("return", 1)[1].count("tmp_") == num_outputs
    candidate = Candidate.from_dir(EXAMPLES / folder / "pass_dir")
    verdict = executor.submit(candidate, loaded, protocol=PROTOCOL, seed=5).result(timeout=300)
    assert {graph.outcome for graph in verdict.graphs} == {Outcome.CORRECT}, [g.message for g in verdict.graphs]
    assert all(graph.coverage == pytest.approx(1.0) for graph in verdict.graphs)
