"""Confinement of a candidate process: everything that a freshly forked child gives up before it runs a pass.

TLDR: killed first when memory runs out -> namespaces -> read-only root, own /proc, /dev, scratch tmpfs -> environment
-> limits -> no new privileges -> Landlock -> no capabilities -> probes -> seccomp -> limit of processes. Each layer is
tried, and a layer that the kernel or the container refuses, or through which its probe gets (probes.py), is recorded
with the reason instead of failing: confine() returns layer -> "on" or why it is off, and the verdict carries it. What
each layer is for is in eval_harness/confinement_layers.py.

Covered (where the layers are on): network, other processes, the host's files for writing, and for reading everything
but the interpreter, its packages, the system's libraries and the GPU driver; files crossing from one evaluation to the
next; the number of processes. Not covered: the process's own memory (a candidate may break itself, which is why no
expected value or score is ever in it), the GPU's memory, kernel bugs, use of CPU time (the judge's deadline).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eval_harness.candidate_process import (
    environment,
    fork_limit,
    landlock,
    limits,
    mounts,
    namespaces,
    probes,
    readable,
    seccomp,
    syscalls,
)
from eval_harness.own_memory import guard_memory

_GIB = 1 << 30
SCRATCH_SHARE, SHM_SHARE = 0.25, 0.125
"""Of the memory: what a tmpfs holds is memory that nobody else has."""


@dataclass(frozen=True)
class ConfinementPolicy:
    """What one confined process may have. Plain values, so that it travels as JSON."""

    device: str = "cpu"
    """"cpu" or "cuda": whether the GPU's device nodes and driver files are there."""
    read_paths: tuple[str, ...] = ()
    """Further files or folders that may be read, such as a pass folder."""
    scratch_bytes: int = 4 * _GIB
    """Size of the private tmpfs for caches, temporary files and HOME, at most SCRATCH_SHARE of the memory; pages are
    taken when written."""
    shm_bytes: int = _GIB
    """Size of the private /dev/shm, at most SHM_SHARE of the memory."""
    max_file_bytes: int = 16 * _GIB
    """RLIMIT_FSIZE."""
    max_open_files: int = 4096
    max_processes: int = 1024
    """Processes and threads together."""


def confine(policy: ConfinementPolicy) -> dict[str, str]:
    """Confine this process; to be called first thing in a freshly forked child with one thread.

    Forks once on the way (namespaces.enter_namespaces): the caller's process waits outside and ends as the confined one
    ends. Returns layer -> "on" or the reason why it is off. Does not raise for a layer that is refused.
    """
    gpu = policy.device.startswith("cuda")
    needed = [*readable.interpreter_paths(), *policy.read_paths]
    compilers = readable.compiler_folders()  # before HOME and PATH are replaced
    fallback = f"{tempfile.gettempdir()}/passwright-scratch-{secrets.token_hex(8)}"
    home = os.environ.get("HOME", "")
    scratch_bytes = limits.share_of_memory(policy.scratch_bytes, SCRATCH_SHARE)
    os.umask(0o077)
    killed_first = limits.be_killed_first()
    before = probes.Before.look()
    remove_fallback = partial(shutil.rmtree, fallback, ignore_errors=True)
    state, gate = namespaces.enter_namespaces(remove_fallback, needs_proc=gpu)
    state["killed-first"] = killed_first
    scratch = _own_file_system(state, policy, needed, fallback, scratch_bytes, gpu=gpu)
    state["environment"] = environment.scrub(scratch)
    _attempt(state, "environment", environment.overwrite_initial)
    state["rlimits"] = limits.set_limits(
        max_open_files=policy.max_open_files,
        # without a tmpfs of its own, what it writes takes the host's disk
        max_file_bytes=policy.max_file_bytes if state["private-tmp"] == "on" else scratch_bytes,
        gpu=gpu,
    )
    _attempt(state, "no-new-privileges", syscalls.prctl, syscalls.PR_SET_NO_NEW_PRIVS, 1)
    devices = ["/dev"] if state["private-dev"] == "on" else _bare_devices(gpu)
    write = [scratch] + (["/dev/shm"] if state["private-dev"] == "on" else [])
    library_paths = readable.library_path_folders()
    read = [*needed, *readable.SYSTEM, *compilers, *library_paths, *(readable.DRIVER if gpu else ())]
    # the CUDA driver names its threads through /proc/self/task/<tid>/comm
    state |= landlock.restrict(read=read, write=write, devices=devices + (["/proc/self/task"] if gpu else []))
    _attempt(state, "capabilities", syscalls.drop_all_capabilities)
    expected = probes.Expected(
        scratch=scratch,
        scratch_bytes=scratch_bytes,
        hidden=tuple(_hidden_sources(needed)),
        unreadable=tuple(_outside(read, [str(readable.own_root() / "data/graph.py"), "/etc/hostname", "/etc/shadow"])),
        unwritable=("/", "/etc", str(readable.own_root()), sys.prefix, home),
    )
    probes.check_before_seccomp(state, before, expected)
    _filter_calls(state, policy, gate, gpu=gpu)
    gate.close()
    if state["pid-namespace"] != "on" and state["landlock"] != "on":
        guard_memory()  # from other candidates of the same user, whom nothing else keeps from /proc/<pid>/mem
    return state


