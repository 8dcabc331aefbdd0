"""EndpointConfig: what every served teacher's configuration has. Never a key: records hold this."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from trajectories.record import Usage

_SECRET_NAME = re.compile(r"api_?key|secret|password|authorization|credential|x-api", re.IGNORECASE)

TRANSPORT_FIELDS = frozenset(
    {"base_url", "api_key_env", "stream", "timeout_s", "stall_timeout_s", "prices"}
    | {"max_retries", "backoff_s", "max_backoff_s", "max_retry_after_s"}
)
"""Settings that change how an answer is fetched and counted, not which answers come: free to change on a resume."""


class Prices(BaseModel):
    """US dollars a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(default=0.0, ge=0)
    """Of input tokens that came from no cache and were written to none."""
    output: float = Field(default=0.0, ge=0)
    """Of output tokens, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0)
    """Of input tokens read from a cache; None: as other input."""
    cache_write: float | None = Field(default=None, ge=0)
    """Of input tokens written to a cache (Anthropic: 1.25 times input for 5 minutes, twice for an hour); None: as
    other input."""

    @property
    def are_set(self) -> bool:
        return any(price for price in (self.input, self.output, self.cached_input, self.cache_write))

    def cost_usd(self, usage: Usage) -> float:
        """What the tokens of an answer cost. usage.input_tokens counts cached and written ones too."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        dollars = fresh * self.input + usage.cached_tokens * cached_price + usage.cache_write_tokens * write_price
        return (dollars + usage.output_tokens * self.output) / 1e6


class EndpointConfig(BaseModel):
    """Where a served teacher is, how its answers are fetched, what they cost and under which terms they come."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    """The endpoint's name of the model."""
    name: str | None = Field(default=None, min_length=1)
    """Short name of the teacher in ledgers, cards and the viewer; None: the model's."""
    base_url: str
    """Address of the endpoint; keys do not belong into it."""
    api_key_env: str
    """Name of the environment variable that holds the key; may be unset for an endpoint on this machine."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """None leaves it to the endpoint; so do the other sampling fields."""
    stream: bool = True
    """Take the answer piece by piece, so that a stall is seen; False asks for it in one piece."""
    timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds for one whole answer, however steadily it trickles; then the call is tried again."""
    stall_timeout_s: float = Field(default=300.0, gt=0)
    """Streaming only: seconds without a byte until the call is tried again."""
    max_retries: int = Field(default=10, ge=0)
    """Tries after the first, for rate limits, server errors, timeouts, cut connections and answers that are none."""
    backoff_s: float = Field(default=1.0, gt=0)
    """First pause; it doubles with each retry, up to max_backoff_s, and is spread by half either way."""
    max_backoff_s: float = Field(default=60.0, gt=0)
    """Longest pause of our own choice, before the spread."""
    max_retry_after_s: float = Field(default=600.0, gt=0)
    """Longest pause that the endpoint may ask for (Retry-After)."""
    extra_body: dict[str, Any] = {}
    """Further fields of the request, such as {"reasoning_effort": "high"}."""
    prices: Prices = Prices()
    """What the budget and the ledger count with."""
    missing_reasoning: Literal["empty", "dropped", "summarised"] = "empty"
    """What is done about a turn that shows no reasoning: kept as it is; kept as context that trains no token; or given
    a short rationale, for which the same endpoint is asked once more."""
    terms: str = ""
    """Under which terms the answers may be used for training; goes into the dataset's card."""
    licence: str = ""
    """Licence of the answers; goes into the dataset's card."""

    @property
    def teacher(self) -> str:
        """The teacher's short name."""
        return self.name or self.model

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
        for name in _names(body):
            if _SECRET_NAME.search(name):  # the configuration goes into every record
                raise ValueError(f"{name!r} looks like a key; name the environment variable in api_key_env")
        return body


def _names(value: Any) -> list[str]:
    """Every key of nested plain data."""
    if isinstance(value, dict):
        return [str(key) for key in value] + [name for item in value.values() for name in _names(item)]
    return [name for item in value for name in _names(item)] if isinstance(value, list) else []
