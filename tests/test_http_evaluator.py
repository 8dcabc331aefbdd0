"""HttpEvaluator against a service whose answers a test writes: what is tried again, what is told, what is cancelled.

The service itself, with real evaluations, is in test_executors_ray.py.
"""

from __future__ import annotations

import argparse
import http.server
import json
import threading
import time
from concurrent.futures import CancelledError

import pytest

from eval_harness import http_evaluator
from eval_harness.errors import HarnessError, ReferenceFailedError, UserError
from eval_harness.executor_config import HttpExecutorConfig, LocalExecutorConfig, RayExecutorConfig
from eval_harness.http_evaluator import HttpEvaluator
from eval_harness.presets import load_protocol
from eval_harness.wire import WIRE_VERSION, EvaluationRequest, answer_of, verdict_of
from scripts.arguments import executor_config
from scripts.config_loading import load_config
from tests.canned_evaluator import canned_verdict, make_task
from tests.helpers import one_rule
from trajectories.collect_config import CollectConfig

STRICT = load_protocol("strict")
PASS = one_rule("# as=1.5\n")
GOOD = (200, {}, answer_of(canned_verdict("# as=1.5", make_task())))
HEALTH = {"device": "cuda", "wire_version": WIRE_VERSION}
BUSY = (503, {"Retry-After": "0"}, answer_of(HarnessError("full")))


class Service:
    """Answers POST with what `answers` holds, the last one again and again; None drops the connection."""

    def __init__(self, *answers, health=HEALTH):
        self.answers, self.requests, self.gate = list(answers), [], threading.Event()
        self.gate.set()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(200, {}, health)

            def do_POST(self):
                service.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                service.gate.wait(10)
                answer = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                else:
                    self.reply(*answer)

            def reply(self, status, headers, answer):
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(data))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(http_evaluator, "_BACK_OFF_S", (0.01,))


def ask(service, **settings):
    with HttpEvaluator(service.url, **settings) as client:
        return client.submit(PASS, make_task(), protocol=STRICT, seed=5).result(20)


def test_the_request_travels_whole_and_the_verdict_comes_back():
    with Service(GOOD) as service:
        assert ask(service) == canned_verdict("# as=1.5", make_task())
    (sent,) = service.requests
    request = EvaluationRequest.model_validate(sent)
    assert request.subject() == PASS and request.task.task() == make_task() and request.seed == 5
    assert request.evaluation_protocol() == STRICT


def test_a_full_queue_and_broken_connections_are_tried_again():
    proxy_page = (502, {}, b"<html>bad gateway</html>")
    with Service(BUSY, None, proxy_page, BUSY, GOOD) as service:
        assert ask(service).complete
        assert len(service.requests) == 5


def test_a_service_that_stays_away_is_our_failure():
    with Service(None) as service, pytest.raises(HarnessError, match="127"):
        ask(service, max_failures=2)
    assert len(service.requests) == 3
    with Service(BUSY) as service, pytest.raises(HarnessError, match="503"):
        ask(service, patience_s=0.2)


def test_errors_of_the_service_keep_their_kind_and_are_not_tried_again():
    for error in (UserError("no such protocol"), ReferenceFailedError("nan"), HarnessError("gpu")):
        with Service((500, {}, answer_of(error))) as service, pytest.raises(type(error), match=str(error)):
            ask(service)
        assert len(service.requests) == 1
    with Service((404, {}, b"not here")) as service, pytest.raises(HarnessError, match="answered 404"):
        ask(service)


def test_unknown_errors_are_our_failures_and_no_verdict_is_invented():
    with pytest.raises(HarnessError, match="ZeroDivisionError"):
        verdict_of(answer_of(ZeroDivisionError("x")))
    for answer in (None, {}, {"wire_version": 9, "verdict": {}}, {"wire_version": WIRE_VERSION, "verdict": {"a": 1}}):
        with pytest.raises(HarnessError):
            verdict_of(answer)


def test_what_is_no_service_is_the_users_mistake():
    with pytest.raises(UserError, match="start the service"):
        HttpEvaluator("http://127.0.0.1:9")
    with pytest.raises(UserError, match="not a URL"):
        HttpEvaluator("ftp://host")
    with Service(GOOD, health={"hello": 1}) as service, pytest.raises(UserError, match="not a Passwright service"):
        HttpEvaluator(service.url)
    with Service(GOOD, health=HEALTH | {"wire_version": 9}) as service, pytest.raises(UserError, match="says 9"):
        HttpEvaluator(service.url)


def test_closing_ends_what_is_under_way_and_what_waits():
    with Service(GOOD) as service:
        service.gate.clear()
        client = HttpEvaluator(service.url, max_in_flight=1)
        futures = [client.submit(PASS, make_task(), protocol=STRICT) for _ in range(2)]
        while not service.requests:
            time.sleep(0.01)
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < 5
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(1)
        with pytest.raises(RuntimeError):
            client.submit(PASS, make_task(), protocol=STRICT)


def arguments(executor=None, address=None):
    return argparse.Namespace(executor=executor, address=address)


def test_the_command_line_chooses_over_the_configuration():
    http_config = HttpExecutorConfig(kind="http", address="http://a", max_in_flight=3)
    assert executor_config(arguments()) == LocalExecutorConfig()
    assert executor_config(arguments(), http_config) == http_config
    assert executor_config(arguments(address="http://b"), http_config).model_dump() == {
        **http_config.model_dump(),
        "address": "http://b",
    }
    assert executor_config(arguments("ray"), http_config) == RayExecutorConfig(kind="ray")
    assert executor_config(arguments("local"), http_config) == LocalExecutorConfig()
    for wrong in (arguments("http"), arguments("local", "http://a"), arguments(None, "http://a")):
        with pytest.raises(UserError, match="--address"):
            executor_config(wrong)


def test_a_collection_names_its_executor_and_may_go_on_with_another():
    given = ["name=a", "tasks=[mini]", "policy.kind=expert"]
    config = load_config(CollectConfig, None, [*given, "executor.kind=http", "executor.address=http://a"])
    assert config.executor == HttpExecutorConfig(kind="http", address="http://a")
    assert config.identity([]) == load_config(CollectConfig, None, given).identity([])
    with pytest.raises(UserError, match="num_judge"):
        load_config(CollectConfig, None, [*given, "executor.kind=local", "executor.num_judge=2"])
