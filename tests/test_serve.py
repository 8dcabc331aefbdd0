"""`vllm serve` as a child, by a stand-in of its command line: ready, failing in every known way, and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from eval_harness.errors import HarnessError, UserError
from eval_harness.gpu_sharing import yielding
from eval_harness.judge.device_lock import exclusive_use
from eval_harness.process_tree import is_running
from tests.stand_in_server import BASE, REPOSITORY, STAND_IN, TEMPLATE, command_on, make_server, pids
from tests.stand_in_vllm import FAULTS
from training.gpu_turns import GpuTurns, marked_as_yielding
from training.serve import Endpoint, free_port, running
from training.serve_command import find_program, vllm_command
from training.serve_config import VllmServeConfig
from training.serve_failures import failure, find_cause, last_lines
from training.served_policy import room_left, with_unread_calls
from training.student_service import choose_gpus
from training.student_source import find_checkpoints, find_source
from trajectories.record import Message
from trajectories.tools import MalformedCallError, parse_arguments


def wait_until(condition, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_a_server_is_ready_answers_and_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-another-service")
    lines: list[str] = []
    with running(make_server(tmp_path, lines=lines)) as server:
        own, worker = pids(tmp_path)
        assert is_running(own) and is_running(worker) and server.is_alive and server.failure() is None
        with urllib.request.urlopen(f"{server.base_url}/models") as response:
            assert json.load(response)["data"][0]["id"] == "student"
        environment = Path(f"/proc/{own}/environ").read_bytes()
        assert b"sk-secret" not in environment and b"VLLM_USE_FLASHINFER_SAMPLER=0" in environment
    assert not is_running(own) and not is_running(worker), "its worker has a session of its own"
    assert "ready after" in lines[-1]
    log = (tmp_path / "logs/vllm.log").read_text()
    assert log.startswith("$ ") and "loading m" in log and "sk-secret" not in log


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("oom", UserError, r"out of memory: torch.OutOfMemoryError.*server.gpu_memory_utilization"),
        ("unknown", HarnessError, r"ended with status 1 after .*moon is in the wrong quarter.*vllm.log"),
    ],
)
def test_a_server_that_dies_at_its_start_says_why(tmp_path: Path, fault: str, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        make_server(tmp_path, STAND_IN_FAULT=fault).start()
    assert not any(is_running(pid) for pid in pids(tmp_path))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no-cache", r"out of memory: ValueError: No available memory"),
        ("template", r"chat template: jinja2.*server.chat_template"),
        ("parser", r"parser: KeyError.*server.tool_call_parser"),
        ("model", r"model: OSError.*check --model"),
    ],
)
def test_what_a_log_says_becomes_a_cause_and_a_cure(tmp_path: Path, fault: str, words: str) -> None:
    error = failure("ended", tmp_path / "log", f"Traceback\n{FAULTS[fault]}\nRuntimeError: Engine core failed\n")
    assert isinstance(error, UserError) and re.search(words, str(error)), error


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    with pytest.raises(
        HarnessError, match=r"not ready after 3 s \(its last words: loading m\); raise server.start_time"
    ):
        make_server(tmp_path, timeout_s=3.0, STAND_IN_FAULT="never").start()
    assert not any(is_running(pid) for pid in pids(tmp_path))


def test_a_port_of_the_configuration_that_is_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"server.port={port}: is in use"):
            make_server(tmp_path, port=port).start()
    assert not (tmp_path / "pids").exists()


def test_a_free_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    lines: list[str] = []
    with running(make_server(tmp_path, lines=lines, STAND_IN_FAULT=f"port-once:{tmp_path / 'once'}")) as server:
        assert server.is_alive
    assert any("was taken meanwhile" in line for line in lines)


def test_a_server_dies_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, '.')\n"
        "from tests.stand_in_server import make_server\n"
        "make_server(Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None and starter.stdout.readline() == "up\n"
    own, worker = pids(tmp_path)
    assert is_running(own) and is_running(worker)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    wait_until(lambda: not is_running(own) and not is_running(worker))


def test_a_server_that_dies_while_it_serves_says_so(tmp_path: Path) -> None:
    with running(make_server(tmp_path)) as server:
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        wait_until(lambda: not server.is_alive)
        assert "died while it served (status 137)" in str(server.failure())


def test_the_command_line_of_a_plain_student() -> None:
    command = command_on(8123, {"HF_HUB_OFFLINE": "1"}, tensor_parallel=2, batch_invariant=True, max_model_len=4096,
                         reasoning_parser="qwen3", extra_args=["--swap-space", "0"])  # fmt: skip
    assert command.arguments[len(STAND_IN) :][:6] == ["serve", "m", "--host", "127.0.0.1", "--port", "8123"]
    text = " ".join(command.arguments)
    for part in (
        "--seed 7", "--tensor-parallel-size 2", "--served-model-name student", "--tool-call-parser hermes",
        "--reasoning-parser qwen3", "--max-model-len 4096", "--generation-config vllm", "--swap-space 0",
        "--gpu-memory-utilization 0.9",
    ):  # fmt: skip
        assert part in text, part
    assert command.env["VLLM_BATCH_INVARIANT"] == "1" and command.env["HF_HUB_OFFLINE"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in command.env and "--enable-lora" not in text


def test_a_shared_gpu_leaves_room_for_the_evaluator_and_can_be_paused() -> None:
    command = command_on(1, {}, shares_gpu=True)
    assert "--gpu-memory-utilization 0.6" in " ".join(command.arguments) and command.env["VLLM_SERVER_DEV_MODE"] == "1"


def test_an_adapter_is_asked_for_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "base/model", "r": 64}')
    source = find_source(tmp_path)
    assert (source.model, source.lora_rank, source.folder) == ("base/model", 64, tmp_path)
    config = VllmServeConfig(kind="vllm", program=STAND_IN)
    command = vllm_command(config, source, TEMPLATE, port=1, seed=0, name="s", gpus=[1])
    text = " ".join(command.arguments)
    assert f"--lora-modules s={tmp_path}" in text and "--max-lora-rank 64" in text
    assert "--served-model-name s-base" in text and command.model == "s"
    with pytest.raises(UserError, match=r"server\.adapters=serve"):
        refused = config.model_copy(update={"adapters": "refuse"})
        vllm_command(refused, source, TEMPLATE, port=1, seed=0, name="s")


def test_gpus_of_a_server_are_the_visible_ones_of_its_numbers(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    config = VllmServeConfig(kind="vllm", program=STAND_IN)
    command = vllm_command(config, BASE, TEMPLATE, port=1, seed=0, name="s", gpus=[2, 0])
    assert command.env["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"


def test_a_server_gets_free_gpus_before_shared_ones() -> None:
    assert choose_gpus(1, [0], 2) == ([1], [])
    assert choose_gpus(1, [0], 1) == ([0], [0])
    assert choose_gpus(2, [0], 2) == ([0, 1], [0])
    assert choose_gpus(2, [], 4) == ([0, 1], [])
    with pytest.raises(UserError, match="is 4, and 2 GPUs are visible"):
        choose_gpus(4, [0], 2)


def test_a_vllm_without_a_program_is_started_as_a_module(tmp_path: Path, monkeypatch) -> None:
    """`pip install --target` leaves no program beside Python."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("raise ImportError('only looked for')")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_program() == [sys.executable, "-m", "vllm.entrypoints.cli.main"]


