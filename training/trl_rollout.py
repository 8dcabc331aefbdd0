"""Everything that GRPO here knows of TRL's insides, in one place, written against one version, which is checked.

What is used: rollout_func and its `env_mask`; extra fields that reach reward functions; (B, T) advantages in
_compute_loss; _metrics and _step; vllm_generation.llm and sync_weights; the generation batch of a process.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from eval_harness.errors import UserError
from training.credit import token_advantages

if TYPE_CHECKING:
    from trl import GRPOConfig

TRL_VERSION = "1.16."
"""Start of the versions that this module was written against."""
REWARD_FIELD = "passwright_reward"
"""Column of the generation batch that carries each rollout's reward."""


def check_trl_version(installed: str | None = None) -> None:
    """Raise UserError for a TRL whose insides this module does not know."""
    installed = installed or importlib.metadata.version("trl")
    if not installed.startswith(TRL_VERSION):
        raise UserError(
            f"trl {installed}: GRPO here calls insides of trl {TRL_VERSION}x (training/trl_rollout.py); "
            f"pip install 'trl=={TRL_VERSION}0'"
        )


@dataclass
class RolloutColumns:
    """The rollouts of one process for one lot of updates, as TRL takes them: lists over B rollouts, group by group."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    env_mask: list[list[int]]
    logprobs: list[list[float]]
    rewards: list[float | None]
    """None: a failure of ours; it moves nothing."""
    turn_advantages: list[list[float]] | None = None
    """With turn-level credit, the advantage of each turn; None: TRL makes one for each rollout."""
    turns: list[list[tuple[int, int]]] | None = None
    """Spans of the turns in the completions, for turn_advantages."""


RolloutMaker = Callable[["RolloutTrainer", int], RolloutColumns]
"""(trainer, rollouts wanted of this process) -> so many rollouts. Called by all processes together."""


def carried_reward(prompts: list[Any], **columns: Any) -> list[float | None]:
    """The reward function that TRL asks: the rollouts have theirs already."""
    return columns[REWARD_FIELD]


class RolloutTrainer(GRPOTrainer):
    """A GRPOTrainer whose rollouts come from a RolloutMaker."""

    _tag_names = ["passwright", "grpo", "trl"]  # noqa: RUF012

    def __init__(self, *args: Any, make_rollouts: RolloutMaker, **kwargs: Any) -> None:
        """The other arguments are GRPOTrainer's."""
        check_trl_version()
        _silence_none_rewards()
        self._make_rollouts = make_rollouts
        self._columns: RolloutColumns | None = None
        self._rollout_s = self._training_s = self._step_s = 0.0
        self._last_loaded_step = -1  # GRPOTrainer's own, of the weights that vLLM has
        with warnings.catch_warnings():
            # that it may change is why check_trl_version is there
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
            super().__init__(*args, reward_funcs=carried_reward, rollout_func=self._rollouts, **kwargs)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """As TRL's; what is not spent on rollouts is training time."""
        started = time.perf_counter()
        self._rollout_s = 0.0
        loss = super().training_step(model, inputs, num_items_in_batch)
        took = time.perf_counter() - started
        self._step_s += took
        self._training_s += took - self._rollout_s
        if self._step % self.current_gradient_accumulation_steps == 0:
            self.add_metrics({"seconds/training": self._training_s, "seconds/step": self._step_s})
            self._training_s = self._step_s = 0.0
        return loss

    def add_metrics(self, values: Mapping[str, float | None]) -> None:
        """Figures of this step; a logged line has the mean of the steps since the line before."""
        for name, value in values.items():
            if value is not None:
                self._metrics["train"][name].append(value)

    def log_apart(self, values: Mapping[str, float]) -> None:
        """A logged line of its own, which takes nothing of the training figures gathered so far."""
        wants_line = self.control.should_log
        with self.evaluating():
            self.log(dict(values))
        self.control.should_log = wants_line  # a logged line takes the wish for the step's own with it

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model in evaluation mode; TRL's log() tells by it which figures a line is about."""
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

    def sync_generation_weights(self) -> None:
        """Hand vLLM the weights of this step, if it has not got them. All processes together."""
        if self.use_vllm and self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step

    @contextmanager
    def generation_model(self) -> Iterator[Any]:
        """The bare model, with the whole of its weights where ZeRO-3 has split them; for the transformers engine."""
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            torch.no_grad(),
            self.evaluating(),
        ):
            yield model

    @property
    def colocated_llm(self) -> Any:
        """vLLM's LLM in this process, with trainer.vllm_mode colocate."""
        return self.vllm_generation.llm

    @property
    def tensor_parallel_group(self) -> Any:
        """The processes that hold one colocated model together; None: each holds its own."""
        return self.vllm_generation.tp_group if self.vllm_tensor_parallel_size > 1 else None

    @property
    def sampling_extra(self) -> dict[str, Any]:
        """What vLLM's sampling is told beside temperature and top_p."""
        min_p = 0.0 if self.min_p is None else self.min_p
        return {"top_k": self.top_k, "min_p": min_p, "repetition_penalty": self.repetition_penalty}

    @property
    def generates_together(self) -> bool:
        """Whether processes share a model while they generate, so that each forward pass needs all of them."""
        if self.use_vllm:
            return self.vllm_mode == "colocate" and self.vllm_tensor_parallel_size > 1
        split_zero3 = self._dist.is_zero3 and not self.args.ds3_gather_for_generation
        return self._dist.is_fsdp or split_zero3

    def _rollouts(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        started = time.perf_counter()
        if self.use_vllm and self.vllm_mode == "server":
            # the first process alone sends the weights; nobody may ask the server before it has them all
            self.accelerator.wait_for_everyone()
        columns = self._columns = self._make_rollouts(self, len(prompts))
        self._rollout_s += time.perf_counter() - started
        token = self._tokenizer.eos_token_id
        rows = list(zip(columns.completion_ids, columns.env_mask, columns.logprobs, strict=True))
        # TRL cannot hold a completion without a token; a rollout that failed before its first one gets a masked one
        rows = [row if row[0] else ([token], [0], [0.0]) for row in rows]
        if len(rows) != len(prompts):
            raise RuntimeError(f"{len(rows)} rollouts where {len(prompts)} were wanted")
        return {
            "prompt_ids": [ids or [token] for ids in columns.prompt_ids],
            "completion_ids": [row[0] for row in rows],
            "env_mask": [row[1] for row in rows],
            "logprobs": [row[2] for row in rows],
            REWARD_FIELD: columns.rewards,
        }

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        columns, self._columns = self._columns, None
        if columns is not None and columns.turn_advantages is not None and columns.turns is not None:
            completion_ids = output["completion_ids"]
            output["advantages"] = token_advantages(
                columns.turn_advantages,
                columns.turns,
                width=completion_ids.size(1),
                device=completion_ids.device,
            )
        return output


def rollouts_of_a_process(args: GRPOConfig) -> int:
    """How many rollouts TRL asks of one process at a time."""
    assert args.steps_per_generation is not None
    return args.per_device_train_batch_size * args.steps_per_generation


def carrier_rows(args: GRPOConfig) -> int:
    """Rows that the dataset which TRL iterates must have, so that its sampler can fill one lot of rollouts."""
    assert args.generation_batch_size is not None and args.num_generations is not None
    return max(1, args.generation_batch_size // args.num_generations)


def server_address(args: GRPOConfig) -> str:
    """URL of the vLLM server that TRL was told of."""
    if args.vllm_server_base_url:
        return args.vllm_server_base_url.rstrip("/")
    host = "localhost" if args.vllm_server_host == "0.0.0.0" else args.vllm_server_host
    return f"http://{host}:{args.vllm_server_port}"


class _NoneRewardsAreOurs(logging.Filter):
    """Drops TRL's warning of a row without a reward, which prints the row: such rows are counted and logged here."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "All reward functions returned None" not in record.getMessage()


def _silence_none_rewards() -> None:
    logger = logging.getLogger("trl.trainer.grpo_trainer")
    if not any(isinstance(each, _NoneRewardsAreOurs) for each in logger.filters):
        logger.addFilter(_NoneRewardsAreOurs())
