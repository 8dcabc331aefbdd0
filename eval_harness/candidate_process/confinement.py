"""Confinement of a candidate process: everything that a freshly forked child gives up before it runs a pass.

TLDR: namespaces -> read-only root, own /proc, /dev, scratch tmpfs -> environment -> limits -> no new privileges ->
Landlock -> no capabilities. Each layer is tried, and a layer that the kernel or the container refuses is recorded with
the reason instead of failing: confine() returns layer -> "on" or why it is off, and the verdict carries it.

Covered (where the layers are on): network, other processes, the host's files for writing, and for reading everything
but the interpreter, its packages, the system's libraries and the GPU driver; files crossing from one evaluation to the
next. Not covered: the process's own memory (a candidate may break itself, which is why no expected value or score is
ever in it), the GPU's memory, kernel bugs, use of CPU time (the judge's deadline).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import secrets
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eval_harness.candidate_process import landlock, mounts, namespaces, syscalls

_GIB = 1 << 30
_OWN_PACKAGES = ("data", "eval_harness", "trajectories", "training", "scripts", "configs")
_LIBRARIES = ("torch", "triton", "numba", "llvmlite", "numpy")
_SYSTEM_READ = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives",
    "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/gai.conf", "/etc/host.conf",
)
_DRIVER_READ = (
    "/usr/local/nvidia", "/usr/local/cuda", "/opt/nvidia", "/opt/cuda", "/run/nvidia", "/run/nvidia-persistenced",
    "/etc/nvidia", "/etc/vulkan", "/var/lib/nvidia", "/run/opengl-driver", "/nix/store",
)
_KEPT_VARIABLES = frozenset(
    {
        "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND",
        "NUMBA_THREADING_LAYER", "NUMBA_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_CUDA_ARCH_LIST", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "CC", "CXX", "MAX_JOBS",
        "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH",
    }
)  # fmt: skip
_COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "nvcc", "ninja", "ld", "as")
_SCRATCH_VARIABLES = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "TRITON_CACHE_DIR": "triton-cache",
    "TRITON_HOME": "triton-home",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor-cache",
    "NUMBA_CACHE_DIR": "numba-cache",
    "CUDA_CACHE_PATH": "cuda-cache",
    "XDG_CACHE_HOME": "user-cache",
}


@dataclass(frozen=True)
class ConfinementPolicy:
    """What one confined process may have. Plain values, so that it travels as JSON."""

    device: str = "cpu"
    """"cpu" or "cuda": whether the GPU's device nodes and driver files are there."""
    read_paths: tuple[str, ...] = ()
    """Further files or folders that may be read, such as a pass folder."""
    scratch_bytes: int = 4 * _GIB
    """Size of the private tmpfs for caches, temporary files and HOME; pages are taken when written."""
    shm_bytes: int = _GIB
    """Size of the private /dev/shm."""
    max_file_bytes: int = 16 * _GIB
    """RLIMIT_FSIZE."""
    max_open_files: int = 4096
    max_processes: int = 1024
    """RLIMIT_NPROC; the kernel does not hold it against root."""


def confine(policy: ConfinementPolicy) -> dict[str, str]:
    """Confine this process; to be called first thing in a freshly forked child with one thread.

    Forks once on the way (namespaces.enter_namespaces): the caller's process waits outside and ends as the confined one
    ends. Returns layer -> "on" or the reason why it is off. Does not raise for a layer that is refused.
    """
    gpu = policy.device.startswith("cuda")
    needed = [*interpreter_paths(), *policy.read_paths]
    compilers = compiler_folders()  # before HOME and PATH are replaced
    fallback = f"{tempfile.gettempdir()}/passwright-scratch-{secrets.token_hex(8)}"
    os.umask(0o077)
    state = namespaces.enter_namespaces(partial(shutil.rmtree, fallback, ignore_errors=True))
    scratch = _own_file_system(state, policy, needed, fallback, gpu=gpu)
    _scrub_environment(state, scratch)
    _limit_resources(state, policy)
    try:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        state["no-new-privileges"] = "on"
    except OSError as error:
        state["no-new-privileges"] = str(error.strerror)
    devices = ["/dev"] if state["private-dev"] == "on" else _bare_devices(gpu)
    write = [scratch] + (["/dev/shm"] if state["private-dev"] == "on" else [])
    read = [*needed, *_SYSTEM_READ, *compilers, *_library_path_folders(), *(_DRIVER_READ if gpu else ())]
    # the CUDA driver names its threads through /proc/self/task/<tid>/comm
    state |= landlock.restrict(read=read, write=write, devices=devices + (["/proc/self/task"] if gpu else []))
    try:
        syscalls.drop_all_capabilities()
        state["capabilities"] = "on"
    except OSError as error:
        state["capabilities"] = str(error.strerror)
    return state


