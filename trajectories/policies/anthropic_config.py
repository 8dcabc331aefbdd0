"""AnthropicPolicyConfig: a teacher behind Anthropic's Messages API, how it thinks and what of the prompt is cached."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from trajectories.policies.endpoint_config import EndpointConfig

MIN_THINKING_TOKENS = 1024
"""The API's lower limit of a thinking budget."""


class AnthropicPolicyConfig(EndpointConfig):
    """Where the model is, how it is sampled, and what is cached."""

    base_url: str = "https://api.anthropic.com"
    """Address without `/v1`."""
    api_key_env: str = "ANTHROPIC_API_KEY"
    """Name of the environment variable that holds the key; may be unset for an endpoint on this machine."""
    temperature: float | None = Field(default=None, ge=0, le=1)
    """None leaves it to the endpoint; newer models and thinking take no other."""
    max_output_tokens: int = Field(default=32_000, ge=1)
    """Of one answer, thinking included; the API wants a number."""
    thinking: dict[str, Any] | None = None
    """As the API takes it: {"type": "adaptive", "display": "summarized"} or {"type": "enabled", "budget_tokens": N};
    None leaves it to the model."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How much the model puts into an answer (`output_config.effort`); None leaves it to the model."""
    prompt_caching: Literal["off", "5m", "1h"] = "5m"
    """How long the conversation's prefix stays cached; "1h" costs more to write and outlives long evaluations."""

    @model_validator(mode="after")
    def _thinking_fits(self) -> AnthropicPolicyConfig:
        thinking = self.thinking or {}
        if self.thinking is not None and not isinstance(thinking.get("type"), str):
            raise ValueError('thinking: wants a "type", such as {"type": "adaptive"}')
        if thinking.get("type") != "enabled":
            return self
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or not MIN_THINKING_TOKENS <= budget < self.max_output_tokens:
            raise ValueError(
                f"thinking.budget_tokens: {budget}; wants {MIN_THINKING_TOKENS} or more, below max_output_tokens "
                f"({self.max_output_tokens})"
            )
        if self.temperature is not None and self.temperature != 1:
            raise ValueError(f"temperature: {self.temperature} with thinking; the API takes 1 alone, leave it out")
        return self
