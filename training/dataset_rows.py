"""One trajectory -> one row: the conversation, where it comes from, and what anyone reads back of it, exactly.

Messages are kept as JSON (`datasets.Json`), since tool arguments have other keys in every call. That feature's own
writer rounds floats to ten digits, so the JSON is written here; its reader takes no integer beyond 64 bits and reads
some floats a bit off, so arguments that it would not read back as they are stay the JSON text that the policy wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eval_harness.verdict import Verdict
from training.teachers import is_without_reasoning, teacher_licence, teacher_terms
from trajectories.ledger import teacher_of
from trajectories.record import Message, Trajectory
from trajectories.selection import SelectedTrajectory

if TYPE_CHECKING:
    import pyarrow

NO_UNICODE = "holds half a surrogate pair, which no tokenizer reads"
"""Refusal of a conversation that is no Unicode text: JSON can say it, UTF-8 cannot."""

_ABOUT_THE_ATTEMPT = (
    "task_id",
    "trajectory_id",
    "policy",
    "teacher",
    "license",
    "terms",
    "agent",
    "device",
    "protocol",
)
_TEXT = ("tools", *_ABOUT_THE_ATTEMPT, "stop_reason", "cut_reason", "task_hash", "candidate_hash", "row_hash")
_INTEGERS = ("attempt_index", "num_graphs", "num_correct_graphs", "num_turns", "num_without_reasoning")
_TOKEN_COUNTS = ("num_tokens", "num_trained_tokens")
_FLOATS = ("as_score", "as_covered")


def make_row(selected: SelectedTrajectory) -> dict[str, Any]:
    """One row: the conversation as chat templates take it, the tools, and where it comes from."""
    trajectory, messages = selected.trajectory, selected.messages
    verdict = _deciding_verdict(trajectory)
    answers = [message for message in messages if message.role == "assistant"]
    openai_messages = [template_message(message) for message in messages]
    tools = json.dumps(trajectory.tools, ensure_ascii=False)
    digest = hashlib.sha256(json.dumps([openai_messages, tools], ensure_ascii=False, sort_keys=True).encode())
    policy = trajectory.policy
    return {
        "messages": openai_messages,
        "tools": tools,
        "task_id": trajectory.task_id,
        "trajectory_id": trajectory.trajectory_id,
        "attempt_index": trajectory.attempt_index,
        "policy": str(policy.get("kind", "unknown")),
        "teacher": teacher_of(policy),
        "license": teacher_licence(policy),
        "terms": teacher_terms(policy),
        "agent": trajectory.agent,
        "device": trajectory.device,
        "protocol": verdict.protocol,
        "as_score": selected.as_score,
        "as_covered": selected.as_covered,
        "num_graphs": len(verdict.graphs),
        "num_correct_graphs": verdict.num_correct,
        "num_turns": len(answers),
        "num_without_reasoning": sum(is_without_reasoning(answer) for answer in answers),
        "untrained_turns": [i for i, answer in enumerate(answers) if answer.reasoning_policy == "dropped"],
        "stop_reason": str(trajectory.stop_reason or ""),
        "cut_reason": selected.cut_reason,
        "task_hash": trajectory.task_hash,
        "candidate_hash": verdict.candidate_hash,
        "row_hash": digest.hexdigest(),
    }


def template_message(message: Message) -> dict[str, Any]:
    """OpenAI's form with arguments as an object, which every chat template takes; others stay text."""
    row = message.to_openai()
    for call in row.get("tool_calls", []):
        arguments = exact_object(call["function"]["arguments"] or "{}")
        if arguments is not None:
            call["function"]["arguments"] = arguments
    return row


