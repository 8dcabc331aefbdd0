"""The checks of `passwright doctor`: each looks at one thing and says what follows. Nothing is changed."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from eval_harness import confinement_layers, gpu_sharing
from eval_harness.candidate_process.confinement import probe_layers
from scripts.machine import describe_machine, library_versions, list_gpus

if TYPE_CHECKING:
    from eval_harness.judge.noise_floor import NoisePoint

MIN_CORES = 2
MIN_MEMORY_GIB = 4.0
"""The quickstart was run with 2 cores; it peaks below 3 GiB."""
MIN_DISK_GIB = 2.0
HIDDEN_NEIGHBOUR_MIB = 1500
"""More used memory than an idle driver holds."""
QUIET = {"cpu": {"small": 0.06, "large": 0.03}, "cuda": {"small": 0.03, "large": 0.01}}
"""Half-width of an A/A interval that `strict` is to reach, by graph."""
NOISE_CURE = {
    "cpu": "stop what else runs here; fix the clock (cpupower frequency-set -g performance); more cores help",
    "cuda": "stop what else uses the GPU or the cores; fix its clock (nvidia-smi -lgc; -pm 1 keeps it awake)",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    mark: Literal["ok", "optional", "MISSING"]
    """optional: the quickstart runs without it, something else does not."""
    value: str
    cure: str = ""

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Examination:
    """Everything that was looked at: findings for a person, and the facts behind them for a program."""

    findings: list[Finding]
    facts: dict[str, Any]
    """device, machine, versions, confinement, gpu_sharing and noise_floor (None where it was not measured)."""

    @property
    def is_usable(self) -> bool:
        return all(finding.mark != "MISSING" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return self.facts | {"findings": [finding.as_dict() for finding in self.findings]}


def examine_machine(device: str, *, noise_seconds: float | None) -> Examination:
    """Every check, cheap ones first; noise_seconds None leaves the timing noise out. Raises HarnessError if an honest
    worker does not start."""
    machine = describe_machine()
    findings = [Finding("python", "ok", platform.python_version()), *_size(machine), *_libraries(), *_compilers()]
    findings += _gpus(machine["gpus"])
    facts: dict[str, Any] = {"device": device, "machine": machine, "versions": library_versions()}
    sharing = None
    if device.startswith("cuda"):
        sharing = gpu_sharing.look(device)
        findings += _sharing(sharing)
    layers = probe_layers(device.split(":")[0])
    findings += _confinement(layers)
    noise = None
    if noise_seconds is not None:
        from eval_harness.judge.noise_floor import measure_noise_floor  # imports torch

        noise = measure_noise_floor(device, noise_seconds)
        findings += _noise(noise, device)
    facts |= {
        "gpu_sharing": dataclasses.asdict(sharing) if sharing else None,
        "confinement": layers,
        "noise_floor": [dataclasses.asdict(point) for point in noise] if noise else None,
    }
    return Examination(findings, facts)


def default_device() -> str:
    """cuda where torch can use a GPU, else cpu."""
    if not list_gpus() or importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _size(facts: dict[str, Any]) -> list[Finding]:
    disk = shutil.disk_usage(".").free / 2**30
    cores, memory = facts["num_cores"], facts["memory_gib"]
    few = "" if cores >= MIN_CORES else "timings need a core for the judge beside the one that is measured"
    findings = [Finding("cores", "optional" if few else "ok", str(cores), few)]
    small = "" if memory >= MIN_MEMORY_GIB else f"the quickstart needs {MIN_MEMORY_GIB:.0f} GiB"
    findings.append(Finding("memory", "MISSING" if small else "ok", f"{memory} GiB", small))
    full = "" if disk >= MIN_DISK_GIB else "free some, or run in a folder on another disk"
    findings.append(Finding("disk here", "MISSING" if full else "ok", f"{disk:.1f} GiB free", full))
    return findings


def _libraries() -> list[Finding]:
    versions = library_versions()
    install = "pip install -e '.[{}]' -c constraints/cpu.txt"
    needed = dict.fromkeys(("torch", "numba"), "pip install -e . -c constraints/cpu.txt")
    needed |= dict.fromkeys(("transformers", "trl", "datasets", "accelerate"), install.format("train"))
    optional = {
        "triton": "passes for a GPU are written in it; comes with a CUDA build of torch (constraints/cuda.txt)",
        "vllm": "serves students on a GPU: pip install -e '.[serve]' -c constraints/cuda.txt",
        "deepspeed": "long contexts and many GPUs: pip install -e '.[cluster]' -c constraints/cuda.txt",
    }
    findings = []
    for name, cure in (needed | optional).items():
        if name in versions:
            findings.append(Finding(name, "ok", versions[name]))
        else:
            findings.append(Finding(name, "MISSING" if name in needed else "optional", "not installed", cure))
    return findings


def _compilers() -> list[Finding]:
    findings = []
    cxx = os.environ.get("CXX") or next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    if cxx is None:
        cure = "TorchInductor on CPU and C++ passes need it: install g++ (Debian: apt-get install g++)"
        findings.append(Finding("C++ compiler", "optional", "none found", cure))
    else:
        findings.append(Finding("C++ compiler", "ok", _first_line([cxx, "--version"])))
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        cure = "passes in CUDA C++ need it: install the CUDA toolkit of torch's CUDA version"
        findings.append(Finding("nvcc", "optional", "none found", cure))
    else:
        findings.append(Finding("nvcc", "ok", _first_line([nvcc, "--version"], last=True)))
    return findings


def _gpus(gpus: list[dict[str, str]]) -> list[Finding]:
    if not gpus:
        return [Finding("GPU", "optional", "none found", "--device cuda needs an NVIDIA GPU; --device cpu works here")]
    shown = "; ".join(f"{gpu['name']} {gpu['memory']} (driver {gpu['driver']})" for gpu in gpus)
    if importlib.util.find_spec("torch") is None:
        return [Finding("GPU", "optional", shown, "install torch to use it")]
    import torch

    if torch.version.cuda is None:
        return [Finding("GPU", "optional", shown, "this torch is a CPU build: install with constraints/cuda.txt")]
    if not torch.cuda.is_available():
        cure = f"torch's CUDA {torch.version.cuda} cannot use it: compare the driver's version with that"
        return [Finding("GPU", "optional", shown, cure)]
    return [Finding("GPU", "ok", shown)]


def _sharing(sharing: gpu_sharing.GpuSharing | None) -> list[Finding]:
    """Who else uses the GPU. Another user makes timings doubtful; only an exclusive mode stops evaluations."""
    if sharing is None:
        return [Finding("GPU sharing", "optional", "unknown", "nvidia-smi does not answer: is it on PATH?")]
    facts = f"{sharing.utilization_percent}% busy, {sharing.memory_used_mib} MiB used, mode {sharing.compute_mode}"
    mark: Literal["optional", "MISSING"] = "MISSING" if sharing.is_exclusive else "optional"
    findings = [Finding("GPU sharing", mark, fact, cure) for fact, cure in sharing.warnings()]
    if not sharing.others and (sharing.memory_used_mib or 0) > HIDDEN_NEIGHBOUR_MIB:
        cure = "a neighbour that this container does not see: choose another GPU, or look on the host"
        findings.append(Finding("GPU sharing", "optional", f"nobody is listed, but {facts}", cure))
    return findings or [Finding("GPU sharing", "ok", f"nobody else; {facts}")]


def _confinement(layers: dict[str, str]) -> list[Finding]:
    """The layers that confine a candidate; a container often refuses some of them."""
    findings = []
    for layer, state in layers.items():
        cure = "" if state == "on" else confinement_layers.cure(layer)
        findings.append(Finding(f"confinement: {layer}", "ok" if state == "on" else "optional", state, cure))
    ways = confinement_layers.open_ways(layers)
    if ways:
        shown = f"{len(ways)} ways are open to a candidate that slips through the source rules: {'; '.join(ways)}"
        findings.append(Finding("confinement", "optional", shown, "docs/containers.md says which verdicts to trust"))
    return findings


def _noise(points: Sequence[NoisePoint], device: str) -> list[Finding]:
    """A/A: eager against eager by the judge's clock."""
    kind = device.split(":")[0]
    findings = []
    for point in points:
        name = f"timing noise ({point.graph})"
        if point.half_width is None or point.worst_deviation is None or point.latency_us is None:
            findings.append(Finding(name, "optional", f"not measurable: {point.message}", NOISE_CURE[kind]))
            continue
        value = (
            f"A/A within {point.worst_deviation:.1%} of 1, half-width {point.half_width:.1%} "
            f"({point.num_runs} runs, {point.latency_us:.0f} us a call)"
        )
        quiet = QUIET[kind][point.graph]
        is_quiet = point.half_width <= quiet and point.worst_deviation <= 2 * quiet
        cure = "" if is_quiet else f"a half-width above {quiet:.0%}, or more than twice that from 1: {NOISE_CURE[kind]}"
        findings.append(Finding(name, "ok" if is_quiet else "optional", value, cure))
    return findings


def _first_line(command: list[str], *, last: bool = False) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error})"
    return answer[-1 if last else 0].strip() if answer else "runs"
