"""StudentTrainer: TRL's SFTTrainer with our rows, our optimizer where it is needed, and speed beside the loss.

The loss is TRL's: log probabilities at trained positions alone, in tiles, so logits of a long row never exist. What is
changed around it: nothing waits for the GPU between logged steps; with Ulysses each token of a step counts the same, as
it does without; time spent on evaluation and checkpoints is not in the tokens a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from trl import SFTTrainer

from training.model_shape import ModelShape

GIB = float(1 << 30)


class StudentTrainer(SFTTrainer):
    """An SFTTrainer for rows from RowCollator."""

    def __init__(self, *args: Any, shape: ModelShape, peak_flops: float | None, **kwargs: Any) -> None:
        """shape: of the model, for FLOPs. peak_flops: of one device a second; None: no MFU is logged."""
        super().__init__(*args, **kwargs)
        self._shape = shape
        self._peak_flops = peak_flops
        self._sums: dict[str, torch.Tensor] = {}
        self._step_tokens: torch.Tensor | None = None
        self._since: float | None = None
        self._paused_s = 0.0
        self._logged_step = 0

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """Also counts the trained tokens of a step over all processes, where Trainer does not (Ulysses)."""
        samples, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._step_tokens = None
        if self._shares_rows and samples:
            counted = sum((sample["shift_labels"] != -100).sum() for sample in samples)
            self._step_tokens = self.accelerator.reduce(torch.as_tensor(counted, device=device), "sum")
        return samples, num_items

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean over the step's trained tokens, of all micro batches and processes."""
        is_training = self.model.training
        if self._since is None:
            self._since, self._paused_s, self._logged_step = time.perf_counter(), 0.0, self.state.global_step
        if return_outputs or self.args.loss_type != "nll":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.aux_loss_enabled:
            inputs["output_router_logits"] = True
        outputs = model(**inputs, use_cache=False, fused_lm_head=True)
        total = -outputs.log_probs.sum()
        trained = outputs.label_mask.sum()
        if is_training and self._shares_rows:
            # Trainer divides by the accumulation steps, DeepSpeed by the processes: 1 / tokens of the step is left
            assert self._step_tokens is not None
            scale = self.accelerator.num_processes * self.current_gradient_accumulation_steps
            loss = total * scale / self._step_tokens.clamp(min=1)
        else:
            counted = trained if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
            loss = total / counted.clamp(min=1)
            if num_items_in_batch is not None and self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
        if self.aux_loss_enabled:
            steps = self.current_gradient_accumulation_steps if num_items_in_batch is not None else 1
            loss = loss + self.router_aux_loss_coef * outputs.aux_loss / steps
        self._count("train" if is_training else "eval", inputs, outputs, total, trained)
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As Trainer's; its time is not training time."""
        with self._paused():
            return super().evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds token accuracy and entropy, and for training speed and memory, since the line before."""
        mode = "train" if self.model.training else "eval"
        # TRL's own counters are empty; what its log() would add is there already
        self._metrics[mode].clear()
        if mode == "train" and "loss" in logs:
            logs |= self._training_metrics()
        elif "eval_loss" in logs:
            logs |= {f"eval_{key}": value for key, value in self._token_means("eval").items()}
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with self._paused():
            super()._save_checkpoint(model, trial)

    @property
    def _shares_rows(self) -> bool:
        parallelism = self.accelerator.parallelism_config
        return parallelism is not None and parallelism.sp_enabled

    def _count(
        self, mode: str, inputs: dict[str, Any], outputs: Any, total: torch.Tensor, trained: torch.Tensor
    ) -> None:
        """Add a micro batch to the sums, on the device: reading them would make the device wait."""
        positions = inputs["position_ids"]
        sums = torch.stack(
            [
                torch.as_tensor(float(positions.numel()), device=total.device),
                trained.double(),
                (positions.double() + 1).sum(),
                outputs.is_top1.sum().double(),
                outputs.entropy.detach().sum().double(),
                total.detach().double(),
            ]
        )
        self._sums[mode] = self._sums[mode] + sums if mode in self._sums else sums

    def _read_sums(self, mode: str) -> list[float]:
        sums = self._sums.pop(mode, None)
        if sums is None:
            return [0.0] * 6
        return [float(value) for value in self.accelerator.reduce(sums, "sum")]

    def _token_means(self, mode: str) -> dict[str, float]:
        _, trained, _, right, entropy, total = self._read_sums(mode)
        count = max(trained, 1.0)
        means = {"mean_token_accuracy": right / count, "entropy": entropy / count}
        return means if mode == "train" else means | {"loss": total / count}

    def _training_metrics(self) -> dict[str, float]:
        tokens, trained, positions, right, entropy, total = self._read_sums("train")
        now = time.perf_counter()
        seconds = max(now - (self._since or now) - self._paused_s, 1e-9)
        steps = max(self.state.global_step - self._logged_step, 1)
        self._since, self._paused_s, self._logged_step = now, 0.0, self.state.global_step
        count = max(trained, 1.0)
        metrics = {
            "mean_token_accuracy": right / count,
            "entropy": entropy / count,
            "token_loss": total / count,
            "num_trained_tokens": trained,
            "tokens_per_s": tokens / seconds,
            "trained_tokens_per_s": trained / seconds,
            "step_ms": 1e3 * seconds / steps,
        }
        if self._peak_flops:
            flops = self._shape.training_flops(tokens=tokens, trained=trained, positions=positions)
            metrics["mfu"] = flops / seconds / (self._peak_flops * self.accelerator.num_processes)
        if self.accelerator.device.type == "cuda":
            peak = torch.tensor([float(torch.cuda.max_memory_allocated())], device=self.accelerator.device)
            metrics["peak_memory_gib"] = float(self.accelerator.gather(peak).max()) / GIB
        return metrics

    @contextmanager
    def _paused(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._paused_s += time.perf_counter() - started


def peak_flops(device: torch.device) -> float | None:
    """Dense bfloat16 FLOPs a second that the device's maker states; None where none is known."""
    from trl.trainer.utils import get_peak_flops

    return get_peak_flops(torch.cuda.get_device_name(device), "bfloat16") if device.type == "cuda" else None
