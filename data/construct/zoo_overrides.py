"""What field names cannot tell about architectures of `transformers`: fields, sizes and inputs of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data.construct.zoo_config import Scale, rope_sections
from data.construct.zoo_entry import DEFAULT_CHOICES, Choices


@dataclass(frozen=True)
class Special:
    """What one architecture needs besides the rules of zoo_config.py and zoo_inputs.py."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration, nested by sub-configuration; a callable gets the Scale."""
    sizes: Choices = field(default_factory=dict)
    """By symbol: the base and the other sizes. An empty tuple takes the symbol away."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """By argument: the name of its provider in zoo_inputs.py, or None to leave it out."""


FRAMES = DEFAULT_CHOICES["frames"]
CODEC_SAMPLES = (4800, 1920, 2880, 3840, 5760, 7680, 9600, 11520)
"""Whole frames of neural codecs, which turn 320 to 1920 samples of 24 kHz audio into one."""
STRIDED_SAMPLES = (6400, 3200, 9600, 12800, 16000, 19200)
"""Whole frames of 3200 samples."""
EVEN = {"image": (64, 32, 96, 128, 160)}
"""Networks that need a multiple of 32 pixels."""
STAGED = {"image": (128, 96, 160, 192, 224, 256)}
"""Networks that halve an image five times and more."""
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
EFFICIENT_NET = {"width_coefficient": 0.5, "depth_coefficient": 1.0, "hidden_dim": 640}
IMAGE_STACK = {"pixel_values": "image_stack"}
IMAGE_TILES = {"pixel_values": "image_tiles", "image_sizes": "image_sizes"}
TILED = {"image_grid_pinpoints": lambda scale: [[scale.sizes["image"]] * 2]}
NAVIT = {"pixel_values": "patch_rows", "spatial_shapes": "spatial_shapes", "pixel_attention_mask": "patch_mask"}
"""Patches of images of any shape, in rows."""
VIDEO = Special(config={"num_frames": lambda s: s.sizes["clip"]}, sizes={"clip": DEFAULT_CHOICES["clip"]})
WINDOWED = Special(config={"window_size": 4}, sizes={"image": (128, 160, 192, 224, 256)})
WAVE = {"input_values": "wave_with_channel"}


def _width(scale: Scale) -> int:
    return scale.width


def _image_side(scale: Scale) -> int:
    return scale.sizes["image"]


def _context(scale: Scale) -> int:
    return scale.sizes["context"]


def _image_token(scale: Scale) -> int:
    """A token of its own: the class has none."""
    return scale.reserved_id(1_000_000)


def _half_mrope(scale: Scale) -> dict[str, Any]:
    """Rotary positions in time, height and width over half of each head."""
    return PLAIN_ROPE | {"partial_rotary_factor": 0.5, "mrope_section": rope_sections(scale.head_dim // 2)}


TIME_SERIES = Special(
    config={"prediction_length": 16, "context_length": _context, "num_time_features": 2,
            "lags_sequence": [1, 2, 3], "d_model": 128, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 256, "decoder_ffn_dim": 256},
    inputs={"past_values": "past_series", "past_time_features": "past_time_features",
            "past_observed_mask": "past_observed_mask", "future_values": "future_series",
            "future_time_features": "future_time_features", "attention_mask": None},
)  # fmt: skip

SPECIAL: dict[str, Special] = {
    "align": Special(config={"vision_config": {**EFFICIENT_NET, "hidden_dim": 640}, "projection_dim": 160}),
    "audio-spectrogram-transformer": Special(
        config={"max_length": lambda s: s.sizes["frames"], "patch_size": 16},
        sizes={"samples": (), "frames": FRAMES},
        inputs={"input_values": "features_last", "attention_mask": None},
    ),
    "autoformer": TIME_SERIES,
    "bit": Special(config={"num_groups": 8}),
    "blip-2": Special(config={"image_token_index": _image_token}, inputs={"decoder_input_ids": None}),
    "bros": Special(inputs={"bbox": "boxes_of_page"}),
    "clap": Special(
        config={"audio_config": {"patch_embeds_hidden_size": 32, "hidden_size": 256, "num_hidden_layers": 4}},
        inputs={"input_features": "spectrogram_images"},
    ),
    "codegen": Special(config={"n_head": 4, "n_embd": 128, "rotary_dim": 16}),
    "d_fine": Special(sizes=STAGED),
    "dac": Special(
        config={"encoder_hidden_size": 16, "decoder_hidden_size": 256}, sizes={"samples": CODEC_SAMPLES}, inputs=WAVE
    ),
    "deepseek_v2": Special(config={"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}),
    "deimv2": Special(sizes=STAGED),
    "dinov3_convnext": Special(config={"hidden_sizes": [24, 48, 96, 192], "depths": [1, 1, 1, 1]}),
    "donut-swin": WINDOWED,
    "efficientnet": Special(config=EFFICIENT_NET),
    "encodec": Special(sizes={"samples": CODEC_SAMPLES}, inputs=WAVE | {"attention_mask": None}),
    "esm": Special(config={"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1}),
    "falcon_h1": Special(config={"mamba_d_ssm": lambda s: 2 * s.width}),
    "fun_asr_nano": Special(
        config={"adaptor_config": {"intermediate_size": lambda s: s.width // 4}},
        inputs={"input_features": "stacked_features"},
    ),
    "fun_asr_nano_encoder": Special(inputs={"input_features": "stacked_features"}),
    "gemma3": Special(config={"mm_tokens_per_image": 16}, sizes=EVEN),
    "glm4v_moe": Special(config={"text_config": {"rope_parameters": _half_mrope}}),
    "glm4v_moe_text": Special(config={"rope_parameters": _half_mrope}),
    "glmasr": Special(inputs={"input_features_mask": "whole_frames"}),
    "gpt_neo": Special(config={"attention_types": [[["global", "local"], 1]], "window_size": 32}),
    "granite_docling_vision": Special(sizes=EVEN),
    "grounding-dino": Special(sizes=STAGED),
    "hiera": Special(sizes=EVEN),
    "idefics2": Special(inputs=IMAGE_STACK),
    "idefics3": Special(inputs=IMAGE_STACK),
    "informer": TIME_SERIES,
    "instructblip": Special(
        config={"image_token_index": _image_token},
        inputs={"qformer_input_ids": "question_ids", "decoder_input_ids": None},
    ),
    "lasr_ctc": Special(inputs={"input_features": "features_last"}),
    "lasr_encoder": Special(inputs={"input_features": "features_last"}),
    "layoutlmv3": Special(
        config={
            "hidden_size": 192,
            "num_attention_heads": 6,
            "intermediate_size": 768,
            "coordinate_size": 32,
            "shape_size": 32,
            "input_size": _image_side,
        },
        inputs={"bbox": "boxes"},
    ),
    "levit": Special(config={"patch_size": 16}, sizes=STAGED),
    "lfm2_moe": Special(config={"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}),
    "lfm2_vl": Special(inputs=NAVIT),
    "lighton_ocr": Special(inputs={"image_sizes": "image_sizes"}),
    "llava_next": Special(config=TILED, inputs=IMAGE_TILES),
    "llava_next_video": Special(config=TILED, inputs=IMAGE_TILES),
    "llava_onevision": Special(config=TILED, inputs=IMAGE_TILES),
    "lxmert": Special(
        config={"l_layers": 1, "x_layers": 1, "r_layers": 1},
        inputs={"visual_feats": "region_features", "visual_pos": "region_boxes"},
    ),
    "mamba2": Special(config={"num_heads": lambda s: 2 * s.width // s.head_dim}),
    "mask2former": Special(
        config={"num_attention_heads": 4, "hidden_dim": 128, "feature_size": 128, "mask_feature_size": 128}
    ),
    "mimi": Special(
        config={"upsample_groups": _width, "num_filters": 16},
        sizes={"samples": CODEC_SAMPLES},
        inputs=WAVE | {"attention_mask": None},
    ),
    "mimi_encoder": Special(
        config={"upsample_groups": _width, "num_filters": 16}, sizes={"samples": CODEC_SAMPLES}, inputs=WAVE
    ),
    "ministral": Special(config={"rope_parameters": PLAIN_ROPE}),
    "mistral3": Special(inputs={"image_sizes": "image_sizes"}),
    "mistral_large4": Special(inputs={"image_sizes": "image_sizes"}),
    "mm-grounding-dino": Special(sizes=STAGED),
    "mobilebert": Special(
        config={
            "hidden_size": 256,
            "intermediate_size": 256,
            "embedding_size": 64,
            "intra_bottleneck_size": 64,
            "num_attention_heads": 4,
        }
    ),
    "mobilevitv2": Special(sizes=STAGED),
    "modernvbert": Special(sizes=EVEN, inputs=IMAGE_STACK),
    "patchtsmixer": Special(config={"context_length": _context, "num_input_channels": 3}),
    "patchtst": Special(
        config={
            "context_length": _context,
            "patch_length": 8,
            "patch_stride": 8,
            "num_input_channels": 3,
        }
    ),
    "pp_doclayout_v4": Special(sizes=STAGED),
    "pp_ocrv5_server_rec": Special(sizes=STAGED),
    "pp_ocrv6_small_rec": Special(sizes=STAGED),
    "pp_ocrv6_tiny_rec": Special(sizes=STAGED),
    "qwen2_audio_encoder": Special(inputs={"attention_mask": None}),
    "qwen3_asr_encoder": Special(
        sizes={"frames": (200, 100, 300, 400, 500, 600)}, inputs={"input_features": "features_first"}
    ),
    "reformer": Special(config={"axial_pos_embds": False}),
    "rt_detr": Special(sizes=STAGED),
    "rt_detr_v2": Special(sizes=STAGED),
    "siglip2": Special(inputs=NAVIT),
    "siglip2_vision_model": Special(sizes={"image": DEFAULT_CHOICES["image"]}, inputs=NAVIT),
    "smolvlm": Special(inputs=IMAGE_STACK),
    "speech_to_text": Special(config={"conv_channels": 128}, inputs={"input_features": "features_last"}),
    "swin": WINDOWED,
    "swin2sr": Special(sizes={"image": (32, 16, 24, 40, 48, 56, 64)}),
    "textnet": Special(config={"stem_out_channels": 16}),
    "time_series_transformer": TIME_SERIES,
    "timesfm": Special(
        sizes={"context": (64, 32, 96, 128, 160, 192)},
        inputs={"past_values_padding": "no_padding", "freq": "frequencies"},
    ),
    "timesfm2_5": Special(sizes={"context": (64, 32, 96, 128, 160, 192)}),
    "timesformer": VIDEO,
    "udop": Special(inputs={"bbox": "unit_boxes"}),
    "ultravbert": Special(sizes=EVEN, inputs=IMAGE_STACK),
    "univnet": Special(sizes={"frames": (32, 16, 24, 40, 48, 64)}),
    "vibevoice_acoustic_tokenizer": Special(sizes={"samples": STRIDED_SAMPLES}, inputs=WAVE),
    "video_llama_3": Special(inputs={"image_merge_sizes": "merge_sizes"}),
    "video_llama_3_vision": Special(inputs={"merge_sizes": "merge_sizes"}),
    "videomae": VIDEO,
    "videoprism_vision_model": VIDEO,
    "vipllava": Special(config={"vision_feature_layer": [-1, -2]}),
    "vivit": VIDEO,
    "voxtral_encoder": Special(inputs={"attention_mask": None}),
    "voxtral_realtime_encoder": Special(inputs={"attention_mask": None}),
    "xmod": Special(config={"default_language": "en_XX"}),
    "zamba2": Special(config={"layers_block_type": ["linear_attention", "hybrid"]}),
}