def test_without_vllm_it_is_told_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match="passwright\\[serve\\]"):
        vllm_command(VllmServeConfig(kind="vllm"), BASE, TEMPLATE, port=1, seed=0, name="s")


def test_causes_are_told_from_what_is_only_said_on_the_way(tmp_path: Path) -> None:
    calm = "INFO 1-1 1:1 [a.py:1] Using chat template from tokenizer\nINFO 1-1 1:1 [b.py:1] chat_template loaded\n"
    assert find_cause(calm * 50 + "x\n" * 50) is None
    log = calm + "ERROR 1-1 1:1 [c.py:1] ValueError: To serve, 2.0 GiB KV cache is needed, more than there is\n"
    found = find_cause(log)
    assert found is not None and found[0].name == "out of memory" and found[1].startswith("ValueError: To serve")
    assert last_lines("(APIServer pid=3) INFO 09-28 15:47:24 [a.py:1] up\n\n^^^^\n") == ["up"]
    assert "it said nothing" in str(failure("died", tmp_path / "none.log"))


def test_gpus_and_parallel_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="names 1 GPUs"):
        VllmServeConfig(kind="vllm", gpus=[0], tensor_parallel=2)


def test_checkpoints_of_a_run_are_found_by_step(tmp_path: Path) -> None:
    for step in (100, 20, 3):
        (tmp_path / f"checkpoints/checkpoint-{step}").mkdir(parents=True)
    assert [step for step, _ in find_checkpoints(tmp_path)] == [3, 20, 100]
    assert [step for step, _ in find_checkpoints(tmp_path, [20])] == [20]
    with pytest.raises(UserError, match=r"no checkpoint of step 7; there are 3, 20, 100"):
        find_checkpoints(tmp_path, [7])
    with pytest.raises(UserError, match="no checkpoint-STEP"):
        find_checkpoints(tmp_path / "checkpoints/checkpoint-3")


