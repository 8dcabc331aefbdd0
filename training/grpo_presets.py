"""Loss presets: what clipping, KL and normalisation of GRPO's variants mean as fields of trl.GRPOConfig.

Only fields where the variants differ, from their papers: DAPO (clip higher, token mean, no KL), Dr. GRPO (no division
by a rollout's length or by the group's deviation), GSPO (one importance ratio a rollout, clipped very near 1).
"""

from __future__ import annotations

from typing import Any, Literal

LossPreset = Literal["dapo", "dr_grpo", "gspo"]

PRESETS: dict[str, dict[str, Any]] = {
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0, "scale_rewards": "group"},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon": 0.2, "beta": 0.0, "scale_rewards": "none"},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "beta": 0.0,
        "scale_rewards": "group",
    },
}

_EVERYWHERE: dict[str, Any] = {
    "report_to": "none",
    "logging_steps": 1,
    "save_total_limit": 2,
    # under accelerate transformers takes our log level for a wish to see no bar
    "disable_tqdm": False,
    # TRL's own default is all layers
    "gradient_checkpointing": False,
    # the default leaves out whole rollouts whose ratio is outside; of long ones that is nearly every one
    "vllm_importance_sampling_mode": "token_truncate",
    # ranks wait for the slowest one's rollouts and evaluations
    "ddp_timeout": 7200,
    # the batches of the carrier dataset say nothing; tasks come from the pools, whose state is in the checkpoint
    "ignore_data_skip": True,
}


def trainer_defaults(preset: LossPreset, *, name: str) -> dict[str, Any]:
    """Fields of trl.GRPOConfig under what the configuration says."""
    return {"run_name": name} | _EVERYWHERE | PRESETS[preset]
