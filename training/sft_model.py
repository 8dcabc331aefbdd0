"""The student before training: tokenizer with its training template, weights, attention kernel, adapter."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training import attention
from training.chat_templates import find_training_template, load_template
from training.model_shape import ModelShape, load_model_config, meta_model
from training.sft_config import LoraSettings, SftRunConfig, StudentRun
from training.sft_launch import LaunchFacts
from training.sft_rows import render_texts
from training.student import build_tiny_student

if TYPE_CHECKING:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from trl import SFTConfig

logger = logging.getLogger(__name__)

UNTRAINED_DIR = "untrained"


def prepare_source(config: SftRunConfig, dataset: Dataset) -> str:
    """The name or folder of the model that is trained; the tiny student is built first. For one process at a time."""
    source = config.student
    if source.name_or_path is not None:
        return source.name_or_path
    tiny = source.tiny
    if source.chat_template is not None:
        tiny = tiny.model_copy(update={"chat_template": source.chat_template})
    texts = render_texts(dataset, load_template(tiny.chat_template))
    build_tiny_student(texts, tiny, config.out_dir / UNTRAINED_DIR)
    return str(config.out_dir / UNTRAINED_DIR)


def load_trainee_tokenizer(config: StudentRun, source: str) -> PreTrainedTokenizerBase:
    """The tokenizer; its chat template is the marked one that the student is trained with. Raises UserError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        if source.count("/") > 1 and not Path(source).exists():  # no name on the hub
            message = f"student.name_or_path={source}: no such folder; train that student first, or give another's"
            raise UserError(message) from None
        reason = str(error).splitlines()[0]
        raise UserError(f"student.name_or_path={source}: its tokenizer cannot be loaded ({reason})") from None
    name = config.student.chat_template
    tokenizer.chat_template = load_template(name) if name else find_training_template(tokenizer)
    return tokenizer


def load_trainee_config(config: StudentRun, source: str) -> PreTrainedConfig:
    """The model's configuration, with the rope scaling asked for. Raises UserError."""
    return load_model_config(source, config.student.rope_scaling)


def check_positions(config: SftRunConfig, shape: ModelShape, longest: int) -> None:
    """Raise UserError where rows are longer than the model has positions for."""
    wanted = config.max_length if config.max_length is not None else longest
    if wanted <= shape.max_positions:
        return
    what = f"max_length={wanted}" if config.max_length is not None else f"the longest row has {longest} tokens, which"
    raise UserError(
        f"{what} is beyond the model's {shape.max_positions} positions; lower max_length, or set student.rope_scaling, "
        f"for example {{rope_type: yarn, factor: {-(-wanted // shape.max_positions)}.0, "
        f"original_max_position_embeddings: {shape.max_positions}}}"
    )


def load_trainee_model(
    config: SftRunConfig,
    source: str,
    model_config: PreTrainedConfig,
    shape: ModelShape,
    *,
    args: SFTConfig,
    launch: LaunchFacts,
    length: int,
) -> PreTrainedModel:
    """Weights in their type, with the attention kernel chosen. Under ZeRO-3 every process must call it together."""
    from transformers import AutoModelForCausalLM

    implementation = _attention(config, model_config, shape, args=args, launch=launch, length=length)
    dtype = config.student.dtype if config.student.name_or_path is not None else "float32"
    try:
        return AutoModelForCausalLM.from_pretrained(
            source, config=model_config, dtype=dtype, attn_implementation=implementation, **config.student.model_kwargs
        )
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"student.name_or_path={source}: cannot be loaded ({reason})") from None


def _attention(
    config: SftRunConfig,
    model_config: PreTrainedConfig,
    shape: ModelShape,
    *,
    args: SFTConfig,
    launch: LaunchFacts,
    length: int,
) -> str:
    """The name of the attention implementation; ours is registered with this device's quickest kernel."""
    import torch

    asked = config.student.attn_implementation
    if asked is not None:
        logger.info("attention: %s, as student.attn_implementation says", asked)
        return asked
    if not attention.is_usable(model_config):
        logger.info("attention: sdpa, since some layers of %s see a window only", shape.model_type)
        return "sdpa"
    heads = max(1, shape.num_heads // launch.sp_size), max(1, shape.num_kv_heads // launch.sp_size)
    kernel = attention.choose_kernel(
        args.device,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=shape.head_dim,
        num_layers=shape.num_layers,
        length=length,
        dtype=torch.bfloat16,
    )
    # Ulysses wraps what it finds under a name that accelerate knows
    name = "sdpa" if launch.sp_size > 1 else attention.NAME
    attention.register(kernel, name=name)
    logger.info("attention: %s, rows kept apart without padding (%s)", kernel.name, kernel.reason)
    return name


def make_lora_config(settings: LoraSettings) -> LoraConfig:
    """peft's configuration of the adapter."""
    from peft import LoraConfig

    extra: dict[str, Any] = {"target_parameters": settings.target_parameters} if settings.target_parameters else {}
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules,
        bias="none",
        **extra,
    )


def count_adapter_parameters(model_config: PreTrainedConfig, settings: LoraSettings | None) -> int:
    """Parameters that the adapter adds, counted on the meta device; 0 without one. Raises UserError."""
    if settings is None:
        return 0
    import torch
    from peft import get_peft_model

    with torch.device("meta"):
        try:
            model = get_peft_model(meta_model(model_config), make_lora_config(settings))
        except ValueError as error:
            raise UserError(f"lora: {' '.join(str(error).split())}; correct lora.target_modules") from None
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
