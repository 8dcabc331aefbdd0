"""The dataset: what is kept, that tool arguments are exact, that anyone can load it, that it is the same each time."""

from __future__ import annotations

import json
import shutil

import pytest

from eval_harness.errors import UserError
from tests.training_records import NASTY_LINE, collect
from training.dataset_files import DatasetFolder
from training.run_folder import hash_files
from training.sft_dataset import CARD_FILE, DATA_FILE, DatasetConfig, build_sft_dataset, load_sft_dataset
from trajectories.selection import SelectionConfig
from trajectories.store import load_trajectories


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("collections"), {"good": "as=1.5", "wrong": "wrong", "bad": "violation"})


def _config(collections, out, **selection):
    folders = [collections / name for name in ("good", "wrong", "bad")]
    chosen = SelectionConfig(**selection)
    return DatasetConfig(name="tiny", collections=folders, out=out, selection=chosen, eval_tasks=[])


@pytest.fixture(scope="module")
def built(collections, tmp_path_factory):
    out = tmp_path_factory.mktemp("dataset") / "tiny"
    return out, build_sft_dataset(_config(collections, out))


def test_strict_keeps_what_is_correct_and_counts_the_rest(built):
    out, summary = built
    assert (summary.num_trajectories, summary.num_rows, summary.num_tasks) == (6, 2, 2)
    assert sum(summary.refusals.values()) == 4
    assert summary.as_scores == [1.5, 1.5]
    assert json.loads((out / "summary.json").read_text()) == summary.model_dump()


def test_paper_keeps_wrong_passes_above_its_threshold(collections, tmp_path):
    summary = build_sft_dataset(_config(collections, tmp_path / "paper", preset="paper"))
    assert summary.num_rows == 4  # AS of wrong values is 0.147
    assert summary.as_scores == [0.147207, 0.147207, 1.5, 1.5]


def test_rows_hold_the_conversation_exactly(built, collections):
    out, _ = built
    rows = load_sft_dataset(out)
    recorded = {item.trajectory_id: item for item in load_trajectories(collections / "good")}
    for row in rows:
        trajectory = recorded[row["trajectory_id"]]
        assert [message["role"] for message in row["messages"]] == [message.role for message in trajectory.messages]
        for stored, message in zip(row["messages"], trajectory.messages, strict=True):
            assert stored["content"] == message.content
            for call, recorded_call in zip(stored.get("tool_calls", []), message.tool_calls, strict=True):
                assert call["function"]["arguments"] == json.loads(recorded_call.arguments)
        assert NASTY_LINE in row["messages"][4]["tool_calls"][1]["function"]["arguments"]["file_text"]
        # a call has its own keys and no others: Arrow structs would have filled in nulls
        assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"command": "view", "path": "pass_dir"}
        assert json.loads(row["tools"]) == trajectory.tools
        assert (row["policy"], row["num_turns"], row["protocol"]) == ("scripted", 4, "strict")


def test_it_loads_with_plain_datasets(built, tmp_path):
    datasets = pytest.importorskip("datasets")
    out, _ = built
    plain = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path))
    assert list(plain) == list(load_sft_dataset(out))
    plain.save_to_disk(str(tmp_path / "saved"))
    assert list(load_sft_dataset(tmp_path / "saved")) == list(plain)


def test_the_same_trajectories_give_the_same_bytes(collections, tmp_path):
    config = _config(collections, tmp_path / "one", preset="paper")  # rows of two collections
    summary = build_sft_dataset(config)
    # the order in which collections are named does not matter
    turned = {"collections": config.collections[::-1], "out": tmp_path / "again"}
    again = build_sft_dataset(config.model_copy(update=turned))
    for name in (DATA_FILE, CARD_FILE):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert again.dataset_hash == summary.dataset_hash
    assert hash_files(tmp_path / "one" / "data") == hash_files(tmp_path / "again" / "data")


def test_the_card_says_what_is_in_it(built):
    out, summary = built
    card = (out / CARD_FILE).read_text()
    for reason, count in summary.refusals.items():
        assert f"| {reason} | {count} |" in card
    for text in (
        "2 of 6 trajectories",
        "load_dataset",
        "data/train-*.parquet",
        "| AS | 1.500 | 1.500 | 1.500 |",
        "no tokenizer was given",
    ):
        assert text in card