@pytest.mark.parametrize("make", [lambda p: p / "none", lambda p: p, lambda p: "./relative/none"])
def test_a_student_that_is_none_is_refused(tmp_path: Path, make) -> None:
    with pytest.raises(UserError):
        find_source(make(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no weights in it"):
        find_source(tmp_path)
    assert find_source("Qwen/Qwen3-4B").folder is None


@pytest.mark.parametrize(
    ("refusal", "limit", "room"),
    [
        ("maximum context length is 8192 tokens and your request has 5000 input tokens", 4096, 3192),
        ("maximum context length is 8192 tokens. However, your prompt contains at least 8190 input tokens", 4096, None),
        ("maximum context length is 8192 tokens and your request has 9000 input tokens", 4096, None),
        ("prompt is too long", 4096, 2048),
        ("prompt is too long", 40, None),
        ("maximum context length is 8192 tokens and your request has 100 input tokens", 50, None),
        ("prompt is too long", None, None),
    ],
)
def test_the_room_that_an_answer_is_left(refusal: str, limit: int | None, room: int | None) -> None:
    assert room_left(refusal, limit) == room


def test_a_call_that_the_server_could_not_read_is_a_malformed_call_not_the_end() -> None:
    broken = Message(role="assistant", content='So:\n<tool_call>\n{"name": "file_editor", "arguments": {\n</tool_call>')
    read = with_unread_calls(broken, call_id_prefix="call_3")
    assert [call.id for call in read.tool_calls] == ["call_3_0"] and read.content == "So:"
    with pytest.raises(MalformedCallError):
        parse_arguments(read.tool_calls[0])
    plain = Message(role="assistant", content="Done.")
    assert with_unread_calls(plain, call_id_prefix="c") == plain


@pytest.fixture
def own_locks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class LoggedServer:
    """Says what it was told, and whether it served at any moment."""

    def __init__(self) -> None:
        self.is_serving, self.calls = True, 0

    def pause(self) -> None:
        assert self.is_serving
        self.is_serving, self.calls = False, self.calls + 1

    def resume(self) -> None:
        assert not self.is_serving
        self.is_serving = True


def test_the_server_stands_still_whenever_an_evaluation_has_the_device(own_locks) -> None:
    server = LoggedServer()
    turns = GpuTurns(["cpu"], server)
    turns.take()
    turns.start()
    seen = []

    def evaluate() -> None:
        for _ in range(3):
            with exclusive_use("cpu"):
                seen.append(server.is_serving)
                time.sleep(0.03)
                seen.append(server.is_serving)

    judges = [threading.Thread(target=evaluate) for _ in range(3)]
    for judge in judges:
        judge.start()
    for judge in judges:
        judge.join(20)
    wait_until(lambda: server.is_serving)
    assert seen == [False] * 18 and 2 <= server.calls <= 10
    time.sleep(0.2)
    assert server.is_serving, "nobody wants the device"
    turns.close()
    assert turns.error is None and turns.counts.num_pauses == server.calls - 1 and turns.counts.paused_s > 0.2
    with exclusive_use("cpu") as waited:
        assert waited < 0.1, "the lock was let go"


def test_where_waits_cannot_be_seen_evaluations_under_way_decide(own_locks, monkeypatch) -> None:
    monkeypatch.setattr("training.gpu_turns.is_waited_for", lambda path: None)
    server, under_way = LoggedServer(), [0]
    turns = GpuTurns(["cpu"], server, num_under_way=lambda: under_way[0])
    turns.take()
    turns.start()
    time.sleep(0.1)
    assert server.is_serving
    under_way[0] = 1
    with exclusive_use("cpu"):
        assert not server.is_serving
    time.sleep(0.1)
    assert not server.is_serving
    under_way[0] = 0
    wait_until(lambda: server.is_serving)
    turns.close()


@pytest.mark.parametrize("is_stopped", [True, False])
def test_nothing_is_timed_beside_a_server_that_cannot_be_paused(own_locks, is_stopped: bool) -> None:
    class Failing(LoggedServer):
        def pause(self) -> None:
            super().pause()
            if self.calls > 1:
                raise HarnessError("does not pause")

    told = []
    turns = GpuTurns(["cpu"], Failing(), on_failure=lambda: told.append(1) or is_stopped)
    turns.take()
    turns.start()
    timed = threading.Event()

    def evaluate() -> None:
        with exclusive_use("cpu"):
            timed.set()

    judge = threading.Thread(target=evaluate)
    judge.start()
    assert timed.wait(2.0 if is_stopped else 0.5) == is_stopped
    assert told == [1] and str(turns.error) == "does not pause"
    turns.close()
    judge.join(5)
    assert timed.is_set(), "the end of the run lets go"


def test_a_server_without_a_pause_is_told_before_anything_is_asked(own_locks) -> None:
    turns = GpuTurns(["cpu"], Endpoint(f"http://127.0.0.1:{free_port()}/v1"))
    turns.take()
    with pytest.raises(UserError, match="start it with VLLM_SERVER_DEV_MODE=1"):
        turns.start()
    turns.close()


def test_a_paused_server_is_no_neighbour_of_the_clock(own_locks) -> None:
    with marked_as_yielding(os.getpid()):
        assert yielding() == [os.getpid()]
    assert yielding() == []
    with marked_as_yielding(2**22 + 1):  # no such process
        assert yielding() == []


def test_a_real_server_freezes_its_answers_while_it_is_paused(tmp_path: Path) -> None:
    log = tmp_path / "requests"
    with running(make_server(tmp_path, STAND_IN_LOG=str(log), STAND_IN_LATENCY="0.1")) as server:
        body = json.dumps({"model": "student", "messages": []}).encode()
        request = urllib.request.Request(f"{server.base_url}/chat/completions", data=body, method="POST")
        asked = threading.Thread(target=lambda: urllib.request.urlopen(request).read())
        asked.start()
        wait_until(lambda: log.exists() and "chat" in log.read_text())
        server.pause()
        time.sleep(0.3)
        assert asked.is_alive()
        server.resume()
        asked.join(5)
        assert not asked.is_alive()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["route"] for entry in entries] == ["chat", "/pause", "/resume", "chat-done"]
    assert "mode=keep" in entries[1]["query"]


def test_ports_are_free() -> None:
    assert 1024 < free_port() < 65536
