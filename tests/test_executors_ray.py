"""Judges on a local Ray cluster and behind HTTP on Ray Serve: real actors, real judges, one killed in the middle.

One cluster for the whole file; `make test` installs Ray for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import CancelledError

import pytest

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

from data.graph import MalformedGraphError  # noqa: E402
from data.passbench import load_tasks  # noqa: E402
from eval_harness.errors import UserError  # noqa: E402
from eval_harness.executor import evaluate_all  # noqa: E402
from eval_harness.executor_config import HttpExecutorConfig, RayExecutorConfig, open_executor  # noqa: E402
from eval_harness.http_evaluator import HttpEvaluator  # noqa: E402
from eval_harness.presets import load_protocol  # noqa: E402
from eval_harness.ray_actor import judge_actor_class  # noqa: E402
from eval_harness.verdict import Outcome  # noqa: E402
from eval_harness.wire import EvaluationRequest, TaskRecord  # noqa: E402
from tests.helpers import (  # noqa: E402
    ADD_RELU_MUL_KERNEL,
    ADD_RELU_MUL_WRAPPER,
    SHORT_CLOCK,
    add_relu_mul,
    add_relu_mul_pass,
    make_task,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

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
def on_ray(cluster):
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


def test_the_same_verdicts_as_local_in_the_order_of_the_requests(on_ray, executor):
    task = make_task(add_relu_mul())
    futures = {
        name: on_ray.submit(candidate, task, protocol=QUICK, seed=7) for name, (candidate, _) in CANDIDATES.items()
    }
    verdicts = {name: future.result(240) for name, future in futures.items()}
    for name, (candidate, outcome) in CANDIDATES.items():
        assert verdicts[name].graphs[0].outcome is outcome, verdicts[name].graphs[0].message
        assert verdicts[name].candidate_hash == candidate.candidate_hash
    for name, (candidate, _) in CANDIDATES.items():
        verdict = executor.submit(candidate, task, protocol=QUICK, seed=7).result(240)
        assert figures(verdict) == figures(verdicts[name])
        assert verdict.seeds == verdicts[name].seeds
    requests = [(candidate, make_task(add_relu_mul(), task_id=name)) for name, (candidate, _) in CANDIDATES.items()]
    assert [verdict.task_id for verdict in evaluate_all(on_ray, requests, protocol=QUICK)] == list(CANDIDATES)


def test_an_actor_killed_at_work_is_replaced_and_its_evaluation_done_again(on_ray):
    task = make_task(add_relu_mul())
    before = on_ray.metrics()
    hang = on_ray.submit(add_relu_mul_pass(wrapper=HANG), task, protocol=SHORT, seed=7)
    wait_until(lambda: on_ray.metrics().num_running == 1)
    at_work = next(slot.judge for slot in on_ray._slots if slot.job is not None)
    pid = at_work.pid
    fine = on_ray.submit(add_relu_mul_pass(), task, protocol=QUICK, seed=7)
    time.sleep(1.0)
    os.kill(pid, signal.SIGKILL)
    assert fine.result(240).graphs[0].outcome is Outcome.CORRECT
    verdict = hang.result(240)
    # judged by the second try: the candidate did not bring that judge down
    assert verdict.graphs[0].outcome is Outcome.TIMEOUT
    assert verdict.seeds["master"] == 8
    after = on_ray.metrics()
    assert (after.retried - before.retried, after.complete - before.complete) == (1, 2)
    assert after.failed == before.failed
    assert pid not in [judge.pid for judge in on_ray._judges]


def test_an_actor_that_died_idle_costs_no_try(on_ray):
    before = on_ray.metrics()
    for judge in on_ray._judges:
        if judge.pid:
            os.kill(judge.pid, signal.SIGKILL)
    verdict = on_ray.submit(add_relu_mul_pass(), make_task(add_relu_mul()), protocol=QUICK, seed=7).result(240)
    assert verdict.graphs[0].outcome is Outcome.CORRECT and verdict.seeds["master"] == 7
    assert on_ray.metrics().retried == before.retried


def test_cancelling_what_runs_frees_the_actor(on_ray):
    task = make_task(add_relu_mul())
    hang = on_ray.submit(add_relu_mul_pass(wrapper=HANG), task, protocol=QUICK)
    wait_until(lambda: on_ray.metrics().num_running == 1)
    time.sleep(0.5)
    assert on_ray.cancel_running(hang)
    with pytest.raises(CancelledError):
        hang.result(30)
    verdict = on_ray.submit(CANDIDATES["cheat"][0], task, protocol=QUICK).result(240)
    assert verdict.graphs[0].outcome is Outcome.VIOLATION


def test_a_malformed_task_is_the_users_mistake_on_the_cluster_too(on_ray):
    graph = add_relu_mul()
    files = dict(graph.files) | {"model.py": graph.model_source.replace("torch.relu(tmp_0)", "torch.load('x')")}
    with pytest.raises(MalformedGraphError, match=r"model\.py"):
        on_ray.submit(add_relu_mul_pass(), make_task(type(graph)("bad", files)), protocol=QUICK).result(240)


def test_a_node_without_passwright_says_so_with_the_cure(tmp_path):
    """The actor's class travels by value: a worker can load it and tell what is missing."""
    (tmp_path / "actor.pickle").write_bytes(ray.cloudpickle.dumps(judge_actor_class()))
    code = "import pickle, sys; sys.modules['eval_harness'] = None\n"
    code += "print(pickle.load(open('actor.pickle', 'rb'))('cpu').start(1))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "'kind': 'UserError'" in done.stdout
    assert "cannot import passwright" in done.stdout and "runtime_env" in done.stdout


