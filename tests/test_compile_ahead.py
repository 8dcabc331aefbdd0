"""What the candidate is asked to compile before the device is waited for. Compiling itself: test_evaluate_gpu.py."""

from __future__ import annotations

from eval_harness.judge.ahead import replacement_calls
from eval_harness.rewriting import rewrite
from tests.graph_helpers import F32, make_rule, traced

ADD_RELU = """
def pattern(x, y):
    return torch.relu(x + y)
"""


def test_a_replacement_is_described_by_its_tensors_layouts():
    graph = traced("tmp_0 = a.t()\nreturn (torch.relu(tmp_0 + b),)", a=((4, 8), F32), b=((8, 4), F32))
    (call,) = replacement_calls(rewrite(graph, [make_rule(ADD_RELU)]).ir, graph)
    assert call == {
        "rule": "Rule",
        "args": [
            {"tensor": {"shape": [8, 4], "stride": [1, 8], "dtype": "torch.float32"}},
            {"tensor": {"shape": [8, 4], "stride": [4, 1], "dtype": "torch.float32"}},
        ],
    }


def test_a_call_on_what_another_replacement_returns_is_left_out():
    body = "tmp_0 = torch.relu(a + b)\nreturn (torch.relu(tmp_0 + b),)"
    graph = traced(body, a=((4, 8), F32), b=((4, 8), F32))
    done = rewrite(graph, [make_rule(ADD_RELU)])
    assert done.num_matches == 2
    assert len(replacement_calls(done.ir, graph)) == 1
