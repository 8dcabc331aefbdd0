"""Small models with random weights, and how to run each once: where the bundled tasks come from.

Architectures are those of `transformers`, built from configurations, and CNN blocks in the manner of torchvision. No
weights are downloaded. Sizes are chosen so that the slices take 20 us to 2 ms on two CPU cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from data.construct.example import Example
from data.construct.vision_blocks import BUILDERS as VISION_BLOCKS


def build_model(name: str, size: str, dtype: torch.dtype, *, seed: int = 0) -> Example:
    """The named model in one of its sizes ("small" or "base"), deterministic by seed. Raises KeyError."""
    torch.manual_seed(seed)
    builder = {**_TRANSFORMERS, **VISION_BLOCKS}[name]
    example = builder(size)
    module, args, kwargs = example.module, example.args, example.kwargs
    _perturb(module)

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return Example(module.to(dtype).eval(), tuple(map(cast, args)), {key: cast(value) for key, value in kwargs.items()})


def _perturb(module: torch.nn.Module) -> None:
    """Fresh norms are all ones and zeros; trained ones are not, and constant weights would hide wrong passes."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.std() < 1e-3:
                parameter.add_(0.05 * torch.randn_like(parameter))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.2 * torch.randn_like(buffer))
            elif name.endswith("running_var"):
                buffer.mul_(1 + 0.5 * torch.rand_like(buffer))


def _tokens(batch: int, length: int, vocab: int = 2000) -> dict[str, torch.Tensor]:
    """Token ids and a mask with padding at the end of every second row."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1::2, length - length // 4 :] = 0
    return {"input_ids": torch.randint(0, vocab, (batch, length)), "attention_mask": mask}


def _bert_config(size: str) -> Any:
    from transformers import BertConfig

    width, heads = (128, 4) if size == "small" else (384, 6)
    return BertConfig(
        vocab_size=2000, hidden_size=width, num_hidden_layers=1, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=256, attn_implementation="eager",
    )  # fmt: skip


def _bert(size: str) -> Example:
    from transformers import BertModel

    return Example(BertModel(_bert_config(size)), (), _tokens(2, 64) if size == "small" else _tokens(4, 128))


class MaskedMeanEncoder(torch.nn.Module):
    """An encoder and sentence embedding by masked mean, as in BGE and sentence-transformers models."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        expanded = attention_mask.unsqueeze(-1).expand(hidden.size())
        mask = expanded.to(torch.float32)
        pooled = torch.sum(hidden * mask, 1)
        counts = torch.clamp(mask.sum(1), min=1e-9)
        return torch.cat([pooled / counts], 1)


def _masked_mean(size: str) -> Example:
    example = _bert(size)
    return Example(MaskedMeanEncoder(example.module), (), example.kwargs)


def _causal(config_name: str, model_name: str, size: str, **extra: Any) -> Example:
    import transformers

    width, heads, inner = (128, 4, 344) if size == "small" else (512, 8, 1376)
    config = getattr(transformers, config_name)(
        vocab_size=2000, hidden_size=width, num_hidden_layers=1, num_attention_heads=heads,
        num_key_value_heads=heads, intermediate_size=inner, max_position_embeddings=256,
        use_cache=False, attn_implementation="eager", **extra,
    )  # fmt: skip
    model = getattr(transformers, model_name)(config)
    return Example(model, (), _tokens(2, 64) if size == "small" else _tokens(2, 128))


def _llama(size: str) -> Example:
    return _causal("LlamaConfig", "LlamaModel", size)


def _qwen3(size: str) -> Example:
    return _causal("Qwen3Config", "Qwen3Model", size, head_dim=32 if size == "small" else 64)


def _gemma2(size: str) -> Example:
    return _causal("Gemma2Config", "Gemma2ForCausalLM", size, head_dim=32 if size == "small" else 64)


def _nemotron(size: str) -> Example:
    return _causal("NemotronConfig", "NemotronModel", size)


def _falcon(size: str) -> Example:
    from transformers import FalconConfig, FalconModel

    width, heads = (128, 4) if size == "small" else (384, 6)
    config = FalconConfig(
        vocab_size=2000, hidden_size=width, num_hidden_layers=1, num_attention_heads=heads, bias=True,
        use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    return Example(FalconModel(config), (), _tokens(2, 64) if size == "small" else _tokens(2, 128))


def _t5(size: str) -> Example:
    from transformers import T5Config, T5EncoderModel

    width, heads = (128, 4) if size == "small" else (384, 6)
    config = T5Config(
        vocab_size=2000, d_model=width, d_kv=32 if size == "small" else 64, d_ff=4 * width, num_layers=1,
        num_heads=heads, feed_forward_proj="gated-gelu", dropout_rate=0.0, attn_implementation="eager",
    )  # fmt: skip
    return Example(T5EncoderModel(config), (), _tokens(2, 64) if size == "small" else _tokens(2, 128))


def _vit(size: str) -> Example:
    from transformers import ViTConfig, ViTModel

    width, heads, image = (128, 4, 64) if size == "small" else (384, 6, 128)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=1, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=image, patch_size=8, attn_implementation="eager",
    )  # fmt: skip
    return Example(ViTModel(config), (torch.randn(2, 3, image, image),))


def _clip_text(size: str) -> Example:
    from transformers import CLIPTextConfig, CLIPTextModel

    width, heads = (128, 4) if size == "small" else (384, 6)
    config = CLIPTextConfig(
        vocab_size=2000, hidden_size=width, num_hidden_layers=1, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=77, attn_implementation="eager", eos_token_id=1999,
    )  # fmt: skip
    return Example(CLIPTextModel(config), (), _tokens(2, 77) if size == "small" else _tokens(4, 77))


def _convnext(size: str) -> Example:
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[64, 96, 128, 160], depths=[1, 1, 1, 1], layer_scale_init_value=0.1)
    return Example(ConvNextModel(config), (torch.randn(1 if size == "small" else 2, 3, 128, 128),))


def _maskformer_swin(size: str) -> Example:
    from transformers.models.maskformer.configuration_maskformer_swin import MaskFormerSwinConfig
    from transformers.models.maskformer.modeling_maskformer_swin import MaskFormerSwinModel

    # "paper": 512 pixels in patches of 4, windows of 7: 128, 64 and 32 are padded to 133, 70 and 35 (PassNet H.1)
    image, width = {"small": (128, 48), "base": (256, 96), "paper": (512, 96)}[size]
    config = MaskFormerSwinConfig(
        image_size=image, patch_size=4, embed_dim=width, depths=[2, 2, 2, 2], num_heads=[3, 6, 12, 24],
        window_size=7, drop_path_rate=0.0,
    )  # fmt: skip
    return Example(MaskFormerSwinModel(config), (torch.randn(1, 3, image, image),))


_TRANSFORMERS: dict[str, Callable[[str], Example]] = {
    "bert": _bert,
    "masked_mean": _masked_mean,
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "nemotron": _nemotron,
    "falcon": _falcon,
    "t5": _t5,
    "vit": _vit,
    "clip_text": _clip_text,
    "convnext": _convnext,
    "maskformer_swin": _maskformer_swin,
}