def test_no_gpu_on_the_cluster_and_no_cluster_are_the_users_mistakes(cluster):
    with pytest.raises(UserError, match="0 GPUs"):
        open_executor(RayExecutorConfig(kind="ray"), device="cuda")


@pytest.fixture(scope="module")
def service(cluster):
    from ray import serve

    from eval_harness.serving import app

    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    arguments = {"device": "cpu", "num_judges": "1", "num_cpus": "0.5", "max_waiting": "1", "max_body_mb": "0.25"}
    serve.run(app(arguments), name="judges")
    yield f"http://127.0.0.1:{PORT}"
    serve.shutdown()


def post(url, body):
    """Status, headers and answer of a request written by hand."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/evaluate", data), timeout=240) as response:
            return response.status, response.headers, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.load(error)


def test_an_evaluator_over_http_is_an_evaluator(service):
    with open_executor(HttpExecutorConfig(kind="http", address=service), device="ignored") as client:
        assert client.device == "cpu"
        candidate, outcome = CANDIDATES["wrong"]
        verdict = client.submit(candidate, make_task(add_relu_mul()), protocol=QUICK, seed=7).result(240)
        assert verdict.graphs[0].outcome is outcome
        assert verdict.candidate_hash == candidate.candidate_hash and verdict.seeds["master"] == 7
        graph = add_relu_mul()
        files = dict(graph.files) | {"model.py": graph.model_source.replace("torch.relu(tmp_0)", "torch.load('x')")}
        with pytest.raises(MalformedGraphError, match=r"model\.py"):
            client.submit(candidate, make_task(type(graph)("bad", files)), protocol=QUICK).result(240)
        assert client.health()["status"] == "ok" and client.health()["num_alive"] == 1


def test_a_bundled_task_is_named_by_reference(service):
    files = dict(CANDIDATES["cheat"][0].files)
    task_id = load_tasks("mini")[0].task_id
    status, _, answer = post(service, {"candidate": files, "task": f"mini/{task_id}", "protocol": "reward"})
    assert status == 200, answer
    assert answer["verdict"]["task_id"] == task_id and answer["verdict"]["violations"]


def test_mistakes_in_a_request_are_told_and_nothing_is_queued(service):
    before = HttpEvaluator(service).health()
    files, task = dict(CANDIDATES["fine"][0].files), TaskRecord.of(make_task(add_relu_mul())).model_dump()
    request = {"candidate": files, "task": task}
    cases = [
        (b"{not json", 400, "not JSON"),
        (b" " * 300_000, 413, "max_body_mb"),
        ({"task": task}, 422, "candidate"),
        (request | {"candidate": {"a.py": ""}}, 422, "sorted_output_pass_rule_names.json"),
        (request | {"task": "mini/none_such"}, 422, "none_such"),
        (request | {"task": "/etc/x.parquet"}, 422, "bundled"),
        (request | {"protocol": "lax"}, 422, "lax"),
        (request | {"overrides": {"num_draw": 1}}, 422, "num_draw"),
        (request | {"overrides": {"task_timeout_s": 1e6}}, 422, "task_timeout_s"),
        (request | {"colour": 1}, 422, "colour"),
        (request | {"wire_version": 9}, 422, "wire_version 9"),
    ]
    for body, status, told in cases:
        got, _, answer = post(service, body)
        assert (got, answer["kind"]) == (status, "UserError"), answer
        assert told in answer["error"]
    after = HttpEvaluator(service).health()
    assert after["queue_depth"] == 0 and after["last_error"] == before["last_error"]


def test_a_full_queue_is_503_and_a_client_that_goes_frees_its_judge(service):
    task, hang = make_task(add_relu_mul()), add_relu_mul_pass(wrapper=HANG)
    client = HttpEvaluator(service)
    client.submit(hang, task, protocol=QUICK)
    wait_until(lambda: client.health()["num_running"] == 1)
    client.submit(hang, task, protocol=QUICK)
    wait_until(lambda: client.health()["queue_depth"] == 1)
    request = EvaluationRequest.of(CANDIDATES["cheat"][0], task, QUICK, None).model_dump(mode="json")
    status, headers, answer = post(service, request)
    assert status == 503 and int(headers["Retry-After"]) >= 1
    assert answer["kind"] == "HarnessError" and "wait" in answer["error"]
    patient = HttpEvaluator(service).submit(CANDIDATES["cheat"][0], task, protocol=QUICK)
    client.close()
    assert patient.result(120).graphs[0].outcome is Outcome.VIOLATION
    with urllib.request.urlopen(f"{service}/metrics", timeout=30) as response:
        text = response.read().decode()
    for line in ('passwright_requests_total{status="422"}', 'passwright_evaluations_total{ended="cancelled"}'):
        assert line in text
    assert 'passwright_evaluation_seconds_bucket{le="1.0"}' in text and "passwright_queue_depth 0.0" in text
