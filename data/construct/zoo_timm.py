"""Zoo source `timm`: its image models with random weights. timm is an optional extra, imported when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from data.construct.zoo_entry import DEFAULT_CHOICES, Choices, ModelEntry

if TYPE_CHECKING:  # listing models needs no torch
    import torch

    from data.construct.example import Example

IMAGE_SIDES = (128, 96, 160, 192, 224, 256)
"""Pixels a side, rounded to whole patches: what most models of timm take; the base first."""
STRIDE = 32
"""What most models divide an image by until their last stage."""


def list_timm() -> list[ModelEntry]:
    """Every model that the installed timm can make, in its own order. ImportError if timm is not here."""
    timm = _timm()
    return [
        ModelEntry(
            model_id=f"timm.{name.lower()}",
            source="timm",
            architecture=name,
            domain="vision",
            licence="Apache-2.0",
            origin=f"{timm.models.model_entrypoint(name).__module__}.{name}",
            symbols=("batch", "image"),
        )
        for name in timm.list_models(pretrained=False)
    ]


def choices_of_timm(entry: ModelEntry) -> Choices:
    """By symbol: the sizes the model's images may have, in whole patches, the base first."""
    patch = re.search(r"patch(\d+)", entry.architecture)
    step = int(patch[1]) if patch else STRIDE
    return {
        "batch": DEFAULT_CHOICES["batch"],
        "image": tuple(dict.fromkeys(max(1, round(side / step)) * step for side in IMAGE_SIDES)),
    }


def build_timm(entry: ModelEntry, sizes: Mapping[str, int], dtype: torch.dtype, seed: int) -> Example:
    """The model and one batch of images. Models made for one image size are made for the one asked for.

    Every size has the same weights but for position tables that the image size itself shapes.
    """
    import torch

    from data.construct.example import Example
    from data.construct.zoo_cast import cast_weights, copy_same_shapes

    base = {symbol: values[0] for symbol, values in choices_of_timm(entry).items()}
    model = _model(entry, base["image"], seed)
    if sizes["image"] != base["image"] and _is_fixed(entry.architecture):
        model = copy_same_shapes(model, _model(entry, sizes["image"], seed))
    torch.manual_seed(seed + 1)
    side = sizes["image"]
    channels = _timm().get_pretrained_cfg_value(entry.architecture, "input_size")[0]
    images = torch.randn(sizes["batch"], channels, side, side).to(dtype)
    return Example(cast_weights(model, dtype), (images,))


def _model(entry: ModelEntry, side: int, seed: int) -> torch.nn.Module:
    import torch

    from data.construct.zoo import _perturb

    torch.manual_seed(seed)
    fixed = {"img_size": side} if _is_fixed(entry.architecture) else {}
    model = _timm().create_model(entry.architecture, pretrained=False, **fixed).eval()
    _perturb(model)
    return model


def _is_fixed(name: str) -> bool:
    """Whether the model is made for one image size (its positions are a table)."""
    return bool(_timm().get_pretrained_cfg_value(name, "fixed_input_size"))


@cache
def _timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise ImportError(
            "the zoo source timm needs the package timm: pip install 'passwright[timm]' (it brings torchvision, "
            "whose wheels go with a CUDA build of torch)"
        ) from error
    return timm
