"""`passwright bench`: what it lists and how it ends; the integrity measurement on three entries, in real processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import cli
from scripts.benches import integrity_tables as tables
from scripts.benches.output import Target, render_table, report
from scripts.verbs import bench

ROOT = Path(__file__).resolve().parent.parent
FACTS = {"machine": {}, "versions": {}, "confinement": {}}


def test_every_listed_measurement_takes_the_common_options(capsys):
    names = bench.list_benches()
    assert "integrity" in names and "output" not in names
    for name in names:
        assert cli.main(["bench", name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(option in shown for option in ("--device", "--json", "--out"))


def test_an_unknown_measurement_is_the_users_mistake(capsys):
    assert cli.main(["bench", "nothing"]) == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


def test_a_missed_target_is_status_4_and_says_by_how_much(tmp_path, capsys):
    args = argparse.Namespace(device="cpu", json=None, out=tmp_path)
    targets = [Target("rate", 0.9, 0.93, "at least"), Target("alarms", 0.0, 0.0, "at most")]
    assert report(args, "made", body="body", figures={"rate": 0.9}, targets=targets, facts=FACTS) == 4
    assert "missed by 0.03" in capsys.readouterr().err
    assert json.loads((tmp_path / "made.json").read_text())["targets"][1]["is_met"]
    assert report(args, "made", body="", figures={}, targets=targets[1:], facts=FACTS) == 0


def test_a_target_without_a_measurement_is_missed():
    assert not Target("rate", None, 0.0, "at least").is_met


def test_a_table_aligns_its_columns():
    lines = render_table(("name", "n"), [("a", 1.0), ("bcd", None)]).splitlines()
    assert [len(line) for line in lines] == [7, 7, 7, 7]


def cheat(ends, caught_by, *, without=None):
    off = {"ends": without, "caught_by": None, "rule": None} if without else None
    common = {"name": ends, "rows": [], "rule": None, "speedup": None, "seconds": 1.0, "as_expected": True}
    return common | {"ends": ends, "caught_by": caught_by, "without": off}


def test_a_gain_counts_against_the_detection_rate_and_for_the_only_layer():
    cheats = [cheat("violation", "source", without="GAIN"), cheat("wrong", "comparison"), cheat("GAIN", None)]
    found = tables.summarise({"cheats": cheats, "honest": []})
    assert found["detection_rate"] == pytest.approx(2 / 3)
    assert found["gains"] == ["GAIN"]
    source = next(row for row in found["layers"] if row["layer"] == "source")
    assert (source["caught_first_by"], source["caught_only_by"]) == (1, 1)
    assert not tables.targets({"cheats": cheats, "honest": []} | found)[0].is_met


@pytest.mark.slow
def test_integrity_on_three_entries(tmp_path):
    """A cheat that the source rules see and the guard sees without them, one that is wrong, and an honest pass."""
    (tmp_path / "cheats").mkdir()
    (tmp_path / "honest").mkdir()
    for name in ("operators_only", "zeros_output"):
        (tmp_path / "cheats" / name).symlink_to(ROOT / "tests" / "exploits" / name)
    (tmp_path / "honest" / "plain").symlink_to(ROOT / "tests" / "honest" / "numba_add_relu_mul")
    command = [sys.executable, "-m", "scripts.cli", "bench", "integrity", "--json", "-"]
    command += ["--corpus", str(tmp_path / "cheats"), "--honest", str(tmp_path / "honest")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    by_name = {row["name"]: row for row in figures["cheats"]}
    assert by_name["operators_only"]["caught_by"] == "source"
    assert by_name["operators_only"]["without"]["rule"] == "dispatch.compute-op"
    assert by_name["zeros_output"]["ends"] == "wrong"
    assert [row["outcomes"] for row in figures["honest"]] == [["CORRECT"]]
