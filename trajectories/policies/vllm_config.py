"""VLLMPolicyConfig: a teacher that one serves oneself with vLLM: the openai policy with this server's defaults."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from trajectories.policies.openai_config import OpenAIPolicyConfig


class VLLMPolicyConfig(OpenAIPolicyConfig):
    """Where the server is, and how it should have been started."""

    base_url: str = "http://localhost:8000/v1"
    """Address up to and with `/v1`."""
    api_key_env: str = "VLLM_API_KEY"
    """Name of the variable with the server's `--api-key`; may be unset, for any host."""
    stream: bool = False
    """In one piece by default: the parsers of tool calls see the whole answer, and there is no proxy to time out."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning"
    """Under which name earlier reasoning is sent back; servers before 0.11 want "reasoning_content"."""
    tool_call_parser: str = "hermes"
    """The server's `--tool-call-parser` for this model; named in the command that messages show."""
    reasoning_parser: str | None = None
    """The server's `--reasoning-parser`; without one, `<think>` blocks are taken out of the text here."""
    wait_for_server_s: float = Field(default=0.0, ge=0)
    """How long the first attempt waits for a server that is still loading its model; 0 says at once that it is
    missing."""

    def serve_command(self) -> str:
        """How to start the server that this configuration expects."""
        parts = ["vllm", "serve", self.model, "--enable-auto-tool-choice", "--tool-call-parser", self.tool_call_parser]
        if self.reasoning_parser:
            parts += ["--reasoning-parser", self.reasoning_parser]
        port = urlsplit(self.base_url).port
        if port not in (None, 8000):
            parts += ["--port", str(port)]
        return " ".join(parts)
