"""OpenAIPolicyConfig: a teacher behind an endpoint that speaks OpenAI's chat completions, and how it is sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trajectories.policies.endpoint_config import EndpointConfig


class OpenAIPolicyConfig(EndpointConfig):
    """Where the model is and how it is sampled."""

    base_url: str = "https://api.openai.com/v1"
    """Address up to and with `/v1`."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; may be unset for an endpoint on this machine."""
    temperature: float | None = Field(default=None, ge=0)
    """None leaves it to the endpoint; so do the other sampling fields."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Of one answer, reasoning included."""
    max_tokens_field: str = "max_tokens"
    """OpenAI's own reasoning models want "max_completion_tokens"."""
    send_seed: bool = True
    """Pass the attempt's seed on, for endpoints that sample reproducibly."""
    send_reasoning: bool = True
    """Send earlier reasoning back; some endpoints refuse it, some need it between calls."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """Under which name it is sent back (DeepSeek, SGLang, llama.cpp: reasoning_content; vLLM: reasoning). What came as
    `reasoning_details` (OpenRouter) goes back as such, unchanged. Answers are read under all three names."""
    parallel_tool_calls: bool | None = None
    """Allow or forbid several calls an answer; None leaves it to the endpoint."""
    stream_usage: bool = True
    """Ask for token counts at the end of a stream (`stream_options`); False for endpoints that refuse the field."""
