"""DispatchGuard: records what torch itself computes during a call of a replacement.

A dispatch mode sees every operator that reaches torch's dispatcher, from Python, from C++ (load_inline goes through the
same dispatcher) and through any alias, which no source rule and no tensor subclass does (torch.empty escapes a
subclass). Allowed are allocation, views, metadata, dtype casts and contiguous copies; casts and copies are counted,
because they are a violation when they are all the work. Not seen: numba and numpy (source rules), kernels launched
without the dispatcher (provenance, on a GPU), values that were computed before the guard was on (fresh inputs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from eval_harness.candidate_process.copy_ledger import CopyLedger


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


ALLOCATION_OPS = _ops(
    "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones "
    "full full_like new_full zero_ fill_ scalar_tensor lift_fresh lift"
)
VIEW_OPS = _ops(
    "view _unsafe_view _reshape_alias reshape as_strided expand expand_as permute transpose t squeeze unsqueeze "
    "select slice split split_with_sizes chunk unbind narrow diagonal unfold alias detach view_as view_as_real "
    "view_as_complex view_dtype movedim swapaxes flatten unflatten contiguous_view real imag numpy_T mT"
)
METADATA_OPS = _ops(
    "size stride sym_size sym_stride sym_numel sym_storage_offset numel dim is_contiguous is_strides_like_format "
    "is_non_overlapping_and_dense device layout storage_offset is_same_size _version record_stream"
)
COPY_OPS = frozenset("clone contiguous copy_ _to_copy to _copy_from detach_copy".split())  # noqa: SIM905
READ_OPS = _ops("_local_scalar_dense item is_nonzero equal")


class DispatchGuard(TorchDispatchMode):
    """Records the operators that run while it is active; asks nothing of the code it watches.

        guard = DispatchGuard()
        with guard:
            outputs = replacement(*arguments)
        guard.violations()
    """

    def __init__(self, arguments: Iterable[object] = ()) -> None:
        super().__init__()
        self._ledger = CopyLedger(arguments)
        self.counts: Counter[str] = Counter()
        """Operator, such as "aten::relu" -> calls, over every use of this guard."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        self.counts[name] += 1
        result = func(*args, **(kwargs or {}))
        if name.removeprefix("aten::") in COPY_OPS:
            self._ledger.copied(args[0] if name != "aten::copy_" else args[1], result)
        return result

    def _counts_of(self, names: Iterable[str]) -> Counter[str]:
        wanted = {f"aten::{name}" for name in names}
        return Counter({name: count for name, count in self.counts.items() if name in wanted})

    @property
    def num_copies(self) -> int:
        """Dtype casts and copies."""
        return self._counts_of(COPY_OPS).total()

    def compute_ops(self) -> Counter[str]:
        """Operators that are neither allocation, view, metadata nor copy; operators of other libraries too."""
        free = self._counts_of(ALLOCATION_OPS | VIEW_OPS | METADATA_OPS | COPY_OPS)
        return self.counts - free

    def only_copies(self, outputs: object) -> bool:
        """Whether what a call returned is nothing but torch's copies and casts of what it was given."""
        return not self.compute_ops() and self._ledger.only_copies(outputs)

    def violations(self, outputs: object = ()) -> list[dict[str, Any]]:
        """One {rule, op, count, message} for each operator that may not run. Plain data for the judge.

        outputs: what the watched call returned.
        """
        found = []
        if self.only_copies(outputs):
            message = "torch's casts and copies are the whole work; compute the outputs in a kernel of your own"
            found.append({"rule": "dispatch.only-copies", "op": "", "count": self.num_copies, "message": message})
        for name, count in sorted(self.compute_ops().items()):
            if name.removeprefix("aten::") in READ_OPS:
                rule, cure = "dispatch.read", "brings a tensor's value to the host; read it in the kernel"
            else:
                rule, cure = "dispatch.compute-op", "was computed by torch during the call; write it in your kernel"
            found.append({"rule": rule, "op": name, "count": count, "message": f"{name} {cure}"})
        return found


def check_plain_tensor(tensor: object) -> str | None:
    """Why an output is no plain tensor with memory of its own, or None. Subclasses could compute when looked at."""
    if type(tensor) is not torch.Tensor:
        return f"a {type(tensor).__name__}, not a plain torch.Tensor; return what torch.empty or from_numpy made"
    if tensor.__dict__:
        return f"a tensor with attributes of its own ({', '.join(sorted(tensor.__dict__))}); return it untouched"
    if tensor.requires_grad:
        return "a tensor that asks for gradients; return one made without requires_grad"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}; return a strided one"
    if tensor.device.type == "meta" or tensor.is_quantized or tensor.is_neg() or tensor.is_conj():
        return "a tensor that stands for others (meta, quantized, lazy negative or conjugate); return its values"
    if tensor.numel() and not tensor.untyped_storage().data_ptr():
        return "a tensor without memory; return one that holds the values"
    return None
