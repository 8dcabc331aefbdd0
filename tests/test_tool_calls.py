"""Whatever a model writes as a call: one clear observation, never an exception, and the workspace stays whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.environment import PassEnvironment
from trajectories.limits import AgentLimits
from trajectories.policies.scripted import call_message
from trajectories.record import Message, StopReason, ToolCall
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR, MalformedCallError, parse_arguments

NAMES = st.sampled_from([FILE_EDITOR, PASS_EVALUATOR]) | st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_PATHS = (
    *("pass_dir/a.py", "pass_dir", "graphs/0/model.py", "graphs", "", ".", "../x", "/etc/passwd", "pass_dir/../../x"),
    *("pass_dir/\u0430.py", "pass_dir/a\x00.py", "pass_dir/\ud800", "~", "pass_dir\\a", "C:x", "pass_dir/" + "a" * 999),
)
PATHS = st.sampled_from(_PATHS) | st.text(max_size=30)
ARGUMENTS = {
    "command": st.sampled_from(["view", "create", "str_replace", "insert", "undo", "delete"]) | JSON,
    "path": PATHS | JSON,
    "file_text": st.text(max_size=40) | JSON,
    "old_str": st.text(max_size=5) | JSON,
    "new_str": st.text(max_size=5) | JSON,
    "insert_line": st.integers(-3, 10**30) | JSON,
    "insert_text": st.text(max_size=20) | JSON,
    "view_range": st.lists(st.integers(-(10**20), 10**20), max_size=3) | JSON,
}
OBJECTS = st.fixed_dictionaries({}, optional=ARGUMENTS)
CALLS = st.text(st.characters(codec="utf-8"), max_size=60) | OBJECTS.map(json.dumps)
EDITS = st.tuples(st.sampled_from(["create", "insert", "str_replace"]), st.text("ab\n", max_size=6))


def begin(**limits: Any) -> PassEnvironment:
    environment = PassEnvironment(make_task(), CannedEvaluator(), limits=AgentLimits(**limits))
    environment.reset()
    return environment


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NAMES, CALLS), min_size=1, max_size=4))
def test_any_call_is_answered_by_one_message(calls: list[tuple[str, str]]) -> None:
    environment = begin(max_malformed_in_a_row=1)
    before = dict(environment.workspace.task_files)
    tool_calls = [ToolCall(id=f"c{i}", name=name, arguments=text) for i, (name, text) in enumerate(calls)]
    result = environment.step(Message(role="assistant", tool_calls=tool_calls))
    assert [message.tool_call_id for message in result.messages] == [call.id for call in tool_calls]
    for message in result.messages:
        assert message.role == "tool" and 0 < len(message.content) <= 4_000 + len("\nturns left: 49")
        assert Message.model_validate_json(message.model_dump_json()) == message  # no half characters, no NUL surprises
    assert (result.stop_reason is StopReason.FORMAT_ERROR) == (result.num_malformed == len(tool_calls))
    assert dict(environment.workspace.task_files) == before
    for path in environment.workspace.pass_files:
        assert path.isascii() and not path.startswith(("/", ".")) and ".." not in path.split("/")


@settings(max_examples=200, deadline=None)
@given(NAMES, CALLS)
def test_a_call_is_read_or_refused_with_a_reason(name: str, text: str) -> None:
    try:
        arguments = parse_arguments(ToolCall(id="c", name=name, arguments=text))
    except MalformedCallError as error:
        assert str(error) and len(str(error)) < 600 and "\n" not in str(error)
    else:
        assert isinstance(arguments, dict) and name in (FILE_EDITOR, PASS_EVALUATOR)


@settings(max_examples=60, deadline=None)
@given(st.lists(EDITS, max_size=8))
def test_undo_takes_every_edit_back(edits: list[tuple[str, str]]) -> None:
    environment = begin(max_turns=1000)
    path, states = "pass_dir/a.py", []

    def call(**arguments: Any) -> str:
        call = call_message((FILE_EDITOR, {"path": path, **arguments}))
        return environment.step(call).messages[0].content

    def now() -> str | None:
        return environment.workspace.pass_files.get("a.py")

    for command, text in edits:
        before = now()
        own = {
            "create": {"file_text": text},
            "insert": {"insert_line": 0, "insert_text": text},
            "str_replace": {"old_str": text or "a", "new_str": "b"},
        }[command]
        if not call(command=command, **own).startswith("error"):
            states.append(before)
    for before in reversed(states):
        call(command="undo")
        assert now() == before
    assert "no edit to undo" in call(command="undo")


def test_calls_of_one_turn_run_in_order() -> None:
    environment = begin()
    created = {f"pass_dir/{path}": text for path, text in pass_files("as=1.5").items()}
    steps: list[tuple[str, Any]] = [
        (FILE_EDITOR, {"command": "create", "path": path, "file_text": text}) for path, text in created.items()
    ]
    replace = {"command": "str_replace", "path": "pass_dir/Fuse.py", "old_str": "1.5", "new_str": "2.5"}
    steps += [(PASS_EVALUATOR, {}), (FILE_EDITOR, replace), (FILE_EDITOR, "{"), (PASS_EVALUATOR, {})]
    result = environment.step(call_message(*steps))
    assert [record.verdict.as_score for record in environment.evaluations] == [1.5, 2.5]
    assert [message.content.split("\n")[0][:9] for message in result.messages[-2:]] == ["malformed", "AS 2.5000"]
    assert result.num_malformed == 1 and not result.done


def test_more_calls_than_allowed_are_answered_and_not_executed() -> None:
    environment = begin(max_calls_a_turn=2)
    create = [(FILE_EDITOR, {"command": "create", "path": f"pass_dir/{i}.py", "file_text": ""}) for i in range(4)]
    result = environment.step(call_message(*create))
    assert list(environment.workspace.pass_files) == ["0.py", "1.py"] and len(result.messages) == 4
    assert "at most 2 calls in one answer" in result.messages[3].content and result.num_malformed == 0


@pytest.mark.parametrize("num_allowed", [1, 3])
def test_so_many_malformed_turns_in_a_row_end_the_attempt(num_allowed: int) -> None:
    environment = begin(max_malformed_in_a_row=num_allowed)
    results = [environment.step(call_message((FILE_EDITOR, "not json"))) for _ in range(num_allowed)]
    assert [result.stop_reason for result in results] == [None] * (num_allowed - 1) + [StopReason.FORMAT_ERROR]
    assert all("malformed call" in result.messages[0].content for result in results)


def test_calls_that_are_not_executed_hide_no_malformed_turn() -> None:
    environment = begin(max_malformed_in_a_row=2, max_calls_a_turn=3)
    garbage = call_message(*[(FILE_EDITOR, "not json")] * 5)
    assert [environment.step(garbage).stop_reason for _ in range(2)] == [None, StopReason.FORMAT_ERROR]


LOOK_ALIKES = ["pass_dir/\u0455hared.py", "pass_dir/\uff0e\uff0e/x", "pass_dir/a\u2215b", "\u2025/x"]


@pytest.mark.parametrize("path", LOOK_ALIKES)
def test_look_alikes_are_refused_by_name(path: str) -> None:
    environment = begin()
    reply = environment.step(call_message((FILE_EDITOR, {"command": "create", "path": path, "file_text": "x"})))
    assert "letters, digits" in reply.messages[0].content and reply.messages[0].content.isascii()
    assert environment.workspace.pass_files == {}


def test_half_a_surrogate_pair_reaches_no_record_and_no_file() -> None:
    """A record that holds one cannot be written down, and the whole attempt would be lost with it."""
    environment = begin()
    text = '{"command": "create", "path": "pass_dir/a.py", "file_text": "x = \'\\ud800\'"}'
    message = Message(role="assistant", content="\ud800", reasoning="\udfff", tool_calls=[
        ToolCall(id="\ud800", name=FILE_EDITOR, arguments=text)])  # fmt: skip
    result = environment.step(message)
    assert result.num_malformed == 0, result.messages[0].content
    shown = environment.step(call_message((FILE_EDITOR, {"command": "view", "path": "pass_dir/a.py"})))
    for stored in (message, *result.messages, *shown.messages):
        assert "?" in Message.model_validate_json(stored.model_dump_json()).model_dump_json()
