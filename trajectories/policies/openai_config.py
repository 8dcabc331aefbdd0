"""OpenAIPolicyConfig: where a served model is, how it is sampled, what it costs. Never a key: records hold this."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from trajectories.record import Usage

_SECRET_NAME = re.compile(r"api_?key|secret|password|authorization|credential", re.IGNORECASE)


class Prices(BaseModel):
    """US dollars a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Of input tokens served from a cache; None: as other input."""

    def cost_usd(self, usage: Usage) -> float:
        cached_price = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached_price + usage.output_tokens * self.output) / 1e6


class OpenAIPolicyConfig(BaseModel):
    """Where the model is and how it is sampled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; may be unset for an endpoint on this machine."""
    temperature: float | None = Field(default=None, ge=0)
    """None leaves it to the endpoint; so do the other sampling fields."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tokens_field: str = "max_tokens"
    """OpenAI's own reasoning models want "max_completion_tokens"."""
    send_seed: bool = True
    """Pass the attempt's seed on, for endpoints that sample reproducibly."""
    send_reasoning: bool = True
    """Send earlier reasoning back as `reasoning_content`; some endpoints refuse it, some need it between calls."""
    parallel_tool_calls: bool | None = None
    extra_body: dict[str, Any] = {}
    """Further fields of the request, such as {"chat_template_kwargs": {...}} or {"reasoning_effort": "high"}."""
    timeout_s: float = Field(default=600.0, gt=0)
    max_retries: int = Field(default=6, ge=0)
    backoff_s: float = Field(default=1.0, gt=0)
    """First pause; it doubles with each retry, up to max_backoff_s, and is spread by half either way."""
    max_backoff_s: float = Field(default=60.0, gt=0)
    prices: Prices = Prices()
    terms: str = ""
    """Under which terms the answers may be used for training; goes into the dataset's card."""
    licence: str = ""

    @field_validator("base_url")
    @classmethod
    def _no_secrets_in_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http(s) address")
        if parts.username or parts.password or parts.query:
            raise ValueError("keep keys out of the address; name the environment variable in api_key_env")
        return url

    @field_validator("extra_body")
    @classmethod
    def _no_secrets_in_body(cls, body: dict[str, Any]) -> dict[str, Any]:
        for name in body:
            if _SECRET_NAME.search(name):  # the configuration goes into every record
                raise ValueError(f"{name!r} looks like a key; name the environment variable in api_key_env")
        return body
