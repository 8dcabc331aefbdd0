"""How a student is served for an evaluation, as configuration: by vLLM that we start, by an endpoint, by transformers.

Loads without torch and vLLM.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from eval_harness.config_kinds import with_kind
from trajectories.policies.endpoint_config import Prices


class AutoServeConfig(BaseModel):
    """vLLM where passes run on a GPU and vLLM is installed, else transformers."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["auto"] = "auto"


class VllmServeConfig(BaseModel):
    """`vllm serve`, started and stopped by the evaluation."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["vllm"]
    program: list[str] = []
    """The beginning of the command up to `serve`; empty: `vllm` beside this Python, else of the PATH."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """None: a free one."""
    gpus: list[int] | None = None
    """CUDA indices, as this process counts them; None: those that the evaluator leaves free, if they are enough."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that share one copy of the weights."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the weights behind the one port."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens of a conversation; None: the checkpoint's."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory that the server takes; None: 0.9, or 0.6 where it shares the GPU with the evaluator."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Answers at a time inside the server; None: vLLM's default."""
    dtype: str = "auto"
    """Of the weights; auto: as stored."""
    batch_invariant: bool = False
    """VLLM_BATCH_INVARIANT=1: an answer does not depend on what else is generated at the time; slower."""
    enforce_eager: bool = False
    """No CUDA graphs: starts sooner, generates more slowly."""
    chat_template: str = "auto"
    """auto: ours for the student's family, which it was trained with; own: what its folder holds; else the name of one
    in training/templates."""
    tool_call_parser: str | None = None
    """None: by the family (llama3_json for Llama 3, else hermes)."""
    reasoning_parser: str | None = None
    """None: by the family (deepseek_r1 where the template opens the reasoning block; else the text is split here)."""
    max_lora_rank: int | None = Field(default=None, ge=1)
    """None: the adapter's own."""
    adapters: Literal["serve", "refuse"] = "serve"
    """A student that is a LoRA adapter: served on its base model, or refused."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """Until the server must be ready: weights are loaded and kernels compiled."""
    env: dict[str, str] = {}
    """Further environment variables of the server; never a key: the run's record holds this."""
    extra_args: list[str] = []
    """Further arguments of `vllm serve`."""

    @model_validator(mode="after")
    def _enough_gpus(self) -> VllmServeConfig:
        if self.gpus is not None and len(set(self.gpus)) != self.num_gpus:
            raise ValueError(
                f"gpus names {len(set(self.gpus))} GPUs, tensor_parallel x data_parallel needs {self.num_gpus}"
            )
        return self

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel * self.data_parallel


class EndpointServeConfig(BaseModel):
    """A server that somebody else runs and that speaks OpenAI's chat completions."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["endpoint"]
    base_url: str
    """Address up to and with `/v1`."""
    model: str | None = None
    """The endpoint's name of the student; None: the student's own name or path."""
    api_key_env: str = "VLLM_API_KEY"
    """Name of the variable that holds the key; may be unset."""
    shares_gpu: bool = False
    """It runs on the evaluator's GPU: it is paused while that one times. Needs VLLM_SERVER_DEV_MODE=1 there."""
    wait_for_server_s: float = Field(default=0.0, ge=0)
    """How long a server that is still loading is waited for."""


class TransformersServeConfig(BaseModel):
    """The checkpoint in this process, one answer at a time: for CPUs and small students."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["transformers"]


ServeConfig = Annotated[
    AutoServeConfig | VllmServeConfig | EndpointServeConfig | TransformersServeConfig,
    Field(discriminator="kind"),
    BeforeValidator(with_kind(AutoServeConfig, VllmServeConfig, EndpointServeConfig, TransformersServeConfig)),
]


class ServingCost(BaseModel):
    """What generation costs, for the report."""

    model_config = ConfigDict(extra="forbid")

    usd_per_gpu_hour: float | None = Field(default=None, ge=0)
    """Of each GPU that serves the student, for the time that it is up."""
    prices: Prices = Prices()
    """Of an endpoint, for a million tokens."""


def visible_gpus() -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES; empty where it is unset, which means all."""
    return [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
