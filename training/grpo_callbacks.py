"""While a GRPO run trains: alarms on each logged step, the student's evaluation every N steps, the progress bar."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.grpo_alarms import Alarms
from training.grpo_config import GrpoRunConfig
from training.grpo_engine import EngineOpener
from training.grpo_evaluation import HELD_OUT, StudentCheck

if TYPE_CHECKING:
    from training.trl_rollout import RolloutTrainer

logger = logging.getLogger(__name__)

REWARD = "rewards/total"
"""Of merge_tallies: the mean reward, without attempts that we failed."""


class AlarmWatcher(TrainerCallback):
    """Tells alarms in the log and in metrics.jsonl (`alarms/<name>: 1`); some end training with a checkpoint.

    Every process looks at the same figures, so all stop at the same step. Stands before what writes the line.
    """

    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self.stopped_by: str | None = None
        """The message of the alarm that ended training."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if not logs or "rollouts/num" not in logs:
            return
        for alarm in self.alarms.check(state.global_step, logs):
            if state.is_world_process_zero:
                logger.warning("alarm %s at step %d: %s", alarm.name, alarm.step, alarm.message)
            if alarm.stops:
                self.stopped_by = alarm.message
                control.should_training_stop = control.should_save = True
        for name in self.alarms.active:
            logs[f"alarms/{name}"] = 1.0


class CheckStudent(TrainerCallback):
    """Evaluates the student before the first step, every N steps and after the last; a line of metrics each."""

    def __init__(self, config: GrpoRunConfig, check: StudentCheck, open_engine: EngineOpener) -> None:
        self.settings, self.check, self.open_engine = config.evaluation, check, open_engine
        self.sampling = config.sampling.model_copy(update={"temperature": config.evaluation.temperature})
        self.trainer: RolloutTrainer | None = None
        """Set once it exists: a callback is made before it."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.settings.at_ends and state.global_step == 0:
            self._run(state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        every = self.settings.every_steps
        is_last = state.global_step >= state.max_steps or control.should_training_stop
        if every is not None and (state.global_step % every == 0 or (self.settings.at_ends and is_last)):
            self._run(state)

    def _run(self, state: TrainerState) -> None:
        if self.settings.every_steps is None or self.check.is_empty:
            return
        assert self.trainer is not None
        with self.trainer.evaluating(), self.open_engine(self.trainer, self.sampling) as engine:
            figures = self.check.run(engine, step=state.global_step)
        self.trainer.log_apart(figures)
        if state.is_world_process_zero:
            covered = {name: value for name, value in figures.items() if name.endswith(("/as", "/as_covered"))}
            shown = ", ".join(f"{name} {value:.3f}" for name, value in covered.items()) or f"no {HELD_OUT} figures"
            logger.info("step %d: %s", state.global_step, shown)
