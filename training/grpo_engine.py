"""open_engine: the generation engine of a GRPO trainer, with the weights of its step, for one lot of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from training.generation import GenerationEngine
from training.grpo_evaluator import LockedEngine
from training.student_policy import SamplingConfig
from training.trl_rollout import server_address

if TYPE_CHECKING:
    from training.trl_rollout import RolloutTrainer

EngineOpener = Callable[["RolloutTrainer", SamplingConfig], AbstractContextManager[GenerationEngine]]
"""(trainer, sampling) -> an engine for as long as the context lasts."""


def engine_opener(*, shared_device: str | None = None) -> EngineOpener:
    """shared_device: a GPU on which judges time while this engine must not work."""

    @contextmanager
    def open_engine(trainer: RolloutTrainer, sampling: SamplingConfig) -> Iterator[GenerationEngine]:
        trainer.sync_generation_weights()
        with _unlocked_engine(trainer, sampling) as engine:
            if shared_device is None:
                yield engine
                return
            locked = LockedEngine(engine, shared_device)
            try:
                yield locked
            finally:
                locked.close()

    return open_engine


@contextmanager
def _unlocked_engine(trainer: RolloutTrainer, sampling: SamplingConfig) -> Iterator[GenerationEngine]:
    if not trainer.use_vllm:
        from training.generation_transformers import TransformersEngine

        with trainer.generation_model() as model:
            yield TransformersEngine(
                model, trainer.processing_class, sampling, is_collective=trainer.generates_together
            )
        return
    told: dict[str, Any] = {"stop_token_ids": trainer.eos_token_ids, "extra": trainer.sampling_extra}
    if trainer.vllm_mode == "colocate":
        from training.generation_vllm import VllmEngine

        yield VllmEngine(trainer.colocated_llm, sampling, tensor_parallel_group=trainer.tensor_parallel_group, **told)
        return
    from training.generation_server import VllmServerEngine

    with VllmServerEngine(server_address(trainer.args), sampling, **told) as engine:
        yield engine
