"""The honest passes for a GPU through whole evaluations: CORRECT on every graph, and no layer raises an alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from scripts.benches.corpus import HONEST_FILE, load_corpus  # noqa: E402
from tests.helpers import SHORT_CLOCK  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

ON_GPU = [entry for entry in load_corpus(Path(__file__).parent / "honest", HONEST_FILE) if entry.runs_on("cuda")]
SHORT = {"num_draws": 3, **SHORT_CLOCK}
# a CUDA extension compiles for a minute or two
PROTOCOL = load_protocol("strict", **SHORT, graph_timeout_s=300)


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor("cuda:0") as running:
        yield running


@pytest.mark.parametrize("entry", ON_GPU, ids=[entry.name for entry in ON_GPU])
def test_an_honest_pass_is_correct(executor, entry):
    verdict = executor.submit(entry.candidate, entry.task, protocol=PROTOCOL, seed=3).result(timeout=900)
    assert verdict.all_violations == []
    assert [(graph.outcome, graph.message) for graph in verdict.graphs if graph.outcome != "CORRECT"] == []
