"""The finished student as vLLM serves it: safetensors, tokenizer, chat template, generation settings.

The chat template is the trained one without its marks; the token that ends a trained turn is among those that end a
generation. An adapter is kept beside the student and merged into its weights.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.chat_templates import without_marks
from training.merge_adapter import merge_adapter
from training.sft_config import HubSettings, StudentRun

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase, Trainer

logger = logging.getLogger(__name__)

STUDENT_DIR = "student"
ADAPTER_DIR = "adapter"
_LEFT_BY_TRAINER = ("training_args.bin", "README.md")
"""Files that Trainer saves beside weights: a pickle that no server reads, and a card that is not ours."""


def save_student(
    trainer: Trainer,
    tokenizer: PreTrainedTokenizerBase,
    config: StudentRun,
    source: str,
    *,
    end_of_turn: int | None,
) -> Path:
    """Write the student's folder; every process takes part, the first one writes. Returns the folder."""
    student_dir, adapter_dir = config.out_dir / STUDENT_DIR, config.out_dir / ADAPTER_DIR
    has_adapter = config.lora is not None
    generation = _stop_at(_generation_settings(source, trainer.model), tokenizer, end_of_turn)
    trainer.save_model(str(adapter_dir if has_adapter else student_dir))
    if trainer.is_world_process_zero():
        if has_adapter:
            student = config.student
            merge_adapter(
                source,
                adapter_dir,
                student_dir,
                dtype=_dtype(config),
                rope_scaling=student.rope_scaling,
                model_kwargs=student.model_kwargs,
            )
        _finish_folder(student_dir, tokenizer, generation, dtype=_dtype(config))
    trainer.accelerator.wait_for_everyone()
    return student_dir


def _generation_settings(source: str, model: Any) -> GenerationConfig:
    """As the base model has them: Trainer leaves of its end tokens only the tokenizer's."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:
        return model.generation_config


def _stop_at(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None) -> Any:
    """The settings with the end of a trained turn among the tokens that end a generation, first."""
    stated = generation.eos_token_id
    known = [stated] if isinstance(stated, int) else list(stated or [])
    if end_of_turn is None:
        logger.warning("turns end with different tokens: generation stops at the tokenizer's own end of text")
        end_of_turn = tokenizer.eos_token_id
    ids = [end_of_turn, *(token for token in known if token != end_of_turn)]
    generation.eos_token_id = ids if len(ids) > 1 else ids[0]
    return generation


def _dtype(config: StudentRun) -> str:
    return config.student.dtype if config.student.name_or_path is not None else "float32"


def _finish_folder(folder: Path, tokenizer: PreTrainedTokenizerBase, generation: Any, *, dtype: str) -> None:
    for name in _LEFT_BY_TRAINER:
        (folder / name).unlink(missing_ok=True)
    template = tokenizer.chat_template
    try:
        tokenizer.chat_template = without_marks(template)
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.chat_template = template
    generation.save_pretrained(folder)
    _cast(folder, dtype)


def _cast(folder: Path, dtype: str) -> None:
    """Weights in the type that was asked for: FSDP2 trains and saves float32 ones."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    wanted = getattr(torch, dtype)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata()
        tensors = load_file(path)
        if all(tensor.dtype == wanted or not tensor.is_floating_point() for tensor in tensors.values()):
            continue
        cast = {name: t.to(wanted) if t.is_floating_point() else t for name, t in tensors.items()}
        partial = path.with_suffix(".partial")
        save_file(cast, partial, metadata=metadata)
        partial.replace(path)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    key = "dtype" if "dtype" in values or "torch_dtype" not in values else "torch_dtype"
    values[key] = dtype
    values.pop("use_cache", None)  # off while training
    path.write_text(json.dumps(values, indent=2) + "\n")


def upload(folder: Path, hub: HubSettings) -> str | None:
    """Upload the folder to the repository of the configuration, if there is one; returns its address.

    Raises UserError that names no token.
    """
    if hub.repo is None:
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    try:
        api = HfApi()
        api.create_repo(hub.repo, private=hub.private, exist_ok=True)
        return str(api.upload_folder(folder_path=str(folder), repo_id=hub.repo).repo_url)
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"hub.repo={hub.repo}: not uploaded ({reason}); the student is in {folder}; set HF_TOKEN to a token that "
            "may write, and give the same command again"
        ) from None
