"""What a confined process may still read: the interpreter, installed packages, compilers, the GPU driver's files.

Found once a process: the zygote looks before it forks, so that workers do not.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import site
import sys
from pathlib import Path

OWN_PACKAGES = ("data", "eval_harness", "trajectories", "training", "scripts", "configs")
_LIBRARIES = ("torch", "triton", "numba", "llvmlite", "numpy")
SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives",
    "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/gai.conf", "/etc/host.conf",
)  # fmt: skip
DRIVER = (
    "/usr/local/nvidia", "/usr/local/cuda", "/opt/nvidia", "/opt/cuda", "/run/nvidia", "/run/nvidia-persistenced",
    "/etc/nvidia", "/etc/vulkan", "/var/lib/nvidia", "/run/opengl-driver", "/nix/store",
)  # fmt: skip
_COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "nvcc", "ninja", "ld", "as")


@functools.cache
def own_root() -> Path:
    """The folder that holds our packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parents[2]


@functools.cache
def interpreter_paths() -> tuple[str, ...]:
    """Folders that imports may still read: prefixes, standard library, site-packages; never a source checkout."""
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *site.getsitepackages()]
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin:
            folders.append(str(Path(spec.origin).parent.parent))
    found = {str(Path(folder).resolve()) for folder in folders}
    # "/" and a checkout that happens to be a prefix would open everything
    return tuple(sorted(path for path in found if path != "/" and Path(path) != own_root()))


@functools.cache
def compiler_folders() -> tuple[str, ...]:
    """Installation folders of the compilers on PATH, in CC and in CXX: Triton and load_inline start them."""
    names = [*_COMPILERS, *(os.environ[name] for name in ("CC", "CXX") if os.environ.get(name))]
    folders = set()
    for name in names:
        found = shutil.which(name)
        for path in {Path(found), Path(found).resolve()} if found else set():
            folder = path.parent.parent  # /opt/gcc/bin/gcc -> /opt/gcc
            opens_too_much = folder in (Path("/"), Path.home(), Path("/root")) or own_root().is_relative_to(folder)
            if path.parent.name == "bin" and not opens_too_much:
                folders.add(str(folder))
    return tuple(sorted(folders))


def library_path_folders() -> list[str]:
    """Folders that the dynamic linker and CUDA's tools are told of by variables."""
    variables = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
    folders = [folder for name in variables for folder in os.environ.get(name, "").split(":")]
    return [folder for folder in folders if folder.startswith("/") and not own_root().is_relative_to(folder)]
