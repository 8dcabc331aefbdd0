"""The vLLM engines: the server's against a local server that speaks its protocol over sockets; the colocated one
against a stand-in with vLLM's methods (vLLM itself: test_generation_gpu.py)."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, SimpleNamespace

import pytest

from eval_harness.errors import UserError
from training.generation import Generated, GenerationEngine, GenerationRequest
from training.generation_server import VllmServerEngine
from training.generation_vllm import VllmEngine
from training.student_policy import SamplingConfig


class CompletionsServer:
    """vLLM's /v1/models and /v1/completions: answers the prompt's ids backwards, and fails as it is told to."""

    def __init__(self, *, models: object = None) -> None:
        self.bodies: list[dict] = []
        self.faults: list[tuple[int, object]] = []
        """(status, body) of the next answers; status 0 drops the connection."""
        self.delay_s = 0.0
        self.most_at_a_time = self._at_a_time = 0
        self._mutex = threading.Lock()
        outer = self
        models = models or {"data": [{"id": "student", "max_model_len": 500}]}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(200, models)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._mutex:
                    outer.bodies.append(body)
                    fault = outer.faults.pop(0) if outer.faults else None
                    outer._at_a_time += 1
                    outer.most_at_a_time = max(outer.most_at_a_time, outer._at_a_time)
                time.sleep(outer.delay_s)
                with outer._mutex:
                    outer._at_a_time -= 1
                if fault and fault[0] == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                self._send(*(fault or (200, outer.completion(body))))

            def _send(self, status: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def completion(self, body: dict) -> dict:
        ids = list(reversed(body["prompt"]))[: body["max_tokens"]]
        logprobs = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [-0.25] * len(ids), "top_logprobs": []}
        reason = "stop" if len(ids) == len(body["prompt"]) else "length"
        return {"choices": [{"text": "", "token_ids": ids, "logprobs": logprobs, "finish_reason": reason}]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(name="server")
def server_fixture():
    server = CompletionsServer()
    yield server
    server.close()


def _all(engine, count: int) -> dict[str, Generated]:
    done: dict[str, Generated] = {}
    until = time.monotonic() + 20
    while len(done) < count and time.monotonic() < until:
        done |= {generated.key: generated for generated in engine.step()}
    return done


def test_ids_go_in_and_come_out(server):
    server.delay_s = 0.2
    sampling = SamplingConfig(temperature=0.7, top_p=0.9)
    with VllmServerEngine(f"{server.url}/v1/", sampling, stop_token_ids=[6], extra={"top_k": 5}) as engine:
        assert isinstance(engine, GenerationEngine) and engine.max_model_len == 500
        for index in range(6):
            engine.submit(
                GenerationRequest(f"k{index}", [1, 2, 3 + index], 2 + index % 2, seed=index, stop_token_ids=(7,))
            )
        done = _all(engine, 6)
        assert engine.step() == []
    assert done["k0"] == Generated("k0", [3, 2], [-0.25] * 2, "length")
    assert done["k1"] == Generated("k1", [4, 2, 1], [-0.25] * 3, "stop")
    assert server.most_at_a_time == 6
    body = next(body for body in server.bodies if body["prompt"] == [1, 2, 4])
    assert {key: body[key] for key in ("model", "max_tokens", "temperature", "top_p", "seed", "logprobs", "top_k")} == {
        "model": "student", "max_tokens": 3, "temperature": 0.7, "top_p": 0.9, "seed": 1, "logprobs": 0, "top_k": 5
    }  # fmt: skip
    # else the server takes these from the checkpoint's generation_config.json
    assert (body["repetition_penalty"], body["min_p"], body["stop_token_ids"]) == (1.0, 0.0, [6, 7])
    assert body["return_token_ids"] is True


def test_a_server_that_stumbles_is_asked_again_and_a_refusal_is_an_error(server, monkeypatch):
    monkeypatch.setattr("training.generation_server._FIRST_PAUSE_S", 0.01)
    whole = server.completion({"prompt": [1, 2], "max_tokens": 9})
    without_ids = json.loads(json.dumps(whole))
    del without_ids["choices"][0]["token_ids"]
    with VllmServerEngine(server.url, max_retries=2) as engine:

        def ask(*faults) -> Generated:
            server.faults, server.bodies = list(faults), []
            engine.submit(GenerationRequest("k", [1, 2], 9))
            return _all(engine, 1)["k"]

        assert ask((503, {}), (0, None)).ids == [2, 1] and len(server.bodies) == 3
        failed = ask((503, {}), (500, {}), (503, {"error": "overloaded"}))
        assert failed.finish_reason == "error" and "HTTP 503" in failed.error and len(server.bodies) == 3
        refused = ask((400, {"error": {"message": "maximum context length"}}))
        assert refused.finish_reason == "error" and "maximum context" in refused.error and len(server.bodies) == 1
        assert ask((200, without_ids)).finish_reason == "error"
        assert ask().finish_reason == "stop"


def test_a_cancelled_answer_is_thrown_away(server):
    server.delay_s = 0.2
    with VllmServerEngine(server.url) as engine:
        engine.submit(GenerationRequest("gone", [1, 2], 9))
        engine.submit(GenerationRequest("kept", [1, 2], 9))
        engine.cancel("gone")
        assert set(_all(engine, 1)) == {"kept"}
        time.sleep(0.3)
        assert engine.step() == []


def test_no_server_or_another_one_is_refused(server):
    with pytest.raises(UserError, match="no vLLM server answers"):
        VllmServerEngine("http://127.0.0.1:9")
    other = CompletionsServer(models={"data": [{"id": "gpt"}]})
    with pytest.raises(UserError, match="max_model_len"):
        VllmServerEngine(other.url)
    other.close()


class StandInEngine:
    """The methods of vLLM's LLMEngine that VllmEngine calls. A request is finished after max_tokens steps."""

    model_config = SimpleNamespace(max_model_len=300, model="student", dtype="torch.bfloat16")

    def __init__(self) -> None:
        self.active: dict[str, list] = {}
        self.aborted: list[str] = []

    def add_request(self, request_id, prompt, params):
        assert isinstance(request_id, str) and prompt["type"] == "token"
        self.active[request_id] = [prompt["prompt_token_ids"], params, 0]

    def abort_request(self, request_ids):
        self.aborted += request_ids
        for request_id in request_ids:
            self.active.pop(request_id, None)

    def has_unfinished_requests(self):
        return bool(self.active)

    def step(self):
        outputs = []
        for request_id, entry in list(self.active.items()):
            entry[2] += 1
            if entry[2] == entry[1].max_tokens:
                del self.active[request_id]
                ids = entry[0][: entry[2]]
                chosen = [{i: SimpleNamespace(logprob=-0.1 * i, rank=1)} for i in ids]
                sequence = SimpleNamespace(token_ids=tuple(ids), logprobs=chosen, finish_reason="length")
                outputs.append(SimpleNamespace(request_id=request_id, finished=True, outputs=[sequence]))
        return outputs