def own_root() -> Path:
    """The folder that holds our packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parents[2]


def interpreter_paths() -> list[str]:
    """Folders that imports may still read: prefixes, standard library, site-packages; never a source checkout."""
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *site.getsitepackages()]
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin:
            folders.append(str(Path(spec.origin).parent.parent))
    found = {str(Path(folder).resolve()) for folder in folders}
    # "/" and a checkout that happens to be a prefix would open everything
    return sorted(path for path in found if path != "/" and Path(path) != own_root())


def compiler_folders() -> list[str]:
    """Installation folders of the compilers on PATH, in CC and in CXX: Triton and load_inline start them."""
    own_root = Path(__file__).resolve().parents[2]
    names = [*_COMPILERS, *(os.environ[name] for name in ("CC", "CXX") if os.environ.get(name))]
    folders = set()
    for name in names:
        found = shutil.which(name)
        for path in {Path(found), Path(found).resolve()} if found else set():
            folder = path.parent.parent  # /opt/gcc/bin/gcc -> /opt/gcc
            opens_too_much = folder in (Path("/"), Path.home(), Path("/root")) or own_root.is_relative_to(folder)
            if path.parent.name == "bin" and not opens_too_much:
                folders.add(str(folder))
    return sorted(folders)


def _own_file_system(
    state: dict[str, str], policy: ConfinementPolicy, needed: list[str], fallback: str, *, gpu: bool
) -> str:
    """Mount what the policy asks for; the folder that may be written. fallback is made only when it is needed."""
    layers = ("read-only-root", "proc", "private-tmp", "private-dev", "hidden-sources")
    if state["mount-namespace"] != "on":
        state |= dict.fromkeys(layers, "needs the mount namespace")
        Path(fallback).mkdir(mode=0o700)
        return fallback

    def attempt(layer: str, action: Callable[..., object], *arguments: object, **options: object) -> bool:
        try:
            action(*arguments, **options)
            state[layer] = "on"
        except OSError as error:
            state[layer] = str(error.strerror or error)
        return state[layer] == "on"

    scratch = mounts.choose_scratch_point(needed)
    with contextlib.suppress(OSError):
        mounts.detach()
    if scratch is None:  # every usual folder holds something needed: cover a new one of our own
        scratch = fallback
        Path(fallback).mkdir(mode=0o700)
    if not attempt("private-tmp", mounts.mount_scratch, scratch, policy.scratch_bytes):
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
        attempt("private-dev", mounts.mount_own_dev, scratch, policy.shm_bytes, gpu=gpu)
    else:
        state["private-dev"] = "needs the private tmpfs"
    # installed among the readable packages, our own would hand over bundled passes and the judge's source
    readable = any(own_root().is_relative_to(path) for path in [*needed, *_SYSTEM_READ])
    attempt("hidden-sources", mounts.hide, [str(own_root() / name) for name in _OWN_PACKAGES if readable])
    return scratch


def _scrub_environment(state: dict[str, str], scratch: str) -> None:
    for name in list(os.environ):
        if name not in _KEPT_VARIABLES and not name.startswith("LC_"):
            del os.environ[name]
    state["environment"] = "on"
    for name, folder in _SCRATCH_VARIABLES.items():
        path = Path(scratch) / folder
        os.environ[name] = str(path)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            state["environment"] = f"no scratch folder at {scratch} ({error.strerror})"
    os.environ.setdefault("PATH", os.defpath)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    tempfile.tempdir = None  # forget the folder that was chosen before
    os.chdir(os.environ["HOME"] if state["environment"] == "on" else "/")
    # a module must never be found in a folder that the candidate can write
    sys.path[:] = [entry for entry in sys.path if entry and not Path(entry).is_relative_to(scratch)]
    sys.path_importer_cache.clear()


def _limit_resources(state: dict[str, str], policy: ConfinementPolicy) -> None:
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, policy.max_open_files),
        (resource.RLIMIT_FSIZE, policy.max_file_bytes),
    ]
    if state["user-namespace"] == "on":
        # outside a user namespace it would count, and be used up by, all of the user's processes
        wanted.append((resource.RLIMIT_NPROC, policy.max_processes))
    refused = []
    for kind, limit in wanted:
        _, hard = resource.getrlimit(kind)
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError) as error:
            refused.append(str(error))
    state["rlimits"] = "; ".join(refused) or "on"


def _bare_devices(gpu: bool) -> list[str]:
    names = ["null", "zero", "full", "random", "urandom"]
    nodes = [f"/dev/{name}" for name in names]
    if gpu:
        nodes += [str(path) for path in Path("/dev").glob("nvidia*")]
    return nodes


def _library_path_folders() -> list[str]:
    variables = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
    folders = [folder for name in variables for folder in os.environ.get(name, "").split(":")]
    return [folder for folder in folders if folder.startswith("/") and not own_root().is_relative_to(folder)]


def probe_layers(device: str = "cpu") -> dict[str, str]:
    """Which layers this machine grants, found by confining a throwaway interpreter. For `passwright doctor`."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from eval_harness.candidate_process.confinement import ConfinementPolicy, confine\n"
        "print(json.dumps(confine(ConfinementPolicy(device=sys.argv[2]))), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(own_root()), device], capture_output=True, text=True, timeout=60, check=False
    )
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return {"confinement": f"could not be tried ({lines[-1] if lines else f'exit {done.returncode}'})"}
