"""A configuration class of `transformers` -> a small configuration of it, by what its fields are called.

Widths, heads, layers, vocabularies, experts and image sizes shrink, sub-configurations too; kinds of layers,
activations, norms and ratios stay as the class has them. The names are in zoo_fields.py; what names cannot tell is in
zoo_overrides.py.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.construct.zoo_entry import stable_hash
from data.construct.zoo_fields import (
    BLOCK_COUNTS,
    EXPERT_COUNTS,
    EXPERT_WIDTHS,
    FIXED,
    HEAD_DIMS,
    HEADS,
    INTERMEDIATES,
    KEY_VALUE_HEADS,
    LAYERS,
    MAX_PATCH,
    POSITIONS,
    RESERVED_IDS,
    SAME_WIDTH_LISTS,
    SMALL_VOCABULARY,
    UNSET,
    WIDTH_LISTS,
    WIDTHS,
)


@dataclass(frozen=True)
class Scale:
    """How small: one width for every part of a model, so that parts that meet do fit."""

    width: int
    head_dim: int
    layers: int
    vocabulary: int
    positions: int
    sizes: Mapping[str, int]
    """Sizes of the call by symbol: an image size in a configuration follows them."""
    token_ids: dict[int, int] = field(default_factory=dict)
    """Special tokens beyond the small vocabulary, by the id that the class gives them; filled while shrinking."""

    def reserved_id(self, token_id: int) -> int:
        """An id at the end of the vocabulary for a special token; the same token gets the same one everywhere."""
        if token_id < RESERVED_IDS:
            return token_id
        return self.token_ids.setdefault(token_id, self.vocabulary - 1 - len(self.token_ids))


def scale_of(architecture: str, config_class: Any, sizes: Mapping[str, int]) -> Scale:
    """Width 64 to 384, vocabulary 500 to 2000: fixed by the name, so that architectures differ in size.

    A model of several parts has one layer in each, and room for image tokens before the text. A mixture of experts is
    narrow: run without loops that depend on data, it copies an expert's weights for every token.
    """
    draw = random.Random(stable_hash(architecture))
    parts = bool(config_class.sub_configs_defaults)
    widths = (64, 96, 128) if _has_experts(config_class) else (64, 96, 128, 160, 192)
    width = draw.choice(widths if parts or _has_experts(config_class) else (64, 96, 128, 192, 256, 320, 384))
    head_dim = draw.choice((16, 32) if width < 128 or width % 64 else (16, 32, 64))
    return Scale(width, head_dim, 1 if parts else 2, draw.randrange(500, 2000, 20), 1024 if parts else 512, sizes)


def _has_experts(config_class: Any) -> bool:
    own = {item.name for item in dataclasses.fields(config_class)}
    parts = [_class_of(spec) for spec in config_class.sub_configs_defaults.values()]
    return bool(own & EXPERT_COUNTS) or any(_has_experts(part) for part in parts)


def _class_of(spec: Any) -> Any:
    """The configuration class of a part that is not told to be another one."""
    return spec.config_class if dataclasses.is_dataclass(spec.config_class) else spec.get_config_class(spec.model_type)


def shrunk_config(
    config_class: Any, scale: Scale, overrides: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Any:
    """The small configuration. `overrides` win: by field, nested by sub-configuration; a callable gets the scale."""
    own = {item.name: item.default for item in dataclasses.fields(config_class)} | dict(defaults or {})
    own["ignore_keys_at_rope_validation"] = getattr(config_class, "ignore_keys_at_rope_validation", ())
    parts = config_class.sub_configs_defaults
    small = dict(defaults or {})
    for name, value in own.items():
        if name not in parts and (shrunk := _shrink(name, value, own, scale)) != value:
            small[name] = shrunk
    for name, spec in parts.items():
        nested = overrides.get(name, {})
        if isinstance(nested, Mapping) and (nested or not spec.optional):
            small[name] = _part(spec, scale, nested)
    for name, value in overrides.items():
        if name not in parts:
            small[name] = value(scale) if callable(value) else value
    return config_class(**small)


def _part(spec: Any, scale: Scale, overrides: Mapping[str, Any]) -> Any:
    """A sub-configuration, of the class that the overrides name by "model_type" or of the usual one."""
    chosen = dict(overrides)
    model_type = chosen.pop("model_type", spec.model_type)
    defaults = spec.init_kwargs if model_type == spec.model_type else {}
    config_class = _class_of(spec) if model_type == spec.model_type else spec.get_config_class(model_type)
    return shrunk_config(config_class, scale, chosen, defaults)


def _shrink(name: str, value: Any, own: Mapping[str, Any], scale: Scale) -> Any:
    """The small value of one field, or the value itself if its name says nothing."""
    if name == "rope_parameters" and "mrope_section" in own["ignore_keys_at_rope_validation"]:
        return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": rope_sections(scale.head_dim)}
    if name in FIXED:
        large = isinstance(value, bool) or (isinstance(value, int) and value > FIXED[name])
        return FIXED[name] if large else value
    if value is None and name in ("head_dim", "num_key_value_heads"):
        return scale.head_dim if name == "head_dim" else scale.width // scale.head_dim
    if value is None:
        return UNSET.get(name)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _shrink_number(name, value, own, scale)
    if isinstance(value, (list, tuple)) and value:
        return _shrink_list(name, value, own, scale)
    return value


def _shrink_number(name: str, value: int, own: Mapping[str, Any], scale: Scale) -> int:
    heads = scale.width // scale.head_dim
    staged = isinstance(own.get("depths"), (list, tuple))  # channels double a stage: the first stage's are no width
    if name == "embed_dim" and staged:
        return value // 2
    if name in WIDTHS and value > 32:
        return scale.width
    if name in INTERMEDIATES and value > 32:
        ratio = 0.5 if own.keys() & EXPERT_COUNTS else min(4.0, max(1.0, value / _width_of(own)))
        return _multiple_of_16(scale.width * ratio)
    if name in EXPERT_WIDTHS and value > 32:
        return _multiple_of_16(scale.width / 2)
    if name in HEADS and value > 1:
        return heads
    if name in KEY_VALUE_HEADS:
        whole = own.get("num_attention_heads") or value
        wanted = max(1, heads * value // whole) if isinstance(whole, int) else heads
        return max(count for count in range(1, wanted + 1) if heads % count == 0)
    if name in HEAD_DIMS:
        return scale.head_dim
    if name in LAYERS:
        return min(value, scale.layers)
    if name == "max_source_positions" and "frames" in scale.sizes:
        return scale.sizes["frames"] // 2  # encoders of spectrograms take exactly as many as they have positions
    if name in POSITIONS and value > 0:
        return scale.positions
    if name == "rotary_dim":
        return min(value, scale.head_dim)
    if name == "mamba_head_dim":
        return scale.head_dim
    if name in ("mamba_n_heads", "mamba_num_heads"):
        return 2 * heads  # the inner width of a state space layer is twice the outer one
    if "vocab_size" in name and value > SMALL_VOCABULARY:
        return scale.vocabulary
    if name.endswith(("_token_id", "_token_index", "_token_ids")):
        return value if _has_small_vocabulary(own) else scale.reserved_id(value)
    if name == "patch_size" and value > MAX_PATCH:
        return MAX_PATCH
    if name in ("image_size", "pretrain_image_size"):
        return scale.sizes.get("image", value)
    return value


def _shrink_list(name: str, value: Sequence[Any], own: Mapping[str, Any], scale: Scale) -> Sequence[Any]:
    kind: Any = type(value)  # a list or a tuple, as the class has it
    if name in BLOCK_COUNTS:
        return kind(1 for _ in value)
    if name in SAME_WIDTH_LISTS:
        return kind(scale.width for _ in value)
    if name in WIDTH_LISTS and all(isinstance(item, int) for item in value):
        return kind(max(8, item // 4 // 8 * 8) if item > 32 else item for item in value)
    if name.endswith(("_token_id", "_token_ids", "_tokens")) and all(isinstance(item, int) for item in value):
        return kind(scale.reserved_id(item) for item in value)
    if name == "image_size":
        return kind(scale.sizes.get("image", item) for item in value)
    if name == "patch_size" and len(set(value)) == 1 and value[0] > MAX_PATCH:
        return kind(MAX_PATCH for _ in value)
    staged = any(isinstance(own.get(count), (list, tuple)) for count in BLOCK_COUNTS)  # indices of stages: they stay
    if name.endswith(("_indexes", "_indices")) and not staged and all(isinstance(item, int) for item in value):
        return kind(sorted({min(item, scale.layers - 1) for item in value}))
    return value


def rope_sections(head_dim: int) -> list[int]:
    """How half a head's rotary frequencies are shared among time, height and width."""
    sides = 3 * head_dim // 16
    return [head_dim // 2 - 2 * sides, sides, sides]


def _has_small_vocabulary(own: Mapping[str, Any]) -> bool:
    return isinstance(own.get("vocab_size"), int) and own["vocab_size"] <= SMALL_VOCABULARY


def _width_of(own: Mapping[str, Any]) -> int:
    """The width that the class's own intermediate sizes go with."""
    for name in ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim"):
        if isinstance(own.get(name), int):
            return own[name]
    return 1024


def _multiple_of_16(size: float) -> int:
    return max(16, round(size / 16) * 16)
