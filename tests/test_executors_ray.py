"""Judges on a local Ray cluster and behind HTTP on Ray Serve: real actors, real judges, one killed in the middle.

One cluster for the whole file; `make test` installs Ray for it.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import CancelledError

import pytest

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

from data.graph import MalformedGraphError  # noqa: E402
from eval_harness.errors import UserError  # noqa: E402
from eval_harness.executor import LocalExecutor, evaluate_all  # noqa: E402
from eval_harness.executor_config import RayExecutorConfig, open_executor  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402
from tests.helpers import (  # noqa: E402
    ADD_RELU_MUL_KERNEL,
    ADD_RELU_MUL_WRAPPER,
    SHORT_CLOCK,
    add_relu_mul,
    add_relu_mul_pass,
    make_task,
)

pytestmark = pytest.mark.slow

QUICK = load_protocol("strict", num_draws=2, **SHORT_CLOCK)
SHORT = QUICK.model_copy(update={"graph_timeout_s": 8.0})
PORT = 18473
HANG = "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    while True:\n        pass\n"
WRONG = ADD_RELU_MUL_KERNEL.replace("np.float32(0.0)", "np.float32(0.01)")
CANDIDATES = {
    "fine": (add_relu_mul_pass(), Outcome.CORRECT),
    "wrong": (add_relu_mul_pass(kernel=WRONG), Outcome.WRONG_VALUES),
    "cheat": (
        add_relu_mul_pass(wrapper=ADD_RELU_MUL_WRAPPER.replace("torch.empty_like(x)", "x + 0")),
        Outcome.VIOLATION,
    ),
}


@pytest.fixture(scope="module")
def cluster():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def executor(cluster):
    config = RayExecutorConfig(kind="ray", num_actors=2)
    with open_executor(config, device="cpu") as running:
        running.start_all()
        yield running
        assert ray.is_initialized()
    assert ray.is_initialized(), "an executor leaves a cluster only if it entered it"


def wait_until(condition, *, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def figures(verdict):
    """What does not depend on the clock."""
    skipped = {"speedup", "speedup_interval", "gpu_speedup", "latency_us", "reference_latency_us", "coverage"}
    return [graph.model_dump(exclude=skipped) for graph in verdict.graphs]


def test_the_same_verdicts_as_local_in_the_order_of_the_requests(executor):
    task = make_task(add_relu_mul())
    futures = {
        name: executor.submit(candidate, task, protocol=QUICK, seed=7) for name, (candidate, _) in CANDIDATES.items()
    }
    verdicts = {name: future.result(240) for name, future in futures.items()}
    for name, (candidate, outcome) in CANDIDATES.items():
        assert verdicts[name].graphs[0].outcome is outcome, verdicts[name].graphs[0].message
        assert verdicts[name].candidate_hash == candidate.candidate_hash
    with LocalExecutor("cpu") as local:
        for name, (candidate, _) in CANDIDATES.items():
            verdict = local.submit(candidate, task, protocol=QUICK, seed=7).result(240)
            assert figures(verdict) == figures(verdicts[name])
            assert verdict.seeds == verdicts[name].seeds
    requests = [(candidate, make_task(add_relu_mul(), task_id=name)) for name, (candidate, _) in CANDIDATES.items()]
    assert [verdict.task_id for verdict in evaluate_all(executor, requests, protocol=QUICK)] == list(CANDIDATES)


def test_an_actor_killed_at_work_is_replaced_and_its_evaluation_done_again(executor):
    task = make_task(add_relu_mul())
    before = executor.metrics()
    hang = executor.submit(add_relu_mul_pass(wrapper=HANG), task, protocol=SHORT, seed=7)
    wait_until(lambda: executor.metrics().num_running == 1)
    at_work = next(slot.judge for slot in executor._slots if slot.job is not None)
    pid = at_work.pid
    fine = executor.submit(add_relu_mul_pass(), task, protocol=QUICK, seed=7)
    time.sleep(1.0)
    os.kill(pid, signal.SIGKILL)
    assert fine.result(240).graphs[0].outcome is Outcome.CORRECT
    verdict = hang.result(240)
    # judged by the second try: the candidate did not bring that judge down
    assert verdict.graphs[0].outcome is Outcome.TIMEOUT
    assert verdict.seeds["master"] == 8
    after = executor.metrics()
    assert (after.retried - before.retried, after.complete - before.complete) == (1, 2)
    assert after.failed == before.failed
    assert pid not in [judge.pid for judge in executor._judges]


def test_an_actor_that_died_idle_costs_no_try(executor):
    before = executor.metrics()
    for judge in executor._judges:
        if judge.pid:
            os.kill(judge.pid, signal.SIGKILL)
    verdict = executor.submit(add_relu_mul_pass(), make_task(add_relu_mul()), protocol=QUICK, seed=7).result(240)
    assert verdict.graphs[0].outcome is Outcome.CORRECT and verdict.seeds["master"] == 7
    assert executor.metrics().retried == before.retried


def test_cancelling_what_runs_frees_the_actor(executor):
    task = make_task(add_relu_mul())
    hang = executor.submit(add_relu_mul_pass(wrapper=HANG), task, protocol=QUICK)
    wait_until(lambda: executor.metrics().num_running == 1)
    time.sleep(0.5)
    assert executor.cancel_running(hang)
    with pytest.raises(CancelledError):
        hang.result(30)
    verdict = executor.submit(CANDIDATES["cheat"][0], task, protocol=QUICK).result(240)
    assert verdict.graphs[0].outcome is Outcome.VIOLATION


def test_a_malformed_task_is_the_users_mistake_on_the_cluster_too(executor):
    graph = add_relu_mul()
    files = dict(graph.files) | {"model.py": graph.model_source.replace("torch.relu(tmp_0)", "torch.load('x')")}
    with pytest.raises(MalformedGraphError, match=r"model\.py"):
        executor.submit(add_relu_mul_pass(), make_task(type(graph)("bad", files)), protocol=QUICK).result(240)


def test_a_node_without_passwright_is_told_with_the_cure(cluster, tmp_path):
    package = tmp_path / "eval_harness"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not on this node')\n")
    runtime_env = {"env_vars": {"PYTHONPATH": str(tmp_path)}}
    config = RayExecutorConfig(kind="ray", num_actors=1, num_cpus=0, runtime_env=runtime_env)
    with open_executor(config, device="cpu") as broken:
        future = broken.submit(add_relu_mul_pass(), make_task(add_relu_mul()), protocol=QUICK)
        with pytest.raises(UserError, match=r"cannot import passwright.*runtime_env"):
            future.result(120)


def test_no_gpu_on_the_cluster_and_no_cluster_are_the_users_mistakes(cluster):
    with pytest.raises(UserError, match="0 GPUs"):
        open_executor(RayExecutorConfig(kind="ray"), device="cuda")