def test_mistakes_are_one_line_and_destroy_nothing(built, collections, tmp_path):
    out, _ = built
    before = hash_files(out)
    with pytest.raises(UserError, match="holds a dataset already"):
        build_sft_dataset(_config(collections, out))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="holds no dataset"):
        build_sft_dataset(_config(collections, tmp_path / "notes"), overwrite=True)
    with pytest.raises(UserError, match="none of 6 trajectories"):
        build_sft_dataset(_config(collections, tmp_path / "none", min_as_covered=9.0))
    with pytest.raises(UserError, match="no data/train"):
        load_sft_dataset(tmp_path / "notes")
    config = _config(collections, tmp_path / "twice")
    with pytest.raises(UserError, match="named twice"):
        build_sft_dataset(config.model_copy(update={"collections": [collections / "good"] * 2}))
    assert (tmp_path / "notes" / "thesis.txt").exists() and hash_files(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes"]


def test_a_place_that_takes_no_folder_is_one_line(collections, tmp_path):
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / ("n" * 300)):
        with pytest.raises(UserError, match="cannot be written"):
            build_sft_dataset(_config(collections, out))


def test_two_builds_do_not_share_a_folder(collections, tmp_path):
    with DatasetFolder(tmp_path / "d", overwrite=False) as first:
        with pytest.raises(UserError, match="another build writes to it"):
            build_sft_dataset(_config(collections, tmp_path / "d"))
        writer = first.writer("train", schema=None, shard_bytes=100)
        writer.add({}, "{}", 2)
        assert writer.close() == ["data/train-00000-of-00001.jsonl"]


def test_what_fails_at_the_very_end_leaves_the_old_dataset(collections, tmp_path):
    build_sft_dataset(_config(collections, tmp_path / "d"))
    before = hash_files(tmp_path / "d")
    with pytest.raises(OSError), DatasetFolder(tmp_path / "d", overwrite=True) as folder:
        (tmp_path / "d" / ".building" / "summary.json").mkdir()
        folder.finish(card="", summary="")
    assert hash_files(tmp_path / "d") == before


def test_a_kill_between_the_last_renames_is_built_again(collections, tmp_path):
    config = _config(collections, tmp_path / "d")
    summary = build_sft_dataset(config)
    (tmp_path / "d" / ".building" / "replaced").mkdir(parents=True)
    with pytest.raises(UserError, match="holds a dataset already"):  # a killed build beside a whole one
        build_sft_dataset(config)
    (tmp_path / "d" / "summary.json").rename(tmp_path / "d" / ".building" / "replaced" / "summary.json")
    assert build_sft_dataset(config) == summary
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["README.md", "data", "summary.json"]


def test_a_tokenizer_that_is_none_is_told_before_any_record_is_read(collections, tmp_path):
    config = _config(collections, tmp_path / "d").model_copy(update={"tokenizer": str(tmp_path / "none")})
    missing = config.model_copy(update={"collections": [tmp_path / "none"]})
    with pytest.raises(UserError, match=r"tokenizer .* cannot be loaded"):
        build_sft_dataset(missing)


def test_a_record_that_names_an_evaluation_it_has_not_is_one_line(collections, tmp_path):
    shutil.copytree(collections / "good", tmp_path / "c")
    path = next((tmp_path / "c" / "trajectories").glob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"best_evaluation": 7}))
    config = DatasetConfig(collections=[tmp_path / "c"], out=tmp_path / "d", eval_tasks=[])
    with pytest.raises(UserError, match=f"{path.name}: best_evaluation 7 names none of its"):
        build_sft_dataset(config)


def test_overwriting_replaces_the_rows(collections, tmp_path):
    config = _config(collections, tmp_path / "d")
    build_sft_dataset(config)
    build_sft_dataset(config.model_copy(update={"selection": SelectionConfig(preset="paper")}), overwrite=True)
    assert len(load_sft_dataset(tmp_path / "d")) == 4
