"""Makers of token ids, their masks and their places on a page."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from data.construct.zoo_call import Call
from data.construct.zoo_fields import RESERVED_IDS

CODE_POINTS = 1000
"""Ids of models that hash characters and have no vocabulary."""


def token_range(config: Any) -> tuple[int, int]:
    """Ids that are text: special tokens lie at both ends of the vocabulary."""
    vocabulary = getattr(config, "vocab_size", None) or CODE_POINTS
    edge = min(RESERVED_IDS, vocabulary // 4)
    return edge, vocabulary - edge


def soft_tokens(call: Call) -> torch.Tensor | None:
    """The run of image or audio tokens that each row's text starts with; None if the model takes none."""
    runs = []
    for kind in ("image", "audio"):
        token_id = call.setting(f"{kind}_token_id", f"{kind}_token_index")
        get_features = getattr(call.model, f"get_{kind}_features", None)
        given = ("pixel_values",) if kind == "image" else ("input_features", "input_values")
        if isinstance(token_id, int) and get_features is not None and any(name in call.made for name in given):
            takes = inspect.signature(get_features).parameters
            with torch.no_grad():
                features = get_features(**{name: value for name, value in call.made.items() if name in takes})
            count = _count_rows(features) // call.batch
            runs.append(torch.full((call.batch, count), token_id))
    return torch.cat(runs, 1) if runs else None


def _count_rows(features: Any) -> int:
    """How many embeddings there are in what get_image_features() returned: a tensor, a list of them, or an output."""
    if hasattr(features, "pooler_output"):
        features = features.pooler_output
    if isinstance(features, (list, tuple)):
        return sum(_count_rows(item) for item in features)
    return features.numel() // features.shape[-1]


def input_ids(call: Call) -> torch.Tensor:
    """Image and audio tokens if the model takes any, then text, then padding: (batch, tokens)."""
    text = call.text_config
    ids = torch.randint(*token_range(text), (call.batch, call.sizes["sequence"]))
    soft = soft_tokens(call)
    if soft is not None:
        ids = torch.cat([soft, ids], 1)
    padding = getattr(text, "pad_token_id", None)
    if isinstance(padding, int) and 0 <= padding < token_range(text)[1] + RESERVED_IDS:
        ids[padding_mask(call.batch, call.sizes["sequence"], ids.shape[1]) == 0] = padding
    return ids


def padding_mask(batch: int, length: int, total: int) -> torch.Tensor:
    """Ones, and zeros at the last quarter of the text of every second row."""
    mask = torch.ones(batch, total, dtype=torch.long)
    mask[1::2, total - length // 4 :] = 0
    return mask


def attention_mask(call: Call) -> torch.Tensor:
    """The padding mask of what the model reads. ValueError if nothing that it reads can be masked."""
    for name in ("input_ids", "input_features", "input_values"):
        if name in call.made:
            given = call.made[name]
            total = given.shape[1] if name == "input_ids" else given.shape[-1 if given.ndim == 2 else 1]
            length = call.sizes["sequence"] if name == "input_ids" else total
            return padding_mask(call.batch, length, total)
    raise ValueError(f"{type(call.model).__name__}: an attention mask with nothing to mask")


def decoder_input_ids(call: Call) -> torch.Tensor:
    """What the decoder has written so far: (batch, target tokens)."""
    return torch.randint(*token_range(call.text_config), (call.batch, call.sizes["target"]))


def token_types(call: Call) -> torch.Tensor:
    """1 where a token stands for part of an image."""
    return (call.made["input_ids"] == call.setting("image_token_id", "image_token_index")).int()


def boxes(call: Call) -> torch.Tensor:
    """Boxes of words on a page of 1000 by 1000: left, top, right, bottom."""
    corner = torch.randint(0, 500, (call.batch, call.sizes["sequence"], 2))
    return torch.cat([corner, corner + torch.randint(1, 500, corner.shape)], -1)


def boxes_of_page(call: Call) -> torch.Tensor:
    """Four corners of each word's box, as shares of the page: (batch, tokens, 8)."""
    return torch.rand(call.batch, call.sizes["sequence"], 8)


def question_ids(call: Call) -> torch.Tensor:
    """A question for the part between vision and text."""
    return torch.randint(*token_range(call.config.qformer_config), (call.batch, 16))
