"""A kernel folder (kernel.py with run(*inputs), kernel.json) through the dynamic validator.

Its code runs in this process, unconfined: for kernels that are trusted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from eval_harness.batch_invariance.dynamic_result import DynamicOutcome, DynamicResult
from eval_harness.batch_invariance.kernel_child import load_module
from eval_harness.batch_invariance.kernel_files import KERNEL_FILE, SPEC_FILE
from eval_harness.batch_invariance.kernel_nursery import CALL_TIMEOUT_S, KernelNursery
from eval_harness.batch_invariance.kernel_spec import KernelSpec, load_kernel_spec
from eval_harness.batch_invariance.runner import CallableRunner, one_line
from eval_harness.batch_invariance.validator import validate
from eval_harness.errors import UserError

LONG_TIMEOUT_S = 900.0


def find_kernel_folders(path: Path) -> list[Path]:
    """The folder itself if it is a kernel's, those below it otherwise, by name. UserError where there are none."""
    path = path.parent if path.name == KERNEL_FILE else path
    folders = [path] if (path / KERNEL_FILE).is_file() else sorted(file.parent for file in path.rglob(KERNEL_FILE))
    if not folders:
        raise UserError(f"{path}: no kernel folder; give one with {KERNEL_FILE} and {SPEC_FILE}, or a folder of them")
    return folders


def validate_folder(
    folder: Path,
    *,
    device: str = "cpu",
    seed: int = 0,
    confirm: bool = True,
    repeats: int = 0,
    nursery: KernelNursery | None = None,
) -> DynamicResult:
    """Validate one folder's kernel. A kernel that cannot be loaded is not applicable, with the reason.

    nursery: forks the fresh processes; share one among folders. Raises UserError for a malformed kernel.json.
    """
    spec = load_kernel_spec(folder)
    source = (folder / KERNEL_FILE).resolve()
    before = list(sys.path)
    try:
        try:
            run = load_module(source).run
        except Exception as error:
            return DynamicResult(DynamicOutcome.NOT_APPLICABLE, None, message=f"{source.name}: {one_line(error)}")
        timeout_s = LONG_TIMEOUT_S if spec.compile_s == "long" else CALL_TIMEOUT_S
        runner = CallableRunner(run, source=source, nursery=nursery, timeout_s=timeout_s)
        batch = rows_to_draw(spec)
        return validate(
            runner,
            spec.draw_inputs(batch, seed=seed, device=device),
            spec.layout(batch),
            base=spec.base_batch,
            limits=spec.limits,
            family=spec.family,
            seed=seed,
            confirm=confirm,
            repeats=repeats,
        )
    finally:
        sys.path[:] = before
        _forget(source.parent)


def rows_to_draw(spec: KernelSpec) -> int:
    """Rows of the largest batch the kernel takes: each row of the pool is then drawn, and none made from another."""
    return spec.max_batch // spec.batch_multiple_of * spec.batch_multiple_of


def _forget(folder: Path) -> None:
    """Unload a folder's modules: the next kernel may have helpers of the same names."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent == folder:
            del sys.modules[name]
