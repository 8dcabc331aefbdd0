"""Rows hold what was written, exactly, for any reader; files, splits and formats follow from the configuration."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.canned_evaluator import make_task
from tests.training_records import collect
from training import dataset_workers
from training.dataset_rows import NO_UNICODE, encode_messages, exact_object, rows_schema, rows_table, template_message
from training.run_folder import hash_files
from training.sft_dataset import DatasetConfig, build_sft_dataset, load_sft_dataset, validation_tasks
from trajectories.record import Message, ToolCall
from trajectories.selection import SelectionConfig, select_one
from trajectories.store import load_trajectories

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    tasks = [make_task(f"task_{i}", num_graphs=1 + i % 2) for i in range(6)]
    return collect(tmp_path_factory.mktemp("collections"), {"good": "as=1.5"}, tasks) / "good"


def build(collection, out, **settings):
    return build_sft_dataset(DatasetConfig(collections=[collection], out=out, eval_tasks=[], **settings))


def message_with(arguments):
    return Message(role="assistant", tool_calls=[ToolCall(id="1", name="f", arguments=arguments)])


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=5))
def test_arguments_come_back_as_they_were_written(value):
    """Through Arrow and the reader of `datasets`: values, types and the order of keys; or the text itself."""
    from datasets import Dataset
    from datasets.table import InMemoryTable

    text = json.dumps(value)
    texts = encode_messages({"messages": [template_message(message_with(text))]})
    schema = rows_schema(with_tokens=False)
    empty = {"string": "", "int64": 0, "double": 0.0}
    row = {field.name: empty.get(str(field.type), []) for field in schema} | {"messages": texts}
    read = Dataset(InMemoryTable(rows_table([row], schema)))[0]["messages"]
    arguments = read[0]["tool_calls"][0]["function"]["arguments"]
    assert (arguments if isinstance(arguments, str) else json.dumps(arguments)) == text


@pytest.mark.parametrize(
    ("text", "is_object"),
    [
        ('{"line": 3, "b": {"z": [1, null, true], "a": "\\ud83d\\ude00"}}', True),
        ('{"x": 0.25, "big": 9223372036854775808}', True),
        ("{}", True),
        ("", True),
        ('{"x": 1.7976931348623157e308}', False),  # the reader of `datasets` is one bit off
        ('{"x": 18446744073709551616}', False),  # and reads no more than 64 bits
        ('{"x": NaN}', False),
        ('{"x": 1e999}', False),
        ('{"x": 1, "x": 2}', False),
        ("[1]", False),
        ('{"x": 1', False),
        ("[" * 100_000, False),
    ],
)
def test_arguments_that_a_reader_would_change_stay_text(text, is_object):
    assert (exact_object(text or "{}") is not None) == is_object
    arguments = template_message(message_with(text))["tool_calls"][0]["function"]["arguments"]
    assert arguments == (json.loads(text or "{}") if is_object else text)
    if is_object:
        assert not any(isinstance(value, float) and math.isnan(value) for value in arguments.values())


@pytest.mark.parametrize("where", ["content", "arguments"])
def test_half_a_surrogate_pair_is_no_crash(collection, tmp_path, where):
    """In an argument's JSON escape it is a refusal with its reason; elsewhere reading a record has replaced it."""
    shutil.copytree(collection, tmp_path / "c")
    path = sorted((tmp_path / "c" / "trajectories").glob("*.json"))[0]
    record = json.loads(path.read_text())
    answer = next(message for message in record["messages"] if message["role"] == "assistant")
    if where == "arguments":
        answer["tool_calls"][0]["arguments"] = '{"path": "\\uD83D"}'
    else:
        answer["content"] = "\ud83d"
    path.write_text(json.dumps(record))
    summary = build(tmp_path / "c", tmp_path / "d")
    refused = where == "arguments"
    assert summary.num_rows == 6 - refused and summary.refusals == ({NO_UNICODE: 1} if refused else {})


