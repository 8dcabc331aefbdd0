"""While a run trains: metrics.jsonl for programs, one progress bar with the loss for people, which layers are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback


class MetricsWriter(TrainerCallback):
    """Appends each logged step as one JSON line; a resumed run first takes out what came after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        kept = []
        if state.global_step > 0 and self.path.exists():
            lines = self.path.read_text().splitlines()
            kept = [line for line in lines if json.loads(line)["step"] <= state.global_step]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(f"{line}\n" for line in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero and logs:
            with self.path.open("a") as stream:
                stream.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class CheckpointSomeLayers(TrainerCallback):
    """Activations of the first layers alone are computed again; Trainer knows all or none.

    The last layers are the ones to keep: they are free again before the others need room for their own.
    """

    def __init__(self, num_layers: int) -> None:
        self.num_layers = num_layers

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        if not args.gradient_checkpointing:
            return
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        for layer in base.get_decoder().layers[self.num_layers :]:
            layer.gradient_checkpointing = False


class FigureBar(ProgressCallback):
    """transformers' bar with one figure at its end, instead of a printed dictionary for each logged step."""

    def __init__(self, key: str, shown: str) -> None:
        """key: among the logged figures. shown: how it is written, such as "loss {:.4f}"."""
        super().__init__()
        self.key, self.shown = key, shown

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero and self.training_bar is not None and logs and logs.get(self.key) is not None:
            self.training_bar.set_postfix_str(self.shown.format(float(logs[self.key])))
