"""What each layer of a candidate's confinement is for, and what to do where a machine refuses it. No torch, no policy.

The layers themselves are in candidate_process/confinement.py; docs/containers.md has the recipes by kind of container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_USERNS = (
    "let ordinary users make user namespaces (sysctl user.max_user_namespaces and "
    "kernel.apparmor_restrict_unprivileged_userns=0); in Docker start with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
_MOUNTS = "it follows from the user and mount namespaces: see those"
_LANDLOCK = "Linux 5.13 or newer with landlock in the boot parameter lsm=; a container's filter must allow its calls"


@dataclass(frozen=True)
class Layer:
    """One layer: what a candidate that slipped through the source rules could do without it, and the cure."""

    without: str
    cure: str


LAYERS = {
    "user-namespace": Layer("there is no right to make the other namespaces", _USERNS),
    "mount-namespace": Layer("the host's file system is seen as it is", _USERNS),
    "pid-namespace": Layer("other processes can be seen, and signalled where Landlock is old", _USERNS),
    "network-namespace": Layer("the network stays, where seccomp is off too", _USERNS),
    "ipc-namespace": Layer("shared memory outlives an evaluation, where seccomp is off too", _USERNS),
    "read-only-root": Layer("files can be changed, where Landlock is off too", f"Linux 5.12 or newer; {_MOUNTS}"),
    "proc": Layer(
        "other processes' command lines can be read",
        "the container masks parts of /proc: Docker --security-opt systempaths=unconfined, Kubernetes procMount "
        "Unmasked, podman --security-opt unmask=ALL",
    ),
    "private-tmp": Layer("files cross from one evaluation to the next, where Landlock is off too", _MOUNTS),
    "private-dev": Layer("files in /dev/shm cross from one evaluation to the next", _MOUNTS),
    "hidden-sources": Layer("an installed judge's source can be read (it holds no secrets)", _MOUNTS),
    "environment": Layer("variables of the machine can be read", "make the temporary folder writable"),
    "rlimits": Layer("core files, huge files, real-time threads", "raise the hard limits (ulimit -H)"),
    "process-limit": Layer(
        "a fork bomb runs until its deadline",
        "Linux 5.5 or newer with seccomp listeners, or a limit of the container: Docker and podman --pids-limit 4096, "
        "Kubernetes podPidsLimit, Slurm with task/cgroup",
    ),
    "killed-first": Layer("when memory runs out the judge may be killed instead", "make /proc/self writable"),
    "no-new-privileges": Layer("programs with set-user-id keep their power", "use a kernel since Linux 3.5"),
    "landlock": Layer("the repository, home and other evaluations' files can be read", _LANDLOCK),
    "landlock-tcp": Layer("TCP stays, where neither a network namespace nor seccomp is on", f"Linux 6.7; {_LANDLOCK}"),
    "landlock-scope": Layer(
        "signals reach processes outside, where there is no PID namespace", f"Linux 6.12; {_LANDLOCK}"
    ),
    "capabilities": Layer("root keeps its rights", "run the judge as an ordinary user"),
    "seccomp": Layer(
        "the kernel's rarely used calls stay: ptrace, io_uring, bpf, keys, sockets of every family",
        "x86_64 or aarch64 with CONFIG_SECCOMP_FILTER; gVisor and some runtimes have no filters inside",
    ),
}
"""Layer -> what it is for. Every layer that confine() tells of is here."""

_COVERED_BY = {
    "read-only-root": ("landlock",),
    "network-namespace": ("seccomp",),
    "landlock-tcp": ("network-namespace", "seccomp"),
    "ipc-namespace": ("seccomp",),
    "landlock-scope": ("pid-namespace", "seccomp"),
    "pid-namespace": ("landlock-scope", "seccomp"),
    "private-tmp": ("landlock",),
    "private-dev": ("landlock",),
    "hidden-sources": (),
}
"""Layer -> layers of which any one closes the same way."""


def layers_off(state: Mapping[str, str]) -> dict[str, str]:
    """Layer -> why, for each that is not on."""
    return {layer: why for layer, why in state.items() if why != "on"}


def open_ways(state: Mapping[str, str]) -> list[str]:
    """What a candidate that slips through the source rules could do here: layers that are off with nothing in their
    place."""
    return [
        f"{layer}: {LAYERS[layer].without}"
        for layer in layers_off(state)
        if layer in LAYERS and not any(state.get(other) == "on" for other in _COVERED_BY.get(layer, ()))
    ]


def cure(layer: str) -> str:
    """What to do about a layer that is off."""
    return LAYERS[layer].cure if layer in LAYERS else "see docs/containers.md"


def warning(state: Mapping[str, str]) -> str | None:
    """One line for a log: layers that are off, why, and where the cure stands; None when all are on."""
    off = layers_off(state)
    if not off:
        return None
    shown = "; ".join(f"{layer} ({why})" for layer, why in off.items())
    first = next(iter(off))
    return (
        f"candidates are confined by {len(state) - len(off)} of {len(state)} layers. Off: {shown}. First cure: "
        f"{cure(first)}. `passwright doctor` has the others; docs/containers.md says which verdicts to trust"
    )