def test_rows_go_to_files_of_bounded_size(collection, tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = build(collection, tmp_path / "one")
    parts = build(collection, tmp_path / "many", shard_mb=0.004)
    assert len(parts.files) == 6 and parts.files[-1] == "data/train-00005-of-00006.parquet"
    assert parts.dataset_hash == whole.dataset_hash
    assert sorted(path.name for path in (tmp_path / "many" / "data").iterdir()) == [f[5:] for f in parts.files]
    loaded = datasets.load_dataset(str(tmp_path / "many"), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == list(load_sft_dataset(tmp_path / "one")) == list(load_sft_dataset(tmp_path / "many"))


def test_processes_of_their_own_change_nothing(collection, tmp_path, monkeypatch):
    build(collection, tmp_path / "one", num_workers=1)
    monkeypatch.setattr(dataset_workers, "MANY", 2)
    build(collection, tmp_path / "two", num_workers=2)
    assert hash_files(tmp_path / "one" / "data") == hash_files(tmp_path / "two" / "data")
    path = next((collection / "trajectories").glob("*.json"))
    shutil.copytree(collection, tmp_path / "c")
    (tmp_path / "c" / "trajectories" / path.name).write_text("{")
    with pytest.raises(UserError, match=r"cannot be read"):
        build(tmp_path / "c", tmp_path / "three", num_workers=2)
    assert not (tmp_path / "three").exists()


def _process_id(work, item):
    return os.getpid()


def _first_process_id(connection):
    with dataset_workers.Workers(dataset_workers.Work(SelectionConfig(), None), 2, dataset_workers.MANY) as workers:
        connection.send(next(iter(workers.map(_process_id, range(dataset_workers.MANY)))))
        time.sleep(60)


def test_processes_end_with_a_build_that_is_killed():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    build = context.Process(target=_first_process_id, args=(theirs,))
    build.start()
    worker = ours.recv()
    os.kill(build.pid, signal.SIGKILL)
    build.join()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_whole_tasks_are_held_out_for_validation(collection, tmp_path):
    datasets = pytest.importorskip("datasets")
    summary = build(collection, tmp_path / "d", eval_share=0.3)
    loaded = datasets.load_dataset(str(tmp_path / "d"), cache_dir=str(tmp_path / "cache"))
    tasks = {split: set(rows["task_id"]) for split, rows in loaded.items()}
    assert set(tasks) == {"train", "validation"} and not tasks["train"] & tasks["validation"]
    assert {split: len(rows) for split, rows in loaded.items()} == summary.splits
    assert set(load_sft_dataset(tmp_path / "d", "validation")["task_id"]) == tasks["validation"]


@given(st.sets(st.text(max_size=5), max_size=30), st.floats(0.01, 0.99))
def test_a_task_stays_on_its_side_when_others_come(tasks, share):
    found = validation_tasks(tasks, share)
    assert found <= tasks and bool(found) == (len(tasks) > 1) and (not found or found != tasks)
    more = validation_tasks(tasks | {f"another {i}" for i in range(200)}, share)
    if len(found) > 1 and len(found) < len(tasks) - 1:
        assert found == more & tasks


def test_lines_for_a_fine_tuning_api_hold_the_very_text(collection, tmp_path):
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
    from pydantic import TypeAdapter

    summary = build(collection, tmp_path / "d", format="openai-jsonl", eval_share=0.3)
    lines = [json.loads(line) for name in summary.files for line in (tmp_path / "d" / name).read_text().splitlines()]
    assert len(lines) == summary.num_rows == 6 and len(summary.files) == 2
    messages, tools = TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[ChatCompletionToolParam])
    recorded = {}
    for trajectory in load_trajectories(collection):
        chosen = select_one(trajectory, SelectionConfig())
        recorded[trajectory.messages[1].content] = (chosen.messages, trajectory.tools)
    for line in lines:
        assert set(line) == {"messages", "tools"}
        messages.validate_python(line["messages"])
        tools.validate_python(line["tools"])
        expected, offered = recorded[line["messages"][1]["content"]]
        assert line["tools"] == offered
        for written, message in zip(line["messages"], expected, strict=True):
            assert set(written) <= {"role", "content", "tool_calls", "tool_call_id"}
            texts = [call["function"]["arguments"] for call in written.get("tool_calls", [])]
            assert texts == [call.arguments for call in message.tool_calls]
    assert "data/train-*.jsonl" in (tmp_path / "d" / "README.md").read_text()


def test_tokens_are_counted_with_the_student_s_tokenizer(collection, tmp_path):
    from training.chat_templates import load_template
    from training.sft_rows import tokenize_rows
    from training.student import TinyStudentConfig, train_tokenizer

    tokenizer = train_tokenizer([load_template()], TinyStudentConfig(vocab_size=400))
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    summary = build(collection, tmp_path / "d", tokenizer=str(tmp_path / "tokenizer"))
    rows = load_sft_dataset(tmp_path / "d")
    _, report = tokenize_rows(rows, tokenizer, max_length=None, show_progress=False)
    assert summary.lengths is not None and sum(summary.lengths.histogram.values()) == 6
    assert summary.lengths.num_tokens == report.num_tokens == sum(rows["num_tokens"])
    assert summary.lengths.num_trained_tokens == report.num_trained_tokens == sum(rows["num_trained_tokens"])
    assert f"longest {summary.lengths.longest}" in (tmp_path / "d" / "README.md").read_text()
    with pytest.raises(UserError, match=r"tokenizer .*nothing: cannot be loaded"):
        build(collection, tmp_path / "e", tokenizer=str(tmp_path / "nothing"))
