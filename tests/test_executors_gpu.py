"""Two judges on one GPU, and "cuda" as every GPU that is there: run on a machine with one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from data.passbench import load_task  # noqa: E402
from eval_harness.executor import LocalExecutor, evaluate_all, expand_devices  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_cuda_is_every_visible_gpu():
    assert expand_devices("cuda") == [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def test_two_judges_share_a_gpu_and_keep_the_order():
    task = load_task("mini/sentence_masked_mean_pooling")
    short = load_protocol("reward", num_draws=1, num_clusters=2, pairs_per_cluster=2, max_noise=1000.0)
    with LocalExecutor("cuda:0", num_judges=2) as executor:
        verdicts = list(evaluate_all(executor, [("eager", task)] * 4, protocol=short))
        metrics = executor.metrics()
    assert {graph.outcome for verdict in verdicts for graph in verdict.graphs} == {Outcome.CORRECT}
    assert metrics.judges_started == 2 and metrics.complete == 4
    assert metrics.busy_s["cuda:0"] > 0
