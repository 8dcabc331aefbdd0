"""Confinement of a real forked child: what it may do works, what it may not do fails, and refused layers are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval_harness import confinement_layers
from eval_harness.candidate_process.confinement import probe_layers
from eval_harness.process_tree import children
from tests.confined_child import FORK_AND_CONFINE, ROOT, run_child

LAYERS = set(confinement_layers.LAYERS)
REPORT = """
import socket, subprocess, tempfile

def compute_numba():
    @numba.njit
    def double(a, o):
        for i in range(a.size):
            o[i] = a[i] * 2
    o = numpy.empty(8, numpy.float32)
    double(numpy.ones(8, numpy.float32), o)
    return float(o.sum())

def compute_torch():
    torch.set_num_threads(2)
    return list(torch.relu(torch.randn(300, 300) @ torch.randn(300, 300)).shape)

def compile_c():
    source = tempfile.gettempdir() + "/three.c"
    open(source, "w").write("int three(void) { return 3; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", source + ".so", source], check=True)
    import ctypes
    return ctypes.CDLL(source + ".so").three()

def write(path):
    with open(path, "w") as file:
        return file.write("1")

report = {
    "state": state,
    "numba": attempt(compute_numba),
    "torch": attempt(compute_torch),
    "late import": attempt(lambda: bool(__import__("torch.utils.cpp_extension"))),
    "gcc": attempt(compile_c),
    "scratch": attempt(lambda: write(os.environ["TRITON_CACHE_DIR"] + "/x")),
    "shm": attempt(lambda: write("/dev/shm/x")),
    "null": attempt(lambda: write("/dev/null")),
    "random": attempt(lambda: len(open("/dev/urandom", "rb").read(4))),
    "connect": attempt(lambda: socket.create_connection(("127.0.0.1", options["port"]), timeout=5) and None),
    "outside": attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2) and None),
    "writes": {path: attempt(lambda: write(path)) for path in options["write"]},
    "reads": {path: attempt(lambda: len(open(path, "rb").read())) for path in options["read"]},
    "list": {path: attempt(lambda: os.listdir(path)) for path in options["list"]},
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
    "devices": attempt(lambda: sorted(os.listdir("/dev"))),
    "kill": attempt(lambda: os.kill(options["victim"], 0)),
    "environment": sorted(os.environ),
    "status": open("/proc/self/status").read(),
    "setuid": attempt(lambda: os.setuid(12345)),
}
print(json.dumps(report), flush=True)
os._exit(7)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    secret = tmp_path_factory.mktemp("host") / "secret.txt"
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines = run_child(
            REPORT,
            libraries=True,
            port=server.getsockname()[1],
            victim=os.getpid(),
            write=[str(secret), str(ROOT / "written"), "/etc/written", str(Path(sys.prefix) / "written"), "/written"],
            read=[str(secret), str(ROOT / "pyproject.toml"), str(ROOT / "data/graph.py"), "/etc/hostname"],
            list=[str(Path.home()), str(ROOT), str(ROOT / "tests")],
        )
    assert lines[1] == {"status": 7}, "the exit status is passed on through the chain"
    return lines[0]


def need(report: dict, *layers: str) -> None:
    missing = [layer for layer in layers if report["state"][layer] != "on"]
    if missing:
        pytest.skip(f"this machine refuses {', '.join(missing)}")


def test_every_layer_is_told(report: dict) -> None:
    assert set(report["state"]) == LAYERS
    assert all(report["state"].values())


def test_work_goes_on(report: dict) -> None:
    assert report["numba"] == ["done", 16.0]
    assert report["torch"] == ["done", [300, 300]]
    assert report["late import"] == ["done", True]
    assert report["scratch"] == ["done", 1]
    assert report["null"] == ["done", 1]
    assert report["random"] == ["done", 4]


def test_compiler_works(report: dict) -> None:
    if "gcc" in report["gcc"][1:2]:
        pytest.skip("no gcc")
    assert report["gcc"] == ["done", 3] or "No such file or directory: 'gcc'" in report["gcc"][1]


def test_no_network(report: dict) -> None:
    if report["state"]["network-namespace"] != "on":
        need(report, "landlock-tcp")
    assert report["connect"][0] == "refused"
    assert report["outside"][0] == "refused"


def test_writing_outside_the_scratch_folder_fails(report: dict) -> None:
    if report["state"]["read-only-root"] != "on":
        need(report, "landlock")
    assert {outcome for outcome, _ in report["writes"].values()} == {"refused"}
    assert not (ROOT / "written").exists()


def test_reading_the_repository_and_home_fails(report: dict) -> None:
    need(report, "landlock")
    assert {outcome for outcome, _ in report["reads"].values()} == {"refused"}
    assert {outcome for outcome, _ in report["list"].values()} == {"refused"}


def test_other_processes_are_out_of_sight_and_reach(report: dict) -> None:
    need(report, "pid-namespace", "proc")
    assert report["processes"] == ["1"]
    assert report["kill"][0] == "refused"


def test_devices_are_few(report: dict) -> None:
    need(report, "private-dev")
    expected = "fd full null random shm stderr stdin stdout urandom zero".split()  # noqa: SIM905
    assert report["devices"] == ["done", expected]
    assert report["shm"] == ["done", 1]
    assert not Path("/dev/shm/x").exists()


def test_environment_and_rights_are_gone(report: dict) -> None:
    assert "API_KEY" not in report["environment"]
    status = dict(line.split(":\t", 1) for line in report["status"].splitlines() if ":\t" in line)
    assert {status[kind] for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert report["setuid"][0] == "refused"


def test_nothing_crosses_from_one_evaluation_to_the_next() -> None:
    body = """
places = [os.environ["HOME"] + "/left", "/dev/shm/left", "/tmp/left"]
seen = [os.path.exists(place) for place in places]
for place in places:
    attempt(lambda: open(place, "w").close())
print(json.dumps({"seen": seen, "dev": state["private-dev"]}), flush=True)
os._exit(0)
"""
    for _ in range(2):
        first = run_child(body)[0]
        assert first["seen"][0] is False
        if first["dev"] == "on":
            assert first["seen"] == [False, False, False]


def test_death_by_signal_is_passed_on() -> None:
    body = "import ctypes\nctypes.string_at(0)\n"
    assert run_child(body)[-1] == {"status": -signal.SIGSEGV}


@pytest.mark.skipif(os.getuid() != 0, reason="every other test already runs as an ordinary user")
def test_an_ordinary_user_gets_the_same_layers(report: dict) -> None:
    first = run_child("print(json.dumps(state), flush=True)\nos._exit(0)\n", user=65534)[0]
    assert first == report["state"]


def test_the_confined_process_dies_with_its_chain() -> None:
    body = "print(json.dumps({}), flush=True)\nimport time\ntime.sleep(60)\n"
    command = [sys.executable, "-c", FORK_AND_CONFINE + body, str(ROOT), "{}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            starter.stdout.readline()
            (outer,) = children(starter.pid)
            (inner,) = children(outer)
            os.kill(outer, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while Path(f"/proc/{inner}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not Path(f"/proc/{inner}").exists()
            assert json.loads(starter.stdout.readline()) == {"status": -signal.SIGKILL}
        finally:
            starter.kill()


def test_probe_tells_every_layer() -> None:
    assert set(probe_layers()) == LAYERS
