"""The dispatch guard sees what torch computes during a call, however it was reached, and nothing else."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from eval_harness.candidate_process.dispatch_guard import DispatchGuard, check_plain_tensor
from eval_harness.candidate_process.loading import load_pass

CORPUS = Path(__file__).parent / "exploits"
RECORDS = {path.parent.name: json.loads(path.read_text()) for path in sorted(CORPUS.glob("*/exploit.json"))}
CAUGHT_HERE = [
    name
    for name, it in RECORDS.items()
    if it["layer"] == "dispatch" and it.get("device") != "cuda" and not it.get("build")
]
HONEST = """
import numba
import numpy as np
import torch


@numba.njit
def _kernel(a, b, c, o):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]


def fused(x, bias, scale):
    out = torch.empty_like(x)
    wide = x.to(torch.float64).to(torch.float32).contiguous()
    _kernel(wide.numpy(), bias.detach().numpy(), scale.view(torch.int32).view(torch.float32).numpy(), out.numpy())
    return out.reshape(-1).view(x.shape)


def replacement_func():
    return fused
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Callable]]:
    """Imports a pass folder given as files and returns its replacement."""

    def load_files(files: dict[str, str]) -> Callable:
        folder = tmp_path / "pass_dir"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        sys.path.insert(0, str(tmp_path))
        importlib.invalidate_caches()
        return importlib.import_module("pass_dir.Fuse").replacement_func()

    saved_path, saved = list(sys.path), {name for name in sys.modules if name.split(".")[0] == "pass_dir"}
    assert not saved
    yield load_files
    sys.path[:] = saved_path
    for name in [name for name in sys.modules if name.split(".")[0] == "pass_dir"]:
        del sys.modules[name]


def draw() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(64, 256), torch.randn(256), torch.randn(64, 256)


def test_honest_pass_is_clean_and_its_copies_are_counted(load: Callable) -> None:
    replacement = load({"Fuse.py": HONEST})
    x, bias, scale = draw()
    guard = DispatchGuard()
    with guard:
        out = replacement(x, bias, scale)
    assert guard.violations() == []
    assert guard.num_copies == 2
    assert torch.equal(out, torch.relu(x + bias) * scale)
    assert check_plain_tensor(out) is None


@pytest.mark.parametrize("name", CAUGHT_HERE)
def test_exploit_is_seen(name: str, load: Callable) -> None:
    replacement = load({path.name: path.read_text() for path in (CORPUS / name / "pass_dir").glob("*.py")})
    guard = DispatchGuard()
    inputs = draw()
    with guard:
        for _ in range(20):  # one of them waits before it cheats
            replacement(*inputs)
    found = guard.violations()
    assert {"aten::add", "aten::mul"} <= {violation["op"] for violation in found}
    assert {violation["rule"] for violation in found} == {"dispatch.compute-op"}


def test_names_nobody_checked_are_seen() -> None:
    x = torch.randn(8, 8)
    guard = DispatchGuard()
    with guard:
        getattr(torch, "re" + "lu")(x)
        torch.nn.functional.linear(x, x)  # calls matrix multiplication from C++
        x.sum().item()
    found = {violation["op"]: violation["rule"] for violation in guard.violations()}
    assert found["aten::relu"] == "dispatch.compute-op"
    assert found["aten::_local_scalar_dense"] == "dispatch.read"
    assert {"aten::mm", "aten::addmm", "aten::linear"} & set(found)


def test_copies_that_are_all_the_work_are_told() -> None:
    x = torch.randn(8, 8)

    def rules(call: Callable) -> list[str]:
        guard = DispatchGuard((x,))
        with guard:
            outputs = call()
        return [found["rule"] for found in guard.violations(outputs)]

    def kernel_after_a_copy() -> torch.Tensor:
        out = x.clone()
        out.numpy()[0, 0] = 7.0  # stands for a kernel that the guard does not see
        return out

    def copy_of_a_kernels_output() -> torch.Tensor:
        out = torch.empty_like(x)
        out.numpy()[:] = 7.0
        return out.to(torch.float16)

    assert rules(lambda: x.t().contiguous()) == ["dispatch.only-copies"]
    assert rules(lambda: x.to(torch.float16).to(torch.float32)) == ["dispatch.only-copies"]
    assert rules(lambda: torch.empty_like(x).copy_(x)) == ["dispatch.only-copies"]
    assert rules(lambda: (x.clone(), torch.empty(3))) == []
    assert rules(lambda: x.view(64)) == []
    assert rules(kernel_after_a_copy) == []
    assert rules(copy_of_a_kernels_output) == []


def test_what_is_computed_at_import_is_a_violation_of_its_rule() -> None:
    rule = (Path(__file__).parent / "exploits" / "operators_only" / "pass_dir" / "Fuse.py").read_text()
    saved_path = list(sys.path)
    try:
        (described,), _ = load_pass({"Fuse.py": rule + "\nTABLE = torch.ones(4).add(1)\n"}, ["Fuse"])
    finally:
        sys.path[:] = saved_path
        for name in [name for name in sys.modules if name.split(".")[0] == "pass_dir"]:
            del sys.modules[name]
    assert [found["rule"] for found in described["violations"]] == ["dispatch.import-time"]


def test_nothing_is_recorded_after_the_call() -> None:
    guard = DispatchGuard()
    with guard:
        torch.empty(3)
    torch.relu(torch.ones(3))
    assert guard.violations() == []


def test_only_plain_tensors_with_memory_are_outputs() -> None:
    class Lazy(torch.Tensor):
        pass

    marked = torch.zeros(2)
    marked.cached = True  # type: ignore[attr-defined]
    assert "Lazy" in (check_plain_tensor(torch.zeros(2).as_subclass(Lazy)) or "")
    assert "Parameter" in (check_plain_tensor(torch.nn.Parameter(torch.zeros(2))) or "")
    assert "cached" in (check_plain_tensor(marked) or "")
    assert "float" in (check_plain_tensor(1.0) or "")
    assert check_plain_tensor(torch.empty(2, device="meta"))
    assert check_plain_tensor(torch.zeros(2).to_sparse())
    assert check_plain_tensor(torch.randn(2, dtype=torch.complex64).conj())
    assert check_plain_tensor(torch.zeros(0)) is None
    assert check_plain_tensor(torch.zeros(4)[1:3]) is None
