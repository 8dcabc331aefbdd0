"""bench dataset, small: real records of the built-in expert become many, and the build keeps just what was planted."""

from __future__ import annotations

import argparse
import json

import pytest

from scripts.benches import dataset as bench
from scripts.benches.dataset_records import NO_FINAL, load_one, write_records
from tests.training_records import collect
from trajectories.selection_choice import NEARLY_SAME_PASS, SAME_CONVERSATION
from trajectories.store import load_trajectories


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("collections"), {"good": "as=1.5"}) / "good"


def test_records_have_the_size_asked_for_and_load(collection, tmp_path):
    real = load_one(collection)
    planted = write_records(real, tmp_path / "many", 20, 30_000)
    made = load_trajectories(tmp_path / "many")
    assert len(made) == 20 and 30_000 <= planted.num_bytes / 20 < 45_000
    assert planted.num_good == 14
    assert planted.refusals == {SAME_CONVERSATION: 2, NEARLY_SAME_PASS: 2, NO_FINAL: 2}
    for trajectory in made:
        turns = [message.turn for message in trajectory.messages if message.turn is not None]
        assert turns == sorted(turns) and trajectory.evaluations[0].turn in turns
        asked = [call.id for message in trajectory.messages for call in message.tool_calls]
        answered = [message.tool_call_id for message in trajectory.messages if message.role == "tool"]
        assert asked == answered and len(set(asked)) == len(asked)
    assert write_records(real, tmp_path / "again", 20, 30_000) == planted


@pytest.mark.slow
def test_a_small_run_gives_its_figures(tmp_path, capsys):
    """With the expert's own attempt, the real judge and the command as a user gives it."""
    args = argparse.Namespace(
        records=70, kb=60, collection=None, tokenizer=None, workers=2, device="cpu", json=str(tmp_path / "j"), out=None
    )
    status = bench.run(args)
    record = json.loads((tmp_path / "j").read_text())
    assert status == 0, capsys.readouterr().err
    figures = record["figures"]
    assert figures["rows"] == 49 and figures["refused_otherwise"] == 0
    assert 100 < figures["peak_rss_mib"] < 4096 and figures["cpu_seconds"] > 1
