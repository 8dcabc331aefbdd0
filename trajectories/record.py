"""Trajectory: the stored record of one rollout, in plain data. Loads without torch.

Messages are in OpenAI's chat form, as they were sent and received. One trajectory is one JSON file; schema_version says
which reader it needs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from eval_harness.verdict import Verdict

SCHEMA_VERSION = 1


class StopReason(StrEnum):
    """Why a rollout ended."""

    SUBMITTED = "SUBMITTED"
    """The policy answered without a tool call."""
    TURN_LIMIT = "TURN_LIMIT"
    EVALUATION_LIMIT = "EVALUATION_LIMIT"
    """The attempt has used its evaluations."""
    TOKEN_LIMIT = "TOKEN_LIMIT"
    TIME_LIMIT = "TIME_LIMIT"
    BUDGET_LIMIT = "BUDGET_LIMIT"
    """The collection's money is spent; a resume with a larger budget goes on with the attempt."""
    FORMAT_ERROR = "FORMAT_ERROR"
    """Too many malformed tool calls in a row."""
    CONTEXT_LIMIT = "CONTEXT_LIMIT"
    """The endpoint refused the length of the conversation."""
    POLICY_ERROR = "POLICY_ERROR"
    """The endpoint failed for good; an infrastructure failure, retried on resume."""
    HARNESS_ERROR = "HARNESS_ERROR"
    """The evaluation failed for good; an infrastructure failure, retried on resume."""


INFRASTRUCTURE_STOPS = frozenset({StopReason.POLICY_ERROR, StopReason.HARNESS_ERROR})


class Usage(BaseModel):
    """What one answer cost."""

    model_config = ConfigDict(extra="forbid")

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    latency_s: float = 0.0


class ToolCall(BaseModel):
    """One call, its arguments as the exact JSON text that the policy wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str
    arguments: str

    def to_openai(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Message(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="forbid")

    role: str
    """system, user, assistant or tool."""
    content: str = ""
    reasoning: str | None = None
    """Visible reasoning of an assistant message (`reasoning_content` in OpenAI-compatible endpoints)."""
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    name: str | None = None
    """Of the tool, in a tool message."""
    usage: Usage | None = None
    finish_reason: str | None = None
    """Of an assistant message, as the endpoint gave it; "length" means that the answer was cut off."""
    turn: int | None = None
    """1-based; None before the first turn."""

    def to_openai(self) -> dict[str, Any]:
        """The message as the chat completions API takes it (reasoning under `reasoning_content`)."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            message["name"] = self.name
        return message


class EvaluationRecord(BaseModel):
    """One verdict and where it fell."""

    model_config = ConfigDict(extra="forbid")

    turn: int
    verdict: Verdict
    files: dict[str, str]
    """The candidate that was evaluated: path -> text."""


class Trajectory(BaseModel):
    """The record of one attempt at one task."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    trajectory_id: str
    """Unique within a collection: task_id and attempt_index."""
    task_id: str
    task_hash: str
    graph_hashes: dict[str, str]
    """Graph name -> content hash."""
    attempt_index: int
    policy: dict[str, Any]
    """Kind, model name, sampling parameters, terms and licence; never a key."""
    agent: str = "iterative"
    protocol: str = "reward"
    device: str = "cpu"
    seed: int = 0
    tools: list[dict[str, Any]] = []
    """The tools offered, as JSON schemas in OpenAI's form."""
    messages: list[Message] = []
    evaluations: list[EvaluationRecord] = []
    best_evaluation: int | None = None
    """Index into evaluations of the best feedback verdict (as_covered, then as_score)."""
    final_verdict: Verdict | None = None
    """One fresh `strict` evaluation of the best candidate, with new seeds: the number that leaves the attempt."""
    stop_reason: StopReason | None = None
    """None while the attempt is running."""
    error: str = ""
    """The infrastructure failure, if that ended it."""
    usage: Usage = Usage()
    """Totals."""
    num_turns: int = 0
    num_malformed_calls: int = 0
    started_at: str = ""
    """UTC, ISO 8601."""
    duration_s: float = 0.0
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}

    @property
    def shrinkage(self) -> float | None:
        """AS of the final verdict over the best AS that the policy was shown: below 1, the feedback was lucky."""
        return self._final_over_shown("as_score")

    @property
    def shrinkage_covered(self) -> float | None:
        """The same of covered AS, by which the best is chosen."""
        return self._final_over_shown("as_covered")

    def _final_over_shown(self, score: str) -> float | None:
        if self.best_evaluation is None or self.final_verdict is None:
            return None
        shown = getattr(self.evaluations[self.best_evaluation].verdict, score)
        fresh = getattr(self.final_verdict, score)
        return fresh / shown if shown and fresh is not None else None

    @property
    def best_files(self) -> dict[str, str] | None:
        return None if self.best_evaluation is None else self.evaluations[self.best_evaluation].files
