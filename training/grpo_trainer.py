"""GrpoTrainer: TRL's GRPOTrainer with our rollouts, our optimizer where it is needed, and our state in its checkpoints.

What of TRL's insides it stands on is in trl_rollout.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.grpo_config import GrpoRunConfig
from training.grpo_engine import EngineOpener
from training.grpo_groups import Group, GroupRunner, advantages_by_turn
from training.grpo_state import GrpoState, RolloutLog
from training.trl_rollout import RolloutColumns, RolloutTrainer


class GrpoTrainer(RolloutTrainer):
    """A RolloutTrainer whose checkpoints hold pools, alarms and totals."""

    def __init__(
        self,
        *args: Any,
        grpo_state: GrpoState,
        optimizer: tuple[type, dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """optimizer: class and arguments instead of what the configuration names."""
        super().__init__(*args, **kwargs)
        self.grpo_state = grpo_state
        if optimizer is not None:
            self.optimizer_cls_and_kwargs = optimizer

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            # before the rest: trainer_state.json, which is written last, says that a checkpoint is whole
            self.grpo_state.save(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
        super()._save_checkpoint(model, trial)


class RolloutSource:
    """The RolloutMaker of a run: an engine with the step's weights, the step's groups, their columns."""

    def __init__(
        self,
        config: GrpoRunConfig,
        runner: GroupRunner,
        state: GrpoState,
        *,
        open_engine: EngineOpener,
        log: RolloutLog | None,
    ) -> None:
        """log: of the first process; None on the others."""
        self._config, self._runner, self._state, self._open_engine, self._log = config, runner, state, open_engine, log

    def __call__(self, trainer: RolloutTrainer, count: int) -> RolloutColumns:
        step = trainer.state.global_step
        with self._open_engine(trainer, self._config.sampling) as engine:
            made = self._runner.run(engine, count // self._config.group_size, step=step)
        self._state.add(made.figures)
        # those two are the trainer's to tell
        trainer.add_metrics({k: v for k, v in made.figures.items() if k not in ("seconds/training", "seconds/step")})
        if self._log is not None:
            self._log.append(made.rows)
        return columns_of(made.groups, self._config)


def columns_of(groups: Sequence[Group], config: GrpoRunConfig) -> RolloutColumns:
    """Groups as TRL takes them, one after another."""
    members = [member for group in groups for member in group.members]
    tokens = [member.rollout.tokens for member in members]
    by_turn = config.credit.mode == "turn"
    return RolloutColumns(
        prompt_ids=[each.prompt_ids for each in tokens],
        completion_ids=[each.completion_ids for each in tokens],
        env_mask=[each.env_mask for each in tokens],
        logprobs=[each.logprobs for each in tokens],
        rewards=[member.reward.total for member in members],
        turn_advantages=[row for group in groups for row in advantages_by_turn(group, config)] if by_turn else None,
        turns=[each.turns for each in tokens] if by_turn else None,
    )
