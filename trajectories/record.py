"""Trajectory: the stored record of one rollout, in plain data. Loads without torch.

Messages are in OpenAI's chat form, as they were sent and received. One trajectory is one JSON file; schema_version says
which reader it needs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from eval_harness.verdict import Verdict

SCHEMA_VERSION = 2
"""2 added Message.reasoning_policy and provider_blocks, Usage.cache_write_tokens, and Trajectory.agent_settings,
agent_state, prompt_version and num_without_reasoning."""


def storable(text: str) -> str:
    """Without halves of surrogate pairs, which broken escapes leave and no file can hold. As many characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


Text = Annotated[str, AfterValidator(storable)]
"""What a policy wrote."""


class StopReason(StrEnum):
    """Why a rollout ended."""

    SUBMITTED = "SUBMITTED"
    """The policy answered without a tool call."""
    TURN_LIMIT = "TURN_LIMIT"
    EVALUATION_LIMIT = "EVALUATION_LIMIT"
    """The attempt has used its evaluations."""
    NO_GAIN = "NO_GAIN"
    """So many evaluations in a row brought no gain in covered AS (AgentLimits.patience)."""
    TOKEN_LIMIT = "TOKEN_LIMIT"
    COST_LIMIT = "COST_LIMIT"
    """The attempt has spent its dollars."""
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
    """Of the input tokens, those read from the endpoint's prompt cache."""
    cache_write_tokens: int = 0
    """Of the input tokens, those written to it (Anthropic charges them apart)."""
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    latency_s: float = 0.0
    num_retries: int = 0
    """Calls that were tried again; tokens of an answer that broke off half-way are counted above, by estimate."""
    num_estimated: int = 0
    """Answers whose tokens are estimated from their length, since the endpoint did not say them."""


class ToolCall(BaseModel):
    """One call, its arguments as the exact JSON text that the policy wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Text
    name: Text
    arguments: Text

    def to_openai(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Message(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="forbid")

    role: str
    """system, user, assistant or tool."""
    content: Text = ""
    reasoning: Text | None = None
    """Visible reasoning of an assistant message (`reasoning_content` in OpenAI-compatible endpoints)."""
    reasoning_policy: Literal["empty", "dropped", "summarised"] | None = None
    """What was done about an assistant message that showed no reasoning; None: nothing was asked for. A "dropped" one
    is context and trains no token; a "summarised" one has its `reasoning` from a second question."""
    provider_blocks: list[dict[str, Any]] | None = None
    """The provider's own content blocks of an assistant message (signed thinking), sent back to it unchanged."""
    tool_calls: list[ToolCall] = []
    tool_call_id: Text | None = None
    name: Text | None = None
    """Of the tool, in a tool message."""
    usage: Usage | None = None
    finish_reason: Text | None = None
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
    """Kind of the agent (trajectories/agents/)."""
    agent_settings: dict[str, Any] = {}
    """The agent's own configuration."""
    agent_state: dict[str, Any] = {}
    """What an agent keeps beside the conversation (an archive, generations); plain data, free for each agent."""
    prompt_version: str | None = None
    """PROMPT_VERSION of the templates that wrote the first messages; None in records older than schema 2."""
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
    num_without_reasoning: int = 0
    """Answers that came without visible reasoning, whatever was done about it."""
    started_at: str = ""
    """UTC, ISO 8601."""
    duration_s: float = 0.0
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_older_versions(cls, data: Any) -> Any:
        """A record of an older version as one of this version: what it does not say was not there then."""
        if not isinstance(data, dict) or "schema_version" not in data:
            return data
        version = data["schema_version"]
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise ValueError(f"schema_version {version}: this version of Passwright reads 1 to {SCHEMA_VERSION}")
        return data | {"schema_version": SCHEMA_VERSION}

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
    def is_conversation(self) -> bool:
        """Whether the messages are one conversation; a search's are many questions, each with its own context."""
        return "archive" not in self.agent_state

    @property
    def best_files(self) -> dict[str, str] | None:
        return None if self.best_evaluation is None else self.evaluations[self.best_evaluation].files
