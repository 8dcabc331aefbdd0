"""Which slices of which models make the bundled tasks. A list to read and extend; build_mini.py works it off."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_F32, SMALL_F16, SMALL_BF16 = ("small", "float32"), ("small", "float16"), ("small", "bfloat16")
BASE_F32, BASE_F16, BASE_BF16 = ("base", "float32"), ("base", "float16"), ("base", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """One task: the same operators from several sizes and dtypes of a model."""

    task_id: str
    title: str
    """One line for a prompt."""
    model: str
    """Name in the zoo."""
    operators: tuple[str, ...]
    """Exactly these, in the order of the captured graph."""
    family: str | None
    """Of the batch-invariance contracts."""
    variants: tuple[tuple[str, str], ...] = (SMALL_F32, BASE_F16, SMALL_BF16)
    """(size, dtype) of each capture."""
    num_shapes: int = 1
    """Slices of different shapes to take from one capture, first come first served."""
    kind: str = "fusible"
    """"fusible" or "sole-op"."""


def _ops(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RECIPES = (
    Recipe(
        "llama_swiglu", "SiLU gate times up projection", "llama", _ops("silu mul"), "elementwise",
        (SMALL_F32, BASE_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "llama_rms_norm", "RMSNorm with the cast to float32 and back", "llama",
        _ops("to pow mean add rsqrt mul to mul"), "normalization", (SMALL_F32, BASE_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "qwen3_residual_rms_norm", "Residual add and RMSNorm; the sum is an output too", "qwen3",
        _ops("add to pow mean add rsqrt mul to mul"), "normalization",
    ),
    Recipe(
        "gemma2_rms_norm", "RMSNorm with weights around zero", "gemma2",
        _ops("float pow mean add rsqrt mul float add mul type_as"), "normalization",
    ),
    Recipe(
        "vit_residual_layer_norm", "Residual add and LayerNorm; the sum is an output too", "vit",
        _ops("add layer_norm"), "normalization", (SMALL_F32, BASE_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "bert_dropout_residual_layer_norm", "Residual add and LayerNorm after a dropout in evaluation mode", "bert",
        _ops("dropout add layer_norm"), "normalization",
    ),
    Recipe(
        "vit_layer_norm", "LayerNorm alone", "vit", _ops("layer_norm"), "normalization",
        (SMALL_F32, BASE_F16, BASE_BF16), kind="sole-op",
    ),
    Recipe(
        "maskformer_window_layer_norm", "Windows put back: roll, crop, residual add, LayerNorm (PassNet case H.1)",
        "maskformer_swin", _ops("contiguous view roll getitem contiguous view add layer_norm"), "normalization",
        (("paper", "bfloat16"), SMALL_F32, SMALL_F16), num_shapes=3,
    ),
    Recipe(
        "swin_patch_merging_layer_norm", "Four strided views concatenated, then LayerNorm", "maskformer_swin",
        _ops("getitem getitem getitem getitem cat view layer_norm"), "normalization",
        (SMALL_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "sentence_masked_mean_pooling", "Mean over the tokens that a mask keeps (PassNet case H.2)", "masked_mean",
        _ops("to mul sum sum clamp truediv cat"), "reduction", (SMALL_F32, BASE_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "bert_masked_softmax", "Scaled scores plus an additive mask, softmax", "bert", _ops("mul add softmax"),
        "softmax", (SMALL_F32, BASE_F32, SMALL_F16, SMALL_BF16),
    ),
    Recipe(
        "llama_causal_softmax", "Scaled scores plus a causal mask, softmax in float32, cast back", "llama",
        _ops("mul add softmax to"), "softmax", (SMALL_F32, SMALL_F16, BASE_BF16),
    ),
    Recipe(
        "vit_scaled_softmax", "Scaled scores, softmax in float32, cast back", "vit", _ops("mul softmax to"), "softmax",
        (SMALL_F32, SMALL_F16, SMALL_BF16),
    ),
    Recipe(
        "swin_bias_mask_softmax", "Position bias and window mask added to the scores, softmax", "maskformer_swin",
        _ops("unsqueeze add view unsqueeze unsqueeze add view softmax"), "softmax", (SMALL_F32, SMALL_F16, SMALL_BF16),
    ),
    Recipe("falcon_bias_gelu", "Bias add and GELU", "falcon", _ops("add gelu"), "elementwise"),
    Recipe(
        "t5_gelu_new", "GELU by the tanh formula, written out", "t5", _ops("mul pow mul add mul tanh add mul"),
        "elementwise",
    ),
    Recipe("gemma2_geglu", "GELU (tanh) gate times up projection", "gemma2", _ops("gelu mul"), "elementwise"),
    Recipe(
        "gemma2_logit_softcap", "Logits squashed by tanh to a cap", "gemma2", _ops("truediv tanh mul"), "elementwise",
    ),
    Recipe("clip_quick_gelu", "x times sigmoid(1.702 x)", "clip_text", _ops("mul sigmoid mul"), "elementwise"),
    Recipe("nemotron_relu_squared", "Square of ReLU", "nemotron", _ops("relu square"), "elementwise"),
    Recipe(
        "llama_rotary_embedding", "Rotary position embedding of queries", "llama",
        _ops("mul getitem getitem neg cat mul add"), "elementwise",
    ),
    Recipe(
        "bert_embedding_sum", "Word, type and position embeddings gathered and added", "bert",
        _ops("embedding embedding add embedding add"), "elementwise",
    ),
    Recipe(
        "convnext_scale_residual", "Layer scale, permute, residual add", "convnext", _ops("mul permute add"),
        "elementwise",
    ),
    Recipe(
        "resnet_conv_bn_relu", "Convolution, BatchNorm in evaluation mode, ReLU", "residual_block",
        _ops("conv2d batch_norm relu"), None, (SMALL_F32, BASE_F32, SMALL_BF16),
    ),
    Recipe(
        "resnet_bn_residual_relu", "BatchNorm in evaluation mode, residual add, ReLU", "residual_block",
        _ops("batch_norm add relu"), "elementwise",
    ),
    Recipe("mobilenet_bn_hardswish", "BatchNorm in evaluation mode and hard-swish", "inverted_residual",
           _ops("batch_norm hardswish"), "elementwise"),
    Recipe("squeeze_excite_gate", "Sigmoid gate a channel times the feature map", "inverted_residual",
           _ops("sigmoid mul"), "elementwise"),
    Recipe("detector_concat_gate", "Two branches concatenated and gated by their own sigmoid", "concat_gate",
           _ops("cat sigmoid mul"), "elementwise"),
    Recipe("diffusion_group_norm_silu", "GroupNorm and SiLU", "diffusion_residual", _ops("group_norm silu"),
           "normalization"),
)  # fmt: skip
