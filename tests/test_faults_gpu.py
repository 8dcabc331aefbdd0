"""Faults on a CUDA device: each has its outcome, its memory is freed, and the next honest evaluation is right."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from eval_harness.executor import LocalExecutor  # noqa: E402
from eval_harness.process_tree import children, descendants, is_running  # noqa: E402
from eval_harness.verdict import GraphVerdict, Outcome  # noqa: E402
from scripts.benches.corpus import make_task  # noqa: E402
from scripts.benches.fault_passes import Fault, fault_pass, fault_protocol, fault_task  # noqa: E402
from scripts.benches.faults import CUDA_FAULTS, FAULTS  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LEAVE_S = 15.0
FREE_SLACK = 64 << 20
ON_BOTH = ("endless-loop", "exits", "segfault", "system-exit", "huge-prints", "daemon", "memory-file", "endless-frame")
"""Faults of CPU that a CUDA context could make worse."""
LARGE = {
    "graphs": [
        {
            "body": ["tmp_0 = in_0 + in_1", "tmp_1 = torch.relu(tmp_0)", "tmp_2 = tmp_1 * in_2", "return (tmp_2,)"],
            "inputs": {"in_0": "float32[65536, 1024]", "in_1": "float32[1024]", "in_2": "float32[65536, 1024]"},
        }
    ]
}
HOG = """
launch(x, bias, scale, out := torch.empty_like(x))
held = fused.__dict__.setdefault('held', [])
for size in (1 << 30, 1 << 24):
    try:
        while True:
            held.append(torch.empty(size, dtype=torch.uint8, device=x.device))
    except RuntimeError:
        pass
return out
"""


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor("cuda:0") as running:
        assert evaluate(running, fault_pass(device="cuda"), fault_protocol(in_full=True)).outcome is Outcome.CORRECT
        yield running


@pytest.fixture(scope="module")
def free_bytes(executor: LocalExecutor) -> int:
    """Free memory of the device while no worker runs; this process's own context is there from now on."""
    torch.cuda.mem_get_info()
    wait_for_workers(executor)
    time.sleep(1.0)
    return torch.cuda.mem_get_info()[0]


def evaluate(executor: LocalExecutor, candidate, protocol, task=None) -> GraphVerdict:
    (graph,) = executor.submit(candidate, task or fault_task(), protocol=protocol, seed=5).result(timeout=400).graphs
    return graph


def wait_for_workers(executor: LocalExecutor) -> None:
    (zygote,) = children(executor._judges[0]._process.pid)
    deadline = time.monotonic() + LEAVE_S
    while left := [pid for pid in descendants(zygote) if is_running(pid)]:
        assert time.monotonic() < deadline, f"left running: {left}"
        time.sleep(0.05)


def assert_free(executor: LocalExecutor, free_bytes: int) -> None:
    wait_for_workers(executor)
    deadline = time.monotonic() + LEAVE_S
    while torch.cuda.mem_get_info()[0] < free_bytes - FREE_SLACK:
        assert time.monotonic() < deadline, f"{(free_bytes - torch.cuda.mem_get_info()[0]) >> 20} MiB are not free"
        time.sleep(0.1)


@pytest.mark.parametrize(
    "fault", [*CUDA_FAULTS, *(fault for fault in FAULTS if fault.name in ON_BOTH)], ids=lambda fault: fault.name
)
def test_a_fault_has_its_outcome_and_leaves_nothing(executor: LocalExecutor, free_bytes: int, fault: Fault) -> None:
    judge_pid = executor._judges[0]._process.pid
    protocol = fault_protocol(graph_timeout_s=max(fault.graph_timeout_s, 8.0), max_memory_share=fault.max_memory_share)
    graph = evaluate(executor, fault.candidate("cuda"), protocol)
    assert graph.outcome in fault.outcomes, graph.message
    assert fault.says in graph.message
    assert_free(executor, free_bytes)
    after = evaluate(executor, fault_pass(device="cuda"), fault_protocol())
    assert after.outcome is Outcome.CORRECT, after.message
    assert executor._judges[0]._process.pid == judge_pid, "a candidate cost us the judge"


def test_eager_without_memory_is_the_fault_of_the_pass_that_holds_it(executor: LocalExecutor, free_bytes: int) -> None:
    """The candidate's own call succeeds; then eager finds no memory, and does once the candidate is gone."""
    graph = evaluate(executor, fault_pass(HOG, device="cuda"), fault_protocol(), make_task("large", LARGE))
    assert graph.outcome is Outcome.OUT_OF_MEMORY, graph.message
    assert "eager works alone" in graph.message
    assert_free(executor, free_bytes)


def test_after_a_fault_the_other_graphs_find_a_context_without_error(executor: LocalExecutor) -> None:
    """A CUDA error stays with its process: the second graph must be judged in a fresh one."""
    body = LARGE["graphs"][0]["body"]
    small = {"in_0": "float32[33, 64]", "in_1": "float32[64]", "in_2": "float32[33, 64]"}
    other = {"in_0": "float32[64, 64]", "in_1": "float32[64]", "in_2": "float32[64, 64]"}
    task = make_task("two", {"graphs": [{"body": body, "inputs": small}, {"body": body, "inputs": other}]})
    crash = "if x.shape[0] == 33:\n    kernel[(1,)](x, bias, scale, x, 1 << 30, 1, BLOCK=512)\n" + (
        "    kernel[(1 << 20,)](x, bias, scale, x, 1 << 30, 1, BLOCK=512)"
    )
    verdict = executor.submit(fault_pass(crash, device="cuda"), task, protocol=fault_protocol(), seed=5).result(400)
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.RUNTIME_ERROR, Outcome.CORRECT]
