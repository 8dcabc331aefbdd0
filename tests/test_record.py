"""The record's schema: its version, what it holds, and that records of older versions load."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from trajectories.record import SCHEMA_VERSION, EvaluationRecord, Message, ToolCall, Trajectory, Usage
from trajectories.store import load_trajectory

RECORDS = (Trajectory, EvaluationRecord, Message, ToolCall, Usage)
FIELDS = {2: "03644db6887e39ab"}
"""Schema version -> hash of the names of the records' fields: another field is another version."""
VERSION_1: dict[str, Any] = {
    "schema_version": 1,
    "trajectory_id": "t__000",
    "task_id": "t",
    "task_hash": "0",
    "graph_hashes": {"g": "1"},
    "attempt_index": 0,
    "policy": {"kind": "openai", "model": "m"},
    "messages": [
        {"role": "user", "content": "Write one."},
        {
            "role": "assistant",
            "reasoning": "hm",
            "tool_calls": [{"id": "c", "name": "pass_evaluator", "arguments": "{}"}],
            "usage": {"input_tokens": 3, "output_tokens": 2, "cached_tokens": 1, "cost_usd": 0.1},
            "turn": 1,
        },
    ],
    "stop_reason": "TURN_LIMIT",
    "num_turns": 1,
}
"""As version 1 wrote it, but for fields with defaults."""


def test_a_change_of_fields_is_a_new_version() -> None:
    names = sorted(f"{record.__name__}.{name}" for record in RECORDS for name in record.model_fields)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    assert FIELDS.get(SCHEMA_VERSION) == digest, f"raise SCHEMA_VERSION and add a line with {digest}"


def test_a_record_of_version_1_loads_and_is_written_as_the_present_one(tmp_path) -> None:
    path = tmp_path / "t__000.json"
    path.write_text(json.dumps(VERSION_1))
    loaded = load_trajectory(path)
    assert loaded.schema_version == SCHEMA_VERSION and loaded.prompt_version is None
    assert (loaded.agent, loaded.agent_state, loaded.num_without_reasoning) == ("iterative", {}, 0)
    message = loaded.messages[1]
    assert (message.reasoning_policy, message.provider_blocks) == (None, None)
    assert message.usage is not None and message.usage.cache_write_tokens == 0
    assert Trajectory.model_validate_json(loaded.model_dump_json()) == loaded


def test_what_is_new_survives_json() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "abc="}]
    message = Message(role="assistant", reasoning="s", reasoning_policy="summarised", provider_blocks=blocks)
    data = VERSION_1 | {"schema_version": SCHEMA_VERSION, "messages": [message], "agent_state": {"archive": [[1, 2.5]]}}
    trajectory = Trajectory.model_validate(data)
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert "provider_blocks" not in message.to_openai() and "signature" not in json.dumps(message.to_openai())


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, "1", None, True])
def test_other_versions_are_refused(version: object) -> None:
    with pytest.raises(ValidationError, match=f"reads 1 to {SCHEMA_VERSION}"):
        Trajectory.model_validate(VERSION_1 | {"schema_version": version})


def test_an_unknown_policy_of_reasoning_is_refused() -> None:
    with pytest.raises(ValidationError, match="reasoning_policy"):
        Message.model_validate({"role": "assistant", "reasoning_policy": "kept"})