@pytest.fixture(name="vllm_names")
def vllm_names_fixture(monkeypatch):
    vllm, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = lambda **given: SimpleNamespace(**given)
    parameters.RequestOutputKind = SimpleNamespace(FINAL_ONLY=2)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)


def test_the_colocated_engine_batches_as_requests_come(vllm_names):
    inside = StandInEngine()
    engine = VllmEngine(SimpleNamespace(llm_engine=inside), SamplingConfig(temperature=0.7), stop_token_ids=[9])
    assert isinstance(engine, GenerationEngine) and engine.max_model_len == 300 and not engine.is_collective
    engine.submit(GenerationRequest("a", [5, 6, 7], 2, seed=3, stop_token_ids=(8,)))
    assert engine.step() == []
    parameters = inside.active["a"][1]
    assert (parameters.temperature, parameters.max_tokens, parameters.logprobs) == (0.7, 2, 0)
    assert parameters.stop_token_ids == [8, 9] and parameters.seed is None
    engine.submit(GenerationRequest("b", [1], 1))
    engine.submit(GenerationRequest("c", [1, 2, 3, 4], 4))
    engine.cancel("c")
    assert sorted(generated.key for generated in engine.step()) == ["a", "b"]
    assert inside.aborted == ["c"] and engine.step() == []


def test_logprobs_are_of_the_generated_tokens(vllm_names):
    engine = VllmEngine(SimpleNamespace(llm_engine=StandInEngine()))
    engine.submit(GenerationRequest("a", [5, 6, 7], 2))
    done = engine.step() + engine.step()
    assert done == [Generated("a", [5, 6], [-0.5, pytest.approx(-0.6)], "length")]
