"""Makers of inputs, by the name of the argument: real shapes, random contents.

Token ids with padding in every second row, images and audio as normalised noise, image tokens exactly as many as the
model makes features of its images.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from data.construct.zoo_call import Call
from data.construct.zoo_tokens import (
    attention_mask,
    boxes,
    boxes_of_page,
    decoder_input_ids,
    input_ids,
    padding_mask,
    question_ids,
    token_types,
)

REGIONS = 24
"""Regions of an image that a detector found."""


def _images(call: Call) -> torch.Tensor:
    if {"image_grid_thw", "grid_thw"} & set(call.names):
        return patches(call)
    channels = call.setting("num_channels", "in_channels", "in_chans", default=3, part="vision")
    side = call.sizes["image"]
    clip = (call.sizes["clip"],) if "clip" in call.sizes else ()
    return torch.randn(call.batch, *clip, channels if isinstance(channels, int) else 3, side, side)


def image_stack(call: Call) -> torch.Tensor:
    """Images as (batch, images a row, channels, side, side), one image a row."""
    return _images(call).unsqueeze(1)


def grid(call: Call) -> torch.Tensor:
    """Frames, rows and columns of patches of each image: (batch, 3)."""
    side = call.sizes["image"] // _patch_side(call)
    return torch.tensor([[1, side, side]] * call.batch)


def patches(call: Call) -> torch.Tensor:
    """The patches of all images in one row: (patches, channels * frames * side * side)."""
    side = _patch_side(call)
    frames = call.setting("temporal_patch_size", default=1, part="vision")
    channels = call.setting("in_channels", "in_chans", "num_channels", default=3, part="vision")
    return torch.randn(call.batch * (call.sizes["image"] // side) ** 2, channels * frames * side * side)


def _patch_side(call: Call) -> int:
    side = call.setting("patch_size", default=8, part="vision")
    return side if isinstance(side, int) else side[0]


def patch_rows(call: Call) -> torch.Tensor:
    """The patches of each image: (batch, patches, channels * side * side)."""
    return patches(call).unflatten(0, (call.batch, -1))


def image_sizes(call: Call) -> torch.Tensor:
    """Height and width of each image: (batch, 2)."""
    return torch.full((call.batch, 2), call.sizes["image"])


def _mel_bins(call: Call) -> int:
    names = ("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "input_dim", "mel_bins")
    return call.setting(*names, default=80, part="audio")


def _features(call: Call) -> torch.Tensor:
    """Mel bins first if the model's first convolution over time takes them as channels."""
    convolutions = (part for part in call.model.modules() if isinstance(part, torch.nn.Conv1d))
    first = next(convolutions, None)
    return features_first(call) if first is not None and first.in_channels == _mel_bins(call) else features_last(call)


def features_last(call: Call) -> torch.Tensor:
    """Spectrograms as (batch, frames, mel bins)."""
    return torch.randn(call.batch, call.sizes["frames"], _mel_bins(call))


def features_first(call: Call) -> torch.Tensor:
    """Spectrograms as (batch, mel bins, frames)."""
    return torch.randn(call.batch, _mel_bins(call), call.sizes["frames"])


def _spectrogram_images(call: Call) -> torch.Tensor:
    """Spectrograms as (batch, 1, frames, mel bins)."""
    return features_last(call).unsqueeze(1)


def _stacked_features(call: Call) -> torch.Tensor:
    """Several spectrogram frames in each row: (batch, rows, frames a row * mel bins)."""
    width = call.setting("num_mel_bins", part="audio") * call.setting("num_stacked_frames", part="audio")
    return torch.randn(call.batch, call.sizes["frames"], width)


def wave(call: Call) -> torch.Tensor:
    """Audio as (batch, samples)."""
    return torch.randn(call.batch, call.sizes["samples"])


def wave_with_channel(call: Call) -> torch.Tensor:
    """Audio as (batch, 1, samples)."""
    return wave(call).unsqueeze(1)


def frame_mask(call: Call) -> torch.Tensor:
    """Which frames are audio: all but the last quarter of every second row."""
    return padding_mask(call.batch, call.sizes["frames"], call.sizes["frames"])


def _past_values(call: Call) -> torch.Tensor:
    channels = call.setting("num_input_channels", default=None)
    shape = (call.batch, call.sizes["context"])
    return torch.randn(*shape) if channels is None else torch.randn(*shape, channels)


def _image_tiles(call: Call) -> torch.Tensor:
    """The whole image and one tile of it: (batch, 2, channels, side, side)."""
    return torch.cat([image_stack(call), image_stack(call)], 1)


def _series(call: Call, *, future: bool) -> torch.Tensor:
    """A series with the history that its lags need, or its continuation."""
    return torch.randn(call.batch, _steps(call, future=future))


def _time_features(call: Call, *, future: bool) -> torch.Tensor:
    return torch.randn(call.batch, _steps(call, future=future), call.config.num_time_features)


def _steps(call: Call, *, future: bool) -> int:
    history = call.sizes["context"] + max(call.config.lags_sequence)
    return call.config.prediction_length if future else history


PROVIDERS: dict[str, Callable[[Call], Any]] = {
    "input_ids": input_ids,
    "attention_mask": attention_mask,
    "decoder_input_ids": decoder_input_ids,
    "qformer_input_ids": question_ids,
    "question_ids": question_ids,
    "pixel_values": _images,
    "pixel_values_videos": _images,
    "image_stack": image_stack,
    "image_tiles": _image_tiles,
    "image_sizes": image_sizes,
    "image_grid_thw": grid,
    "grid_thw": grid,
    "hidden_states": patches,
    "mm_token_type_ids": token_types,
    "input_features": _features,
    "features_first": features_first,
    "features_last": features_last,
    "spectrogram_images": _spectrogram_images,
    "stacked_features": _stacked_features,
    "patch_rows": patch_rows,
    "input_features_mask": frame_mask,
    "input_values": wave,
    "wave_with_channel": wave_with_channel,
    "whole_frames": lambda call: torch.ones(call.batch, call.sizes["frames"], dtype=torch.long),
    "merge_sizes": lambda call: torch.full((call.batch,), 2),
    "spatial_shapes": lambda call: grid(call)[:, 1:],
    "patch_mask": lambda call: torch.ones(patch_rows(call).shape[:2], dtype=torch.long),
    "region_features": lambda call: torch.randn(call.batch, REGIONS, call.config.visual_feat_dim),
    "region_boxes": lambda call: torch.rand(call.batch, REGIONS, call.config.visual_pos_dim),
    "unit_boxes": lambda call: boxes(call) / 1000,
    "no_padding": lambda call: torch.zeros(call.batch, call.sizes["context"]),
    "frequencies": lambda call: torch.zeros(call.batch, 1, dtype=torch.long),
    "bbox": boxes,
    "boxes": boxes,
    "boxes_of_page": boxes_of_page,
    "past_values": _past_values,
    "past_series": partial(_series, future=False),
    "future_series": partial(_series, future=True),
    "past_time_features": partial(_time_features, future=False),
    "future_time_features": partial(_time_features, future=True),
    "past_observed_mask": lambda call: torch.ones(call.batch, _steps(call, future=False)),
}
"""By the name of the argument, and by names of their own where architectures want the same one in another shape."""
