"""The environment of a confined process: an allow-list of variables, and caches and temporary files in its scratch.

The variables with which the process was started stay readable in /proc/<pid>/environ whatever is deleted later, so
that memory is overwritten as well.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path

_KEPT = frozenset(
    {
        "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND",
        "NUMBA_THREADING_LAYER", "NUMBA_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_CUDA_ARCH_LIST", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "CC", "CXX", "MAX_JOBS",
        "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH",
    }
)  # fmt: skip
_SCRATCH_FOLDERS = {
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


def scrub(scratch: str) -> str:
    """Keep the allowed variables, point caches below scratch, change to HOME there. "on", or what was not possible."""
    state = "on"
    for name in list(os.environ):
        if name in _KEPT or name.startswith("LC_"):
            os.environ[name] = os.environ[name]  # a copy of its own: the original is overwritten below
        else:
            del os.environ[name]
    for name, folder in _SCRATCH_FOLDERS.items():
        path = Path(scratch) / folder
        os.environ[name] = str(path)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            state = f"no scratch folder at {scratch} ({error.strerror})"
    os.environ.setdefault("PATH", os.defpath)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    tempfile.tempdir = None  # forget the folder that was chosen before
    os.chdir(os.environ["HOME"] if state == "on" else "/")
    # a module must never be found in a folder that the candidate can write
    sys.path[:] = [entry for entry in sys.path if entry and not Path(entry).is_relative_to(scratch)]
    sys.path_importer_cache.clear()
    return state


def overwrite_initial() -> None:
    """Zero the block of variables that the kernel shows in /proc/self/environ; after scrub(). Raises OSError."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
    if start == 0 or end <= start:
        raise OSError("the kernel does not say where it is")
    ctypes.memset(start, 0, end - start)
