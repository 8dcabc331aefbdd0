"""Whole evaluations through real processes on CPU: honest passes, and each way of failing with its outcome."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.graph import MalformedGraphError
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from eval_harness.process_tree import descendants, is_running
from eval_harness.verdict import Outcome
from tests.helpers import (
    ADD_LAYER_NORM_PASS,
    ADD_RELU_MUL_KERNEL,
    ADD_RELU_MUL_RULE,
    HEADER,
    SHORT_CLOCK,
    add_layer_norm,
    add_relu_mul,
    add_relu_mul_pass,
    make_task,
    one_rule,
)

ROOT = Path(__file__).resolve().parents[1]
QUICK = load_protocol("strict", num_draws=2, **SHORT_CLOCK)
"""Two rounds are no measurement: these tests are about outcomes, on machines that may be busy."""


def evaluate(executor, candidate, *graphs, protocol=QUICK):
    task = make_task(*(graphs or (add_relu_mul(),)))
    return executor.submit(candidate, task, protocol=protocol, seed=7).result(timeout=300)


def only(verdict):
    (graph,) = verdict.graphs
    return graph


def wrapper(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n{lines}\n"


def test_an_honest_pass_is_correct_with_a_speedup_and_full_coverage(executor):
    verdict = evaluate(executor, add_relu_mul_pass(), add_relu_mul(), add_relu_mul("wide", rows=33, columns=130))
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.CORRECT] * 2
    assert verdict.complete and verdict.as_score > 0.1
    for graph in verdict.graphs:
        assert graph.coverage == pytest.approx(1.0)
        assert graph.speedup_interval[0] <= graph.speedup <= graph.speedup_interval[1]
        assert graph.latency_us > 0 and graph.reference_latency_us > 0
    assert verdict.seeds["master"] == 7
    assert verdict.confinement


def test_two_outputs(executor):
    graph = only(evaluate(executor, one_rule(ADD_LAYER_NORM_PASS), add_layer_norm()))
    assert graph.outcome is Outcome.CORRECT, graph.message


def test_a_graph_no_rule_matches_says_which_node(executor):
    graph = only(evaluate(executor, one_rule(ADD_LAYER_NORM_PASS.replace("(128,)", "(96,)")), add_layer_norm()))
    assert graph.outcome is Outcome.NO_MATCH
    assert "96" in graph.message and "128" in graph.message


def test_wrong_values(executor):
    candidate = add_relu_mul_pass(kernel=ADD_RELU_MUL_KERNEL.replace("np.float32(0.0)", "np.float32(0.01)"))
    graph = only(evaluate(executor, candidate))
    assert graph.outcome is Outcome.WRONG_VALUES
    assert graph.first_correct_t is not None and graph.first_correct_t > -5
    assert graph.message


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("out = torch.empty(x.shape[1], x.shape[0])\nreturn out", Outcome.WRONG_SHAPE),
        ("return torch.empty(x.shape, dtype=torch.float64)", Outcome.WRONG_DTYPE),
        ("return torch.empty(x.shape[1], x.shape[0]).t()", Outcome.WRONG_STRIDE),
        ("return torch.empty_like(x)", Outcome.WRONG_VALUES),
        ("return torch.zeros_like(x)", Outcome.WRONG_VALUES),
        ("_kernel(x.numpy(), bias.numpy(), scale.numpy(), x.numpy())\nreturn x", Outcome.INPUT_MUTATED),
        ("raise ValueError('no such layout')", Outcome.RUNTIME_ERROR),
        ("out = np.empty(1 << 48)\nreturn torch.from_numpy(out)", Outcome.OUT_OF_MEMORY),
        ("return _kernel(x.shape, 1, 2, 3)", Outcome.COMPILE_ERROR),
        ("return x + bias", Outcome.VIOLATION),
    ],
)
def test_each_failure_has_its_outcome(executor, body, outcome):
    graph = only(evaluate(executor, add_relu_mul_pass(wrapper=wrapper(body))))
    assert graph.outcome is outcome, graph.message
    assert graph.message
    assert outcome is Outcome.WRONG_VALUES or graph.speedup is None


def test_a_hang_is_a_timeout_and_the_next_evaluation_goes_on(executor):
    slow = load_protocol("strict", num_draws=1, graph_timeout_s=6.0)
    hang = "while True:\n    pass"
    assert only(evaluate(executor, add_relu_mul_pass(wrapper=wrapper(hang)), protocol=slow)).outcome is Outcome.TIMEOUT
    assert only(evaluate(executor, add_relu_mul_pass())).outcome is Outcome.CORRECT


def test_a_crash_is_a_runtime_error_of_that_graph_only(executor):
    """An out-of-bounds write in a kernel takes the process down for one shape; the other graph is still judged."""
    kernel = """

@numba.njit
def _kernel(a, b, c, o):
    if a.shape[0] == 33:
        for i in range(1 << 40):
            o[0, i] = np.float32(1.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]
