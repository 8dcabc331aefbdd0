"""`passwright doctor`: what it looks at, what it says of a shared GPU, its exit status. nvidia-smi is a script here."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from eval_harness import confinement_layers, gpu_sharing, machine
from eval_harness.gpu_sharing import GpuSharing
from eval_harness.judge.noise_floor import NoisePoint
from eval_harness.process_tree import descendants
from scripts import cli, doctor_checks

SMI = """#!/bin/sh
case "$*" in
  *mig.mode.current*) echo "{gpu}" ;;
  *compute-apps*) {apps} ;;
  *name,driver_version*) echo "NVIDIA Test, 580.1, 1000 MiB" ;;
  -L) printf 'GPU 0: NVIDIA Test (UUID: GPU-a)\\n  MIG 1g.10gb Device 0: (UUID: MIG-b)\\n' ;;
  *) echo "NVIDIA Test, 1000 MiB, 580.1" ;;
esac
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and stdout."""
    status = cli.main(list(arguments))
    return status, capsys.readouterr().out


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an nvidia-smi on PATH that answers as told."""

    def install(gpu: str, apps: str = "true") -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(SMI.format(gpu=gpu, apps=apps))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        gpu_sharing._remembered.clear()
        machine._facts.cache_clear()

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    yield install
    gpu_sharing._remembered.clear()
    machine._facts.cache_clear()


def test_a_gpu_of_ones_own_has_no_warning(smi) -> None:
    smi("GPU-a, [N/A], Default, 0, 4")
    sharing = gpu_sharing.look("cuda")
    assert sharing is not None
    assert (sharing.mig, sharing.others, sharing.warnings()) == (None, (), [])
    assert doctor_checks._sharing(sharing)[0].mark == "ok"
    record = machine.describe_machine("cuda")
    assert record["gpu"] == "NVIDIA Test"
    assert (record["mig"], record["mps"], record["other_processes"]) == (None, False, 0)
    assert "gpu_warnings" not in record


def test_another_process_is_told_and_our_own_are_not(smi) -> None:
    apps = f"echo 'GPU-a, {os.getppid()}, 300 MiB, /bin/train'; echo 'GPU-a, {os.getpid()}, 9 MiB, python'; " + (
        f"echo 'GPU-other, {os.getppid()}, 5 MiB, x'"
    )
    smi("GPU-a, Disabled, Default, 97, 400", apps)
    sharing = gpu_sharing.look("cuda:0")
    assert sharing is not None
    assert [(other.name, other.memory) for other in sharing.others] == [("train", "300 MiB")]
    record = gpu_sharing.record("cuda:0")
    assert record["other_processes"] == 1
    assert "1 other processes use this GPU" in record["gpu_warnings"][0]


def test_pids_of_another_namespace_are_others_beyond_our_number(smi) -> None:
    # below this test are the nvidia-smi itself, while it looks, and what other tests keep running: so many may be ours
    num_ours = len(descendants(os.getpid())) + 2
    smi("GPU-a, Disabled, Default, 0, 400", f"for i in $(seq {num_ours + 3}); do echo GPU-a, 419$i, 1 MiB, a; done")
    sharing = gpu_sharing.look("cuda")
    assert sharing is not None
    assert 3 <= len(sharing.others) <= num_ours + 3


def test_mps_is_told_loudly(smi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi("GPU-a, Disabled, Exclusive_Process, 0, 4", f"echo 'GPU-a, {os.getppid()}, 300 MiB, client'")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    record = machine.describe_machine("cuda")
    assert record["mps"] is True
    text = " ".join(record["gpu_warnings"])
    assert "through MPS" in text
    assert "nvidia-smi -c DEFAULT" in text
    sharing = gpu_sharing.look("cuda")
    assert {finding.mark for finding in doctor_checks._sharing(sharing)} == {"MISSING"}


def test_a_mig_slice_is_named(smi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi("GPU-a, Enabled, Default, [N/A], 4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    sharing = gpu_sharing.look("cuda:0")
    assert sharing is not None
    assert (sharing.mig, sharing.mig_device, sharing.utilization_percent) == (True, "MIG-b", None)
    assert any("MIG-b" in fact for fact, _ in sharing.warnings())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-unknown")
    assert gpu_sharing.look("cuda:0") is None


def test_hidden_neighbours_show_in_used_memory() -> None:
    sharing = GpuSharing(
        mig=None,
        mig_device=None,
        mps=False,
        compute_mode="Default",
        utilization_percent=80,
        memory_used_mib=40_000,
        others=(),
    )
    assert "nobody is listed" in doctor_checks._sharing(sharing)[0].value


def test_no_nvidia_smi_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_sharing.look("cuda") is None
    gpu_sharing._remembered.clear()
    assert gpu_sharing.record("cuda")["other_processes"] is None
    assert doctor_checks._sharing(None)[0].cure
    gpu_sharing._remembered.clear()


def test_noise_findings_name_the_cure() -> None:
    quiet = NoisePoint("small", 60.0, 4, 0.01, 0.02)
    noisy = NoisePoint("large", 900.0, 4, 0.08, 0.09)
    lost = NoisePoint("large", None, 0, None, None, "eager's own block times vary")
    findings = doctor_checks._noise([quiet, noisy, lost], "cuda:0")
    assert [finding.mark for finding in findings] == ["ok", "optional", "optional"]
    assert "half-width 2.0%" in findings[0].value
    assert "nvidia-smi -lgc" in findings[1].cure
    assert "vary" in findings[2].value


def test_every_layer_has_a_meaning_and_a_cure_and_stands_in_the_docs() -> None:
    assert all(layer.cure and layer.without for layer in confinement_layers.LAYERS.values())
    text = (Path(__file__).resolve().parents[1] / "docs/containers.md").read_text()
    assert [layer for layer in confinement_layers.LAYERS if f"`{layer}`" not in text] == []


def test_ways_that_another_layer_closes_are_not_open() -> None:
    state = dict.fromkeys(confinement_layers.LAYERS, "on")
    assert confinement_layers.warning(state) is None
    state["network-namespace"] = "refused"
    assert confinement_layers.open_ways(state) == []
    text = confinement_layers.warning(state)
    assert text is not None
    assert "network-namespace (refused)" in text
    assert "max_user_namespaces" in text
    state["seccomp"] = "refused"
    assert any(way.startswith("network-namespace") for way in confinement_layers.open_ways(state))


@pytest.mark.slow
def test_doctor_looks_at_everything_and_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(capsys, "doctor", "--quick", "--device", "cpu", "--json", "-")
    examined = json.loads(out)
    findings = {finding["name"]: finding for finding in examined["findings"]}
    assert status == 0
    assert findings["torch"]["mark"] == "ok"
    assert findings["confinement: seccomp"]["value"] == examined["confinement"]["seccomp"]
    assert examined["noise_floor"] is None
    assert examined["versions"]["torch"]
    assert all(finding["cure"] for finding in findings.values() if finding["mark"] == "MISSING")


def test_a_missing_thing_is_exit_status_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = doctor_checks.Finding("torch", "MISSING", "not installed", "pip install torch")
    examination = doctor_checks.Examination([missing], {})
    monkeypatch.setattr(doctor_checks, "examine_machine", lambda *arguments, **options: examination)
    status, out = run(capsys, "doctor", "--device", "cpu")
    assert status == 3
    assert "pip install torch" in out
    assert "1 needed things are missing" in out
