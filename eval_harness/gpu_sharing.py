"""Who else may use a GPU: other processes, MIG slices, MPS, the compute mode. From nvidia-smi and /proc; no CUDA.

What shares a GPU shares its clocks, caches and memory bandwidth, so a speedup measured beside it is the neighbour's as
much as the candidate's. Not covered: neighbours that a container hides (nvidia-smi then lists nobody; utilisation and
used memory still show them), virtual GPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.process_tree import descendants, is_running

SMI_TIMEOUT_S = 20.0
"""A wedged driver makes nvidia-smi hang; the facts are then left out."""
REMEMBERED_S = 60.0
"""For records: nvidia-smi takes up to a second, and a verdict must not."""
MPS_DAEMON = "nvidia-cuda-mps-control"
DEFAULT_MPS_FOLDER = "/tmp/nvidia-mps"
YIELDING = "passwright-yields-"
"""Beginning of a file in the temporary folder; its end is the pid of a process that, with all below it, leaves the GPU
alone while somebody holds the device's lock (a server that is paused)."""
_NAME_LIMIT = 15
"""/proc/<pid>/comm is cut to this length."""


@dataclass(frozen=True)
class GpuProcess:
    """One process that holds a context on the GPU."""

    pid: int
    name: str
    memory: str


@dataclass(frozen=True)
class GpuSharing:
    """What nvidia-smi says of one GPU now."""

    mig: bool | None
    """MIG mode is on; None where the GPU has no such mode."""
    mig_device: str | None
    """The slice that CUDA_VISIBLE_DEVICES chooses."""
    mps: bool
    """An MPS daemon runs on this machine, or its folder is set."""
    compute_mode: str
    """"Default", "Exclusive_Process", "Prohibited"."""
    utilization_percent: int | None
    """Over the last sample period, this process's own work included. None on a MIG slice."""
    memory_used_mib: int | None
    others: tuple[GpuProcess, ...]
    """Processes that neither are this one nor were started below it, nor yield the GPU (see YIELDING)."""

    @property
    def is_exclusive(self) -> bool:
        """Only one process may hold a context: candidate and reference need one each at the same time."""
        return self.compute_mode not in ("Default", "N/A")

    def warnings(self) -> list[tuple[str, str]]:
        """What makes timings doubtful here, each with what to do about it."""
        found = []
        if self.others:
            shown = ", ".join(f"{other.name} (pid {other.pid}, {other.memory})" for other in self.others[:3])
            through = "at the same time, through MPS" if self.mps else "in turns"
            found.append(
                (
                    f"{len(self.others)} other processes use this GPU {through}: {shown}; timings "
                    "beside them are not to be trusted",
                    "stop them, or choose another GPU with CUDA_VISIBLE_DEVICES",
                )
            )
        if self.mps:
            found.append(
                (
                    "an MPS daemon runs: its clients share the GPU at the same time",
                    f"stop it (echo quit | {MPS_DAEMON}) and unset CUDA_MPS_PIPE_DIRECTORY",
                )
            )
        if self.mig:
            found.append(
                (
                    f"MIG is on: {self.mig_device or 'the first slice'} shares power and clocks with the other slices",
                    "compare speedups from one slice size only; headline numbers need a whole GPU (nvidia-smi -mig 0)",
                )
            )
        if self.is_exclusive:
            found.append(
                (
                    f"compute mode is {self.compute_mode}: candidate and reference need a context each",
                    "nvidia-smi -c DEFAULT",
                )
            )
        return found


def query(*arguments: str) -> str | None:
    """Standard output of nvidia-smi, None where there is none or it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout


def selected(device: str) -> str:
    """How nvidia-smi names a device of CUDA's numbering ("cuda", "cuda:1"): an index or UUID."""
    index = int(device.split(":")[1]) if ":" in device else 0
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    return visible[index] if index < len(visible) else str(index)


def whole_gpu(device: str) -> str | None:
    """The same, for a MIG slice the GPU that it is part of; None if nvidia-smi knows no such slice."""
    chosen = selected(device)
    return _parent_of_slice(chosen) if chosen.startswith("MIG-") else chosen


