"""Which arguments one call of a `transformers` model gets: what its forward() asks for, and what sizes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from data.construct.zoo_call import Call
from data.construct.zoo_providers import PROVIDERS

SYMBOLS_OF_INPUTS: dict[str, tuple[str, ...]] = {
    "input_ids": ("sequence",),
    "decoder_input_ids": ("target",),
    "pixel_values": ("image",),
    "pixel_values_videos": ("clip", "image"),
    "image_grid_thw": ("image",),
    "grid_thw": ("image",),
    "input_features": ("frames",),
    "input_features_mask": ("frames",),
    "input_values": ("samples",),
    "past_values": ("context",),
}
"""The inputs that are given wherever forward() takes them, in this order, and what sizes them besides the batch."""
LATER = ("input_ids", "attention_mask", "mm_token_type_ids")
"""Made last: token ids hold as many image tokens as the model makes features of the images."""


def input_names(model_class: type, special: Mapping[str, str | None]) -> list[str]:
    """The arguments to give: usual ones that forward() takes, those it insists on, and the special ones."""
    parameters = inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]
    names = [name for name in SYMBOLS_OF_INPUTS if name in parameters]
    if "attention_mask" in parameters and {"input_ids", "input_features", "input_values"} & set(names):
        names.append("attention_mask")
    if "mm_token_type_ids" in parameters and "image_grid_thw" in parameters:
        names.append("mm_token_type_ids")
    if "pixel_values" in names and "pixel_values_videos" in names:
        names.remove("pixel_values_videos")
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name != "self"
    ]
    wanted = dict.fromkeys([*names, *required, *special])
    return [name for name in wanted if name not in special or special[name] is not None]


def make_inputs(call: Call, special: Mapping[str, str | None]) -> dict[str, Any]:
    """All the named arguments. ValueError names one that nothing here can make."""
    for name in sorted(call.names, key=lambda name: name in LATER):
        provider = PROVIDERS.get(special.get(name) or name)
        if provider is None:
            raise ValueError(f"{type(call.model).__name__}.forward() needs {name}, which no provider makes")
        call.made[name] = provider(call)
    return call.made
