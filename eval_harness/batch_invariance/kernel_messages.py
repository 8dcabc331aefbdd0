"""Arguments and results of a kernel as JSON and a memory file, and the settings that decide bits besides the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from eval_harness.batch_invariance.rows import memory_order
from eval_harness.tensor_exchange import MemoryFile, Slot, lay_out


def pack(values: Sequence[Any]) -> tuple[MemoryFile, list[dict[str, Any]]]:
    """Tensors and plain numbers as a memory file and its description. TypeError for anything else."""
    layout: list[dict[str, Any]] = []
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            order = memory_order(value)
            # laid out as it lies in memory: strides are part of what a kernel is given
            dense = value.detach().permute(order).contiguous() if order else value.detach()
            layout.append(
                {
                    "dtype": str(value.dtype).removeprefix("torch."),
                    "shape": list(dense.shape),
                    "order": list(order),
                    "device": str(value.device),
                    "num_bytes": dense.nbytes,
                }
            )
            tensors.append(dense)
        elif isinstance(value, float):
            layout.append({"float": value.hex()})
        elif value is None or isinstance(value, bool | int | str):
            layout.append({"value": value})
        else:
            raise TypeError(f"a {type(value).__name__} cannot be given to a kernel in another process")
    slots, size = lay_out([(str(i), "torch.uint8", (tensor.nbytes,)) for i, tensor in enumerate(tensors)])
    file = MemoryFile.create(size, sealed_for_others=False)
    for slot, tensor in zip(slots, tensors, strict=True):
        file.write(slot, tensor)
    return file, layout


def unpack(descriptor: int, size: int, layout: Sequence[Mapping[str, Any]], *, to_device: bool = False) -> list[Any]:
    """The inverse of pack; closes the descriptor. Tensors come on the CPU, or on the device they were on."""
    file = MemoryFile.attach(descriptor, size, writable=False)
    try:
        slots, _ = lay_out([("", "torch.uint8", (entry["num_bytes"],)) for entry in layout if "dtype" in entry])
        taken = iter(slots)
        return [_value(entry, file, taken, to_device) for entry in layout]
    finally:
        file.close()


def _value(entry: Mapping[str, Any], file: MemoryFile, slots: Any, to_device: bool) -> Any:
    if "float" in entry:
        return float.fromhex(entry["float"])
    if "dtype" not in entry:
        return entry["value"]
    slot: Slot = next(slots)
    raw, dtype = file.read(slot), getattr(torch, entry["dtype"])
    dense = raw.view(dtype).reshape(entry["shape"]) if raw.numel() else torch.empty(entry["shape"], dtype=dtype)
    if to_device:
        dense = dense.to(entry["device"])
    order = entry["order"]
    return dense.permute([order.index(dim) for dim in range(len(order))]) if order else dense


def numeric_settings() -> dict[str, Any]:
    """Settings of this process that change bits: a fresh process must have the same, or it differs for no fault."""
    return {
        "num_threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "fp16_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def apply_settings(settings: Mapping[str, Any]) -> None:
    """Take over what numeric_settings said."""
    torch.set_num_threads(settings["num_threads"])
    os.environ["NUMBA_NUM_THREADS"] = os.environ.get("NUMBA_NUM_THREADS", str(settings["num_threads"]))
    torch.set_float32_matmul_precision(settings["matmul_precision"])
    torch.backends.cudnn.allow_tf32 = settings["cudnn_tf32"]
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = settings["fp16_reduction"]
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = settings["bf16_reduction"]
    torch.use_deterministic_algorithms(settings["deterministic"])