def look(device: str) -> GpuSharing | None:
    """The sharing of a CUDA device now; None where nvidia-smi does not answer."""
    chosen = selected(device)
    mig_device = chosen if chosen.startswith("MIG-") else None
    gpu = whole_gpu(device)
    fields = "uuid,mig.mode.current,compute_mode,utilization.gpu,memory.used"
    answer = query(f"--id={gpu}", f"--query-gpu={fields}", "--format=csv,noheader,nounits") if gpu else None
    if not answer or not answer.strip():
        return None
    cells = [cell.strip() for cell in answer.strip().splitlines()[0].split(",")]
    if len(cells) != 5:
        return None
    uuid, mig, mode, utilization, memory = cells
    return GpuSharing(
        mig=None if mig.strip("[]") == "N/A" else mig == "Enabled",
        mig_device=mig_device,
        mps=mps_is_there(),
        compute_mode=mode.strip("[]"),
        utilization_percent=_number(utilization),
        memory_used_mib=_number(memory),
        others=other_processes(uuid),
    )


_remembered: dict[str, tuple[float, dict[str, Any]]] = {}


def record(device: str) -> dict[str, Any]:
    """For a verdict's machine record: mig, mps, other_processes (a count), and gpu_warnings if there are any."""
    at, facts = _remembered.get(device, (0.0, {}))
    if not facts or time.monotonic() - at > REMEMBERED_S:
        sharing = look(device)
        if sharing is None:
            facts = {"mig": None, "mps": mps_is_there(), "other_processes": None}
        else:
            facts = {"mig": sharing.mig, "mps": sharing.mps, "other_processes": len(sharing.others)}
            warnings = [f"{fact}: {cure}" for fact, cure in sharing.warnings()]
            facts |= {"gpu_warnings": warnings} if warnings else {}
        _remembered[device] = (time.monotonic(), facts)
    return dict(facts)


def other_processes(uuid: str) -> tuple[GpuProcess, ...]:
    """Processes with a context on the GPU that are not ours.

    A container may see pids of the host, which name nobody here: as many of them as we have processes may be our own.
    """
    answer = query("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader")
    rows = [[cell.strip() for cell in line.split(",", 3)] for line in (answer or "").splitlines()]
    found = [GpuProcess(int(row[1]), Path(row[3]).name, row[2]) for row in rows if len(row) == 4 and row[0] == uuid]
    ours = {pid for root in (os.getpid(), *yielding()) for pid in (root, *descendants(root))}
    known = [process for process in found if process.pid not in ours and Path(f"/proc/{process.pid}").exists()]
    unknown = [process for process in found if not Path(f"/proc/{process.pid}").exists()]
    return (*known, *unknown[len(ours) - 1 :])


def yielding() -> list[int]:
    """Processes that leave the GPU alone while the device's lock is held; see YIELDING."""
    marks = Path(tempfile.gettempdir()).glob(f"{YIELDING}*")
    pids = [int(mark.name.removeprefix(YIELDING)) for mark in marks if mark.name.removeprefix(YIELDING).isdigit()]
    return [pid for pid in pids if is_running(pid)]


def mps_is_there() -> bool:
    """Whether an MPS daemon runs here or CUDA is told of one."""
    folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    if folder or Path(DEFAULT_MPS_FOLDER, "control").exists():
        return True
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            if entry.read_text().strip() == MPS_DAEMON[:_NAME_LIMIT]:
                return True
        except OSError:
            continue
    return False


def _parent_of_slice(slice_uuid: str) -> str | None:
    """UUID of the GPU that a MIG slice is part of, from `nvidia-smi -L`."""
    gpu = None
    for line in (query("-L") or "").splitlines():
        uuid = line.rsplit("(UUID:", 1)[1].strip(" )") if "(UUID:" in line else None
        if line.startswith("GPU "):
            gpu = uuid
        elif uuid == slice_uuid:
            return gpu
    return None


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None