"""
    verdict = evaluate(executor, add_relu_mul_pass(kernel=kernel), add_relu_mul("crash", rows=33), add_relu_mul())
    crashed, fine = verdict.graphs
    assert crashed.outcome is Outcome.RUNTIME_ERROR and "SIGSEGV" in crashed.message
    assert fine.outcome is Outcome.CORRECT


def test_import_errors_and_syntax_errors_are_compile_errors_of_every_graph(executor):
    for source in ("import torch\ndef pattern(:\n", HEADER + "x = undefined_name\n" + ADD_RELU_MUL_RULE):
        graph = only(evaluate(executor, one_rule(source)))
        assert graph.outcome is Outcome.COMPILE_ERROR
        assert "Fuse.py" in graph.message


def test_a_violation_in_one_graph_holds_for_all(executor):
    body = "if x.shape[0] == 33:\n    return (x + bias) * scale\n"
    body += "out = torch.empty_like(x)\n_kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())\nreturn out"
    verdict = evaluate(executor, add_relu_mul_pass(wrapper=wrapper(body)), add_relu_mul(), add_relu_mul("b", rows=33))
    assert {graph.outcome for graph in verdict.graphs} == {Outcome.VIOLATION}
    assert verdict.as_score == pytest.approx(0.1)


def test_an_undefined_input_order_of_rules_and_several_functions(executor):
    """Two rules with different functions in one folder: upstream drops one at random."""
    second = HEADER + ADD_LAYER_NORM_PASS.removeprefix(HEADER)
    first = add_relu_mul_pass()
    files = dict(first.files) | {"Norm.py": second, "sorted_output_pass_rule_names.json": '["Fuse", "Norm"]'}
    verdict = evaluate(executor, type(first)(files), add_relu_mul(), add_layer_norm())
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.CORRECT] * 2


def test_eager_against_eager_is_near_one(executor):
    verdict = evaluate(executor, "eager", add_relu_mul(rows=256, columns=512), protocol=load_protocol("strict"))
    graph = only(verdict)
    assert graph.outcome is Outcome.CORRECT and graph.first_correct_t == -10
    assert 0.8 < graph.speedup < 1.25


@pytest.mark.slow
def test_passnet_protocol_runs_through_torch_compile(executor):
    graph = only(evaluate(executor, add_relu_mul_pass(), protocol=load_protocol("passnet")))
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert graph.speedup > 0 and graph.speedup_interval is None


def test_more_graphs_than_are_timed(executor):
    graphs = [add_relu_mul(f"g{rows}", rows=rows) for rows in (8, 16, 24, 32)]
    protocol = QUICK.model_copy(update={"max_timed_graphs": 2})
    verdict = evaluate(executor, add_relu_mul_pass(), *graphs, protocol=protocol)
    assert {graph.outcome for graph in verdict.graphs} == {Outcome.CORRECT}
    assert sum(graph.speedup is not None for graph in verdict.graphs) == 2
    assert verdict.as_score is not None


def test_no_process_is_left_behind():
    with LocalExecutor("cpu") as running:
        evaluate(running, add_relu_mul_pass())
        judge_pid = running._judges[0]._process.pid
        assert descendants(judge_pid)
        members = [judge_pid, *descendants(judge_pid)]
    assert not _alive_after(members, seconds=10)


def test_a_killed_supervisor_leaves_nothing_running(tmp_path):
    """Killed in the middle of an evaluation: the judge, the zygote and the workers all go."""
    script = (
        "import sys; from tests.test_evaluate import *\n"
        "running = LocalExecutor('cpu')\n"
        "body = 'while True:\\n    pass'\n"
        "running.submit(add_relu_mul_pass(wrapper=wrapper(body)), make_task(add_relu_mul()), protocol=QUICK)\n"
        "while not running._judges[0]._process: time.sleep(0.1)\n"
        "print('started', flush=True); time.sleep(600)\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert supervisor.stdout.readline() == "started\n"
    deadline = time.monotonic() + 60
    while len(descendants(supervisor.pid)) < 5 and time.monotonic() < deadline:
        time.sleep(0.2)
    members = descendants(supervisor.pid)
    assert len(members) >= 5
    supervisor.kill()
    supervisor.wait()
    assert not _alive_after(members, seconds=15)


def _alive_after(pids: list[int], *, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while True:
        alive = [pid for pid in pids if is_running(pid)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.1)


def test_a_graph_that_may_not_run_is_the_users_mistake_and_nobodys_score(executor):
    graph = add_relu_mul()
    files = dict(graph.files) | {"model.py": graph.model_source.replace("torch.relu(tmp_0)", "torch.load('x')")}
    with pytest.raises(MalformedGraphError, match=r"model\.py"):
        evaluate(executor, add_relu_mul_pass(), type(graph)("forbidden", files))


def test_an_error_that_passes_through_ends_what_runs_at_once():
    hang = add_relu_mul_pass(wrapper=wrapper("while True:\n    pass"))
    started = 0.0
    with pytest.raises(KeyboardInterrupt), LocalExecutor("cpu") as running:
        evaluate(running, add_relu_mul_pass())
        running.submit(hang, make_task(add_relu_mul()), protocol=QUICK)
        time.sleep(2.0)
        started = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - started < 30.0
