"""A model and its inputs in another floating-point type, as they would be loaded in it for inference."""

from __future__ import annotations

from typing import Any

import torch


def cast_weights(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Parameters and stored buffers in `dtype`, in place; batch normalisation and computed tables keep float32.

    Statistics in half precision would be other statistics, and PyTorch takes a batch norm in one type only. Buffers
    that no checkpoint stores (rotary frequencies) are computed in float32 whatever the model is loaded in.
    """
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            continue
        for parameter in part._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                part._buffers[name] = cast_floats(buffer, dtype)
    return module


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """A tensor of floats in `dtype`; lists, tuples and dicts item by item; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(cast_floats(item, dtype) for item in value)
    if isinstance(value, dict):
        return {name: cast_floats(item, dtype) for name, item in value.items()}
    return value


def copy_same_shapes(source: torch.nn.Module, target: torch.nn.Module) -> torch.nn.Module:
    """The target with the source's weights wherever name and shape agree: the same model for another input size."""
    shapes = {name: value.shape for name, value in target.state_dict().items()}
    same = {name: value for name, value in source.state_dict().items() if shapes.get(name) == value.shape}
    target.load_state_dict(same, strict=False)
    return target