def _attempt(state: dict[str, str], layer: str, action: Callable[..., object], *arguments: object) -> bool:
    """Record layer as on, or why it is refused; a layer that is off already stays so."""
    try:
        action(*arguments)
        state.setdefault(layer, "on")
    except OSError as error:
        state[layer] = str(error.strerror or error)
    return state[layer] == "on"


def _own_file_system(
    state: dict[str, str], policy: ConfinementPolicy, needed: list[str], fallback: str, scratch_bytes: int, *, gpu: bool
) -> str:
    """Mount what the policy asks for; the folder that may be written. fallback is made only when it is needed."""
    layers = ("read-only-root", "proc", "private-tmp", "private-dev", "hidden-sources")
    if state["mount-namespace"] != "on":
        state |= dict.fromkeys(layers, "needs the mount namespace")
        Path(fallback).mkdir(mode=0o700)
        return fallback
    attempt = partial(_attempt, state)
    scratch = mounts.choose_scratch_point(needed)
    with contextlib.suppress(OSError):
        mounts.detach()
    if scratch is None:  # every usual folder holds something needed: cover a new one of our own
        scratch = fallback
        Path(fallback).mkdir(mode=0o700)
    if not attempt("private-tmp", mounts.mount_scratch, scratch, scratch_bytes):
        scratch = fallback
        Path(fallback).mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            mounts.mount_over_itself(fallback)
    attempt("read-only-root", mounts.make_all_read_only_but, scratch)
    if state["pid-namespace"] == "on":
        attempt("proc", mounts.mount_own_proc)
    else:
        state["proc"] = "needs the PID namespace"
    if state["private-tmp"] == "on":
        shm_bytes = limits.share_of_memory(policy.shm_bytes, SHM_SHARE)
        attempt("private-dev", partial(mounts.mount_own_dev, gpu=gpu), scratch, shm_bytes)
    else:
        state["private-dev"] = "needs the private tmpfs"
    attempt("hidden-sources", mounts.hide, _hidden_sources(needed))
    return scratch


def _hidden_sources(needed: list[str]) -> list[str]:
    """Installed among the readable packages, our own would hand over bundled passes and the judge's source."""
    is_readable = any(readable.own_root().is_relative_to(path) for path in [*needed, *readable.SYSTEM])
    return [str(readable.own_root() / name) for name in readable.OWN_PACKAGES if is_readable]


def _filter_calls(state: dict[str, str], policy: ConfinementPolicy, gate: fork_limit.Gate, *, gpu: bool) -> None:
    """seccomp, and with its help the limit of processes where the kernel's own does not hold."""
    is_limited = _limit_processes(state, policy.max_processes)
    families = (socket.AF_UNIX, socket.AF_NETLINK) if gpu else (socket.AF_UNIX,)
    alone = None if state["pid-namespace"] == "on" else os.getpid()
    wanted = seccomp.Filter(families, own_pid_only=alone, counts_forks=not is_limited)
    try:
        listener = seccomp.install(wanted)
        state["seccomp"] = "on"
        if listener is not None:
            gate.hand_over(listener)
            state["process-limit"] = "a thread beyond it is not refused" if fork_limit.can_start_thread() else "on"
            gate.open(policy.max_processes)
    except OSError as error:
        if is_limited:
            state["seccomp"] = str(error.strerror or error)
        else:  # the filter without the listener
            state["process-limit"] += f"; and no listener ({error.strerror or error})"
            wanted = seccomp.Filter(families, own_pid_only=alone)
            _attempt(state, "seccomp", seccomp.install, wanted)
    probes.check_seccomp(state)


def _limit_processes(state: dict[str, str], max_processes: int) -> bool:
    """RLIMIT_NPROC where it counts this process's own alone, tried with one more thread."""
    if state["user-namespace"] != "on":
        state["process-limit"] = "without a user namespace the kernel counts all of the user's processes"
        return False
    try:
        limits.limit_processes(max_processes)
        before = limits.soft_process_limit(1)
        holds = not fork_limit.can_start_thread()
        limits.soft_process_limit(before)
    except (OSError, ValueError) as error:
        state["process-limit"] = f"refused ({error})"
        return False
    state["process-limit"] = "on" if holds else "the kernel does not hold RLIMIT_NPROC against root"
    return holds


def _outside(read: list[str], candidates: list[str]) -> list[str]:
    return [path for path in candidates if not any(Path(path).is_relative_to(folder) for folder in read)]


def _bare_devices(gpu: bool) -> list[str]:
    names = ["null", "zero", "full", "random", "urandom"]
    nodes = [f"/dev/{name}" for name in names]
    if gpu:
        nodes += [str(path) for path in Path("/dev").glob("nvidia*")]
    return nodes


def probe_layers(device: str = "cpu") -> dict[str, str]:
    """Which layers this machine grants, found by confining a throwaway interpreter. For `passwright doctor`."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from eval_harness.candidate_process.confinement import ConfinementPolicy, confine\n"
        "print(json.dumps(confine(ConfinementPolicy(device=sys.argv[2]))), flush=True)"
    )
    command = [sys.executable, "-c", code, str(readable.own_root()), device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return {"confinement": f"could not be tried ({lines[-1] if lines else f'exit {done.returncode}'})"}
