"""Our side of `passwright bench sft`: training.sft's own planning and training, on rows that are tokens already.

    accelerate launch ... -m scripts.benches.sft_ours SPEC.json

Where the longest context is sought, attention of all layers but the last may be left out (`attention_layers`): it takes
nearly all of the time there and, since layers are computed again one by one, none of the memory that decides.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from scripts.benches.sft_clock import SftResult, SftSpec, StepClock, peak_gib, run_worker
from scripts.benches.sft_profile import StepProfiler


def measure(spec: SftSpec) -> SftResult:
    """Train on the rows and time the steps."""
    from datasets import load_from_disk
    from transformers import AutoConfig, AutoTokenizer

    from training.sft import SftRunConfig, make_trainer_arguments, train_rows
    from training.sft_launch import launch_from_environment
    from training.sft_prepare import PreparedRows
    from training.sft_rows import LengthReport

    rows = load_from_disk(str(spec.rows_dir))
    trainer: dict[str, Any] = {
        "max_steps": spec.num_steps + spec.profile,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "activation_offloading": spec.offload_activations,
    }
    if spec.micro_batch:
        trainer["per_device_train_batch_size"] = spec.micro_batch
    if spec.on_cpu:
        trainer |= {"use_cpu": True, "bf16": False}
    values = {
        "name": "bench",
        "dataset": spec.rows_dir,
        "out": spec.out_dir / "run",
        "student": {"name_or_path": str(spec.model_dir), "dtype": "float32" if spec.on_cpu else "bfloat16"},
        "train_batch": spec.train_batch,
        "checkpointing": spec.checkpointing,
        "fused_ops": spec.fused_ops,
        "memory": "warn",
        "trainer": trainer,
    }
    config = SftRunConfig.model_validate(values)
    trained = sum(sum(label != -100 for label in row["labels"]) for row in rows)
    lengths = [len(row["input_ids"]) for row in rows]
    report = LengthReport(
        max_length=None, num_rows=len(rows), num_kept=len(rows), too_long={}, num_tokens=sum(lengths),
        num_trained_tokens=trained, median_length=spec.length, longest=max(lengths), lengths=lengths,
    )  # fmt: skip
    prepared = PreparedRows(
        source=str(spec.model_dir),
        tokenizer=AutoTokenizer.from_pretrained(spec.model_dir),
        model_config=AutoConfig.from_pretrained(spec.model_dir),
        train=rows,
        report=report,
        eval=None,
        eval_report=None,
    )
    args = make_trainer_arguments(config)
    launch = launch_from_environment(on_cpu=spec.on_cpu)
    if spec.attention_layers is not None:
        _leave_out_attention(prepared.model_config.num_hidden_layers - spec.attention_layers)
    clock = StepClock(spec.max_seconds)
    profiler = StepProfiler(spec.num_steps)
    student, plan, _ = train_rows(config, args, prepared, launch, callbacks=[clock, profiler])
    losses = [entry["loss"] for entry in student.state.log_history if "loss" in entry]
    peak = torch.tensor([peak_gib()], device=student.accelerator.device)
    return SftResult(
        step_s=clock.step_s[: spec.num_steps],
        losses=losses,
        profile=profiler.found,
        peak_gib=float(student.accelerator.gather(peak).max()),
        planned_gib=plan.memory.total,
        choices=f"{plan.micro_batch} rows a forward pass, {plan.checkpointed_layers} of {plan.shape.num_layers} layers "
        "checkpointed",
    )


def _leave_out_attention(first_layer: int) -> None:
    """Layers before first_layer give back their values, with gradients to queries and keys that are zero."""
    from training import attention

    original = attention.rows_attention

    def without_scores(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        if module.layer_idx >= first_layer:
            return original(module, query, key, value, *args, **kwargs)
        groups = query.shape[1] // key.shape[1]
        return ((value + 0 * key).repeat_interleave(groups, dim=1) + 0 * query).transpose(1, 2), None

    attention.rows_attention = partial(without_scores)


if __name__ == "__main__":
    sys.exit(run_worker(measure))