def exact_object(text: str) -> dict[str, Any] | None:
    """The JSON object of this text, if every reader gets just that object back; else None.

    None: malformed JSON, no object, a key twice, NaN or an infinity, numbers that the reader of `datasets` changes.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
        is_exact = isinstance(value, dict) and (not _has_hard_number(value) or _reads_back(value))
    except (ValueError, RecursionError):
        return None
    return value if is_exact else None


def text_fault(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str | None:
    """Why the conversation cannot be a row, as a refusal; None if it can."""
    for message in messages:
        parts = [message.role, message.content, message.reasoning or "", message.tool_call_id or "", message.name or ""]
        parts += [part for call in message.tool_calls for part in (call.id, call.name, call.arguments)]
        escaped = [call.arguments for call in message.tool_calls if "\\ud" in call.arguments.lower()]
        if not all(map(_is_unicode, parts)) or not all(map(_is_unicode_json, escaped)):
            return NO_UNICODE
    return None if _is_unicode(json.dumps(tools, ensure_ascii=False)) else NO_UNICODE


def encode_messages(row: dict[str, Any]) -> list[str]:
    """The row's messages as JSON texts, as they lie in the file."""
    return encode_json_messages(row["messages"])


def encode_json_messages(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Messages as JSON texts, as they lie in the file."""
    return [json.dumps(message, ensure_ascii=False, separators=(",", ":")) for message in messages]


def rows_schema(*, with_tokens: bool, more_text: Sequence[str] = ()) -> pyarrow.Schema:
    """Arrow schema of the rows, with the note by which `datasets` knows its features. more_text: further columns."""
    from datasets import Features, Json, List, Value

    names = {"messages": List(Json())} | {name: Value("string") for name in _TEXT}
    names |= {name: Value("int64") for name in (*_INTEGERS, *(_TOKEN_COUNTS if with_tokens else ()))}
    names |= {name: Value("float64") for name in _FLOATS} | {"untrained_turns": List(Value("int64"))}
    names |= {name: Value("string") for name in more_text}
    return Features(names).arrow_schema


def rows_table(rows: Sequence[dict[str, Any]], schema: pyarrow.Schema) -> pyarrow.Table:
    """Rows, their columns of messages encoded already (encode_json_messages), as an Arrow table."""
    import pyarrow

    columns = []
    for name in schema.names:
        values, kind = [row[name] for row in rows], schema.field(name).type
        if isinstance(getattr(kind, "value_type", None), pyarrow.BaseExtensionType):
            texts = pyarrow.array(values, pyarrow.list_(pyarrow.string()))
            items = pyarrow.ExtensionArray.from_storage(kind.value_type, texts.values)
            columns.append(pyarrow.ListArray.from_arrays(texts.offsets, items))
        else:
            columns.append(pyarrow.array(values, kind))
    return pyarrow.Table.from_arrays(columns, schema=schema)


def openai_line(selected: SelectedTrajectory) -> str:
    """The row as one line for a fine-tuning API: messages, tools, arguments as the very text that the policy wrote.

    The form has no place for reasoning. Turns that are to train nothing have `weight` 0.
    """
    messages = []
    for message in selected.messages:
        form = message.to_openai()
        form.pop("reasoning_content", None)
        if message.role == "tool":
            form.pop("name", None)
        if message.reasoning_policy == "dropped":
            form["weight"] = 0
        messages.append(form)
    return json.dumps({"messages": messages, "tools": selected.trajectory.tools}, ensure_ascii=False)


def _deciding_verdict(trajectory: Trajectory) -> Verdict:
    """The fresh strict evaluation; where there is none, the best feedback verdict."""
    if trajectory.final_verdict is not None:
        return trajectory.final_verdict
    assert trajectory.best_evaluation is not None, "selection keeps evaluated trajectories only"
    return trajectory.evaluations[trajectory.best_evaluation].verdict


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _has_hard_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_hard_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_hard_number, value))
    return isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**63)


def _reads_back(value: Any) -> bool:
    """Whether the reader of `datasets.Json` gives the same value, in types too (1.0 == 1 in Python)."""
    from datasets.utils.json import ujson_loads

    text = json.dumps(value, allow_nan=False)  # 1e999 is an infinity, and raises
    try:
        read = ujson_loads(text)
    except ValueError:
        return False
    return json.dumps(read) == text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_unicode_json(text: str) -> bool:
    """Whether the escapes in a JSON text make Unicode; a text that is no JSON makes nothing."""
    try:
        return _is_unicode(json.dumps(json.loads(text), ensure_ascii=False))
    except (ValueError, RecursionError):
        return True
