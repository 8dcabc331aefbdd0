"""Confinement on a CUDA device: every layer that this machine grants on a CPU is there too, and CUDA, Triton, the
profiler and compilers work behind them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eval_harness import confinement_layers, gpu_sharing, machine  # noqa: E402
from eval_harness.candidate_process.confinement import probe_layers  # noqa: E402
from tests.confined_child import ROOT, run_child  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

BODY = """
import importlib.util, socket, subprocess, tempfile

def multiply():
    x = torch.ones(256, 256, device="cuda")
    y = (x @ x).relu().sum().item()
    torch.cuda.synchronize()
    return y

def memory_kinds():
    pinned = torch.ones(1 << 20).pin_memory()
    there = pinned.to("cuda", non_blocking=True)
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        there = there * 2
        event.record()
    event.synchronize()
    graph, static = torch.cuda.CUDAGraph(), torch.ones(8, device="cuda")
    with torch.cuda.graph(graph):
        static.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    return [there.sum().item(), static.sum().item()]

def profiled():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        torch.ones(1 << 20, device="cuda").mul_(2)
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) > 0

TRITON = '''
import torch, triton, triton.language as tl
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
def run():
    x = torch.ones(1000, device="cuda")
    double[(triton.cdiv(1000, 256),)](x, 1000, BLOCK=256)
    return x.sum().item()
'''

def triton_compiled():
    path = tempfile.gettempdir() + "/kernel.py"
    open(path, "w").write(TRITON)
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run()

print(json.dumps({
    "state": state,
    "multiply": attempt(multiply),
    "memory": attempt(memory_kinds),
    "profiler": attempt(profiled),
    "triton": attempt(triton_compiled),
    "inet": attempt(lambda: socket.socket(socket.AF_INET).close()),
    "gpu nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
    "others": sorted(name for name in os.listdir("/dev") if not name.startswith("nvidia")),
    "secret": attempt(lambda: os.listdir(options["root"])),
}), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def report() -> dict:
    return run_child(BODY, libraries=True, policy={"device": "cuda"}, root=str(ROOT))[0]


def test_the_same_layers_as_on_a_cpu(report: dict) -> None:
    assert confinement_layers.layers_off(report["state"]) == confinement_layers.layers_off(probe_layers("cpu"))


def test_cuda_works_behind_them(report: dict) -> None:
    assert report["multiply"] == ["done", 256.0**3]
    assert report["memory"] == ["done", [2.0 * (1 << 20), 16.0]]
    assert report["profiler"] == ["done", True]


def test_triton_compiles_behind_them(report: dict) -> None:
    assert report["triton"] == ["done", 2000.0]


def test_what_is_closed_stays_closed(report: dict) -> None:
    if report["state"]["seccomp"] == "on":
        assert report["inet"][0] == "refused"
    if report["state"]["landlock"] == "on":
        assert report["secret"][0] == "refused"
    if report["state"]["private-dev"] == "on":
        assert report["gpu nodes"]
        assert set(report["others"]) <= set("fd full null random shm stderr stdin stdout urandom zero".split())  # noqa: SIM905


def test_the_sharing_of_this_gpu_is_told() -> None:
    sharing = gpu_sharing.look("cuda")
    assert sharing is not None
    assert sharing.compute_mode
    record = machine.describe_machine("cuda")
    assert record["gpu"]
    assert isinstance(record["other_processes"], int)
    assert isinstance(record["mps"], bool)


@pytest.mark.slow
def test_the_noise_floor_is_measured() -> None:
    from eval_harness.judge.noise_floor import measure_noise_floor

    points = measure_noise_floor("cuda", 4.0)
    assert [point.graph for point in points] == ["small", "large"]
    assert all(point.half_width is None or 0 < point.half_width < 1 for point in points)
