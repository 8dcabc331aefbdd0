"""The card of a trained student (README.md of its folder): what it learnt from, how, how well, and how to serve it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.sft_config import SftRunConfig

_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate")


def render_model_card(config: SftRunConfig, summary: Mapping[str, Any], *, source: str, train_batch: int) -> str:
    """Markdown with the front matter that model hubs read. summary: of SftSummary."""
    lengths = summary["lengths"]
    is_named = config.student.name_or_path is not None
    front = ["---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [passwright, sft, trl]"]
    front += [f"base_model: {source}"] if is_named else []
    front.append("---")
    trainer = {key: value for key, value in config.trainer.items() if key not in ("report_to", "run_name")}
    rows = [
        ("loss, first and last logged", f"{_number(summary['first_loss'])} -> {_number(summary['last_loss'])}"),
        ("token accuracy, last logged", _number(summary["last_token_accuracy"])),
        ("held-out loss", _number(summary["eval_loss"])),
        ("held-out token accuracy", _number(summary["eval_token_accuracy"])),
        ("steps, epochs", f"{summary['num_steps']}, {summary['num_epochs']:.2f}"),
        ("rows, tokens, of them trained",
         f"{lengths['num_kept']}, {lengths['num_tokens']}, {lengths['num_trained_tokens']}"),
        ("left out: too long; too little to train", f"{len(lengths['too_long'])}; {len(lengths['untrained'])}"),
        ("cut after a turn", str(len(lengths["cut"]))),
        ("train batch", f"{train_batch} rows"),
    ]  # fmt: skip
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return "\n".join(
        [
            *front,
            "",
            f"# {config.name}",
            "",
            "A student that writes graph-compiler passes, fine-tuned by Passwright on trajectories of a teacher.",
            f"Base: {f'`{source}`' if is_named else 'none (a tiny model with random weights)'}. "
            f"Dataset: `{config.dataset}`; its card says which teachers wrote it, and on which terms.",
            "The loss is on what the assistant wrote (reasoning, text, tool calls, end of turn) and on nothing else.",
            "",
            *table,
            "",
            f"{_adapter(config)}Trained with {versions}; `trainer` as configured:",
            "",
            "```json",
            json.dumps(trainer, indent=1, sort_keys=True, default=str),
            "```",
            "",
            "## Serving",
            "",
            "The folder holds the chat template that the student was trained with; serve it with that one.",
            "",
            "    vllm serve DIR --enable-auto-tool-choice --tool-call-parser hermes",
            "",
        ]
    )


def _adapter(config: SftRunConfig) -> str:
    if config.lora is None:
        return ""
    return f"LoRA of rank {config.lora.r} (alpha {config.lora.alpha:g}), merged into the weights. "


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
