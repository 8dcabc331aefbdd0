"""What a model is told on a CUDA device: the prompt's Triton example is correct, and kernels a call are counted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.feedback import render_feedback  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402
from tests.helpers import make_graph, make_task  # noqa: E402
from tests.test_prompts import example_pass  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("protocol", ["reward", "strict"])
def test_the_cuda_example_is_a_correct_pass_of_one_kernel(protocol: str) -> None:
    graphs = [
        make_graph(f"add_relu_{dtype}", "return (torch.relu(in_0 + in_1),)", dict.fromkeys(("in_0", "in_1"), shape))
        for dtype in ("float32", "float16", "bfloat16")
        for shape in [([257, 1023], dtype)]
    ]
    with LocalExecutor("cuda") as executor:
        future = executor.submit(example_pass("cuda"), make_task(*graphs), protocol=load_protocol(protocol), seed=3)
        verdict = future.result(timeout=300)
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.CORRECT] * 3, verdict.graphs[0].message
    assert [(graph.num_kernels, graph.reference_num_kernels) for graph in verdict.graphs] == [(1.0, 2.0)] * 3
    assert "kernels 1 against 2" in render_feedback(verdict)
