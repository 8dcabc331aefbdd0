"""ModelShape: what a model's configuration says about sizes, counted on the meta device; no weights are read.

Memory plans (sft_memory.py) and FLOPs go by it. Configurations of the models in configs/sft ship in
training/architectures, so that a plan needs no model hub.
"""

from __future__ import annotations

import copy
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

logger = logging.getLogger(__name__)

ARCHITECTURE_DIR = Path(__file__).parent / "architectures"


@dataclass(frozen=True)
class ModelShape:
    """Sizes of one causal language model."""

    model_type: str
    num_parameters: int
    num_active: int
    """Parameters that one token is multiplied with in the layers: without embedding and output layer, and of a mixture
    only the experts that a token goes through."""
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    gated: int
    """Width of the MLP, of a mixture that of the chosen experts together."""
    vocabulary: int
    num_experts: int
    """0: no mixture."""
    experts_per_token: int
    layer_parameters: int
    """Of one layer, all experts."""
    max_positions: int
    """Longest row that its positions are made for, rope scaling counted in."""
    scaled_positions: bool

    @property
    def attention_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim

    def training_flops(self, *, tokens: float, trained: float, positions: float) -> float:
        """FLOPs of forward and backward, without what is computed again.

        tokens: in all rows; trained: of these, those that reach the output layer; positions: sum over all tokens of
        how many tokens each attends to (causal: n (n + 1) / 2 for a row of n).
        """
        layers = 6 * self.num_active * tokens
        attention = 12 * self.num_layers * self.attention_width * positions
        return layers + attention + 6 * self.vocabulary * self.hidden * trained


def shape_of(config: PreTrainedConfig) -> ModelShape:
    """Count a model of this configuration on the meta device."""
    text = config.get_text_config()
    model = meta_model(config)
    layers = model.get_decoder().layers
    layer_parameters = sum(parameter.numel() for parameter in layers[-1].parameters())
    in_layers = sum(parameter.numel() for parameter in layers.parameters())
    num_experts = int(getattr(text, "num_experts", 0) or getattr(text, "num_local_experts", 0) or 0)
    per_token = int(getattr(text, "num_experts_per_tok", 0) or 0) if num_experts else 0
    width = int(getattr(text, "moe_intermediate_size", 0) or text.intermediate_size) if num_experts else None
    idle = text.num_hidden_layers * (num_experts - per_token) * 3 * text.hidden_size * width if width else 0
    num_heads = text.num_attention_heads
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    scaled = rope.get("rope_type", rope.get("type", "default")) != "default"
    positions = int(text.max_position_embeddings)
    if scaled and rope.get("factor"):
        original = int(rope.get("original_max_position_embeddings") or positions)
        positions = max(positions, int(original * float(rope["factor"])))
    return ModelShape(
        model_type=str(config.model_type),
        num_parameters=model.num_parameters(),
        num_active=in_layers - idle,
        num_layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        num_heads=num_heads,
        num_kv_heads=int(getattr(text, "num_key_value_heads", None) or num_heads),
        head_dim=int(getattr(text, "head_dim", None) or text.hidden_size // num_heads),
        gated=width * per_token if width else text.intermediate_size,
        vocabulary=text.vocab_size,
        num_experts=num_experts,
        experts_per_token=per_token,
        layer_parameters=layer_parameters,
        max_positions=positions,
        scaled_positions=scaled,
    )


def meta_model(config: PreTrainedConfig) -> PreTrainedModel:
    """A model without weights. By its class: from_config would share it out under ZeRO-3, as if it had some."""
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    with torch.device("meta"):
        return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](copy.deepcopy(config))


def architecture_names() -> list[str]:
    """Names of the configurations in training/architectures."""
    return sorted(path.stem for path in ARCHITECTURE_DIR.glob("*.json"))


def load_architecture(name: str, **changed: Any) -> PreTrainedConfig:
    """A shipped configuration, with some of its values changed. Raises UserError."""
    from transformers import AutoConfig

    path = ARCHITECTURE_DIR / f"{name}.json"
    if not path.is_file():
        raise UserError(f"architecture {name!r}: unknown; choose one of {', '.join(architecture_names())}")
    values = json.loads(path.read_text()) | changed
    values.pop("name_or_path", None)
    return AutoConfig.for_model(values.pop("model_type"), **values)


def load_model_config(name_or_path: str, rope_scaling: dict[str, Any] | None = None) -> PreTrainedConfig:
    """The configuration of a model folder or hub model; where the hub is out of reach, the shipped copy of it.

    Raises UserError if there is neither.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        shipped = next((name for name in architecture_names() if _is_of(name, name_or_path)), None)
        if shipped is None:
            reason = str(error).splitlines()[0]
            raise UserError(f"student.name_or_path={name_or_path}: cannot be loaded ({reason})") from None
        logger.info("%s: not within reach; planned with training/architectures/%s.json", name_or_path, shipped)
        config = load_architecture(shipped)
    return with_rope_scaling(config, rope_scaling)


def with_rope_scaling(config: PreTrainedConfig, rope_scaling: dict[str, Any] | None) -> PreTrainedConfig:
    """The configuration with these rope settings over its own; the same object."""
    if rope_scaling:
        text = config.get_text_config()
        text.rope_parameters = dict(getattr(text, "rope_parameters", None) or {}) | rope_scaling
    return config


def _is_of(name: str, name_or_path: str) -> bool:
    return bool(json.loads((ARCHITECTURE_DIR / f"{name}.json").read_text()).get("name_or_path") == name_or_path)
