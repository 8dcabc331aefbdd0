"""The paper's two showcase models, randomly initialised, for `passwright apply --model examples/showcase_models.py:NAME`.

    passwright apply --pass-dir examples/mask_pooling_h2_numba/pass_dir --model examples/showcase_models.py:bge_like
    passwright apply --pass-dir examples/window_layernorm_h1_numba/pass_dir --model examples/showcase_models.py:maskformer_swin

With the Triton folders and `--device cuda`: bge_like_bf16 and maskformer_swin_paper, the paper's sizes and dtype.
"""  # noqa: E501 (a command is one line)

from __future__ import annotations

from typing import Any

import torch

from data.construct.zoo import build_model

Call = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


def bge_like() -> Call:
    """An encoder with masked mean pooling (case H.2)."""
    return _call("masked_mean", "small", torch.float32)


def bge_like_bf16() -> Call:
    return _call("masked_mean", "base", torch.bfloat16)


def maskformer_swin() -> Call:
    """Windows put back, rolled, cropped, added, normalised (case H.1)."""
    return _call("maskformer_swin", "small", torch.float32)


def maskformer_swin_paper() -> Call:
    return _call("maskformer_swin", "paper", torch.bfloat16)


def _call(name: str, size: str, dtype: torch.dtype) -> Call:
    example = build_model(name, size, dtype)
    return example.module, example.args, dict(example.kwargs)
