"""What a student is: a model's folder or name, or a LoRA adapter on one; its template's family; checkpoints of a run.

Reads names and small files only; the tokenizer where a template must be told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.chat_templates import OPEN_REASONING, find_training_template, load_template, template_names, without_marks
from training.run_folder import checkpoint_step
from training.sft_config import CHECKPOINTS_DIR

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ADAPTER_CONFIG = "adapter_config.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


@dataclass(frozen=True)
class StudentSource:
    """Where a student's weights and tokenizer are."""

    name: str
    """As it was given."""
    model: str
    """Folder or hub name of the whole model: of an adapter, its base."""
    adapter: Path | None = None
    lora_rank: int | None = None
    tokenizer: str = ""
    """Folder or hub name."""

    @property
    def folder(self) -> Path | None:
        """The local folder whose files make the student what it is; None for a hub name."""
        path = self.adapter or Path(self.model)
        return path if path.is_dir() else None


@dataclass(frozen=True)
class ServedTemplate:
    """The chat template that a student is served with, and what reads its answers."""

    text: str | None
    """None: the server takes what the student's folder holds."""
    family: str
    tool_call_parser: str
    reasoning_parser: str | None


def find_source(student: str | Path) -> StudentSource:
    """What a path or hub name stands for. Raises UserError for a folder without weights."""
    path = Path(student)
    if not path.exists():
        if path.is_absolute() or str(student).startswith(".") or str(student).count("/") > 1:
            raise UserError(f"{student}: no such folder; give a checkpoint's folder, or a model's name on the hub")
        return StudentSource(str(student), str(student), tokenizer=str(student))
    if (path / ADAPTER_CONFIG).is_file() and not (path / "config.json").is_file():
        return _adapter(path)
    if not (path / "config.json").is_file():
        raise UserError(f"{path}: no config.json, so no checkpoint; give the folder that training wrote")
    if not any(found for pattern in _WEIGHTS for found in path.glob(pattern)):
        raise UserError(
            f"{path}: no weights in it; a sharded checkpoint (ZeRO-3, FSDP) is gathered when the run is exported"
        )
    return StudentSource(str(path), str(path), tokenizer=str(path))


def find_checkpoints(run: Path, steps: list[int] | None = None) -> list[tuple[int, Path]]:
    """(step, folder) of a run's checkpoints by step, or of those asked for. Raises UserError."""
    folder = run / CHECKPOINTS_DIR if (run / CHECKPOINTS_DIR).is_dir() else run
    found = {
        checkpoint_step(path): path
        for path in folder.glob("checkpoint-*")
        if path.is_dir() and path.name.rpartition("-")[2].isdigit()
    }
    if not found:
        raise UserError(f"{run}: no checkpoint-STEP in it or its {CHECKPOINTS_DIR}/; give the folder of a training run")
    missing = sorted(set(steps or ()) - set(found))
    if missing:
        have = ", ".join(str(step) for step in sorted(found))
        raise UserError(f"{run}: no checkpoint of step {missing[0]}; there are {have}")
    return [(step, found[step]) for step in sorted(found) if steps is None or step in steps]


def find_template(source: StudentSource, chat_template: str = "auto") -> ServedTemplate:
    """The template and parsers of a student. Raises UserError: none is known, or the name is no template of ours."""
    tokenizer = _tokenizer(source)
    if chat_template == "own":
        if not tokenizer.chat_template:
            raise UserError(f"{source.name}: has no chat template of its own; set server.chat_template")
        marked = str(tokenizer.chat_template)
    else:
        try:
            marked = load_template(chat_template) if chat_template != "auto" else find_training_template(tokenizer)
        except UserError as error:
            if chat_template != "auto":
                raise
            names = ", ".join(template_names())
            said = str(error).split(";")[0]
            raise UserError(f"{said}; set server.chat_template to one of {names}, or to own") from None
    family = next((name for name in template_names() if load_template(name) == marked), "other")
    parser = "llama3_json" if family.startswith("llama") else "hermes"
    # a server without a reasoning parser gives the block as text, and the policy splits it off
    reasoning = "deepseek_r1" if _opens_reasoning(marked, tokenizer) else None
    return ServedTemplate(None if chat_template == "own" else without_marks(marked), family, parser, reasoning)


def _opens_reasoning(marked: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    from training.chat_templates import render

    settings: dict[str, Any] = {"special_tokens": tokenizer.special_tokens_map, "add_generation_prompt": True}
    try:
        text, _ = render(marked, [{"role": "user", "content": "x"}], None, **settings)
    except UserError:
        return False
    return text.endswith(OPEN_REASONING)


def _adapter(path: Path) -> StudentSource:
    try:
        settings = json.loads((path / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        base, rank = str(settings["base_model_name_or_path"]), int(settings["r"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path / ADAPTER_CONFIG}: names no base model and rank; save the adapter again") from None
    tokenizer = path if (path / "tokenizer_config.json").is_file() else base
    return StudentSource(str(path), base, adapter=path, lora_rank=rank, tokenizer=str(tokenizer))


def _tokenizer(source: StudentSource) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source.tokenizer)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{source.tokenizer}: its tokenizer cannot be loaded ({reason}); check the name") from None
