"""`passwright bench rollouts` in small: its figures are those of what ran, and a serial loop is status 4."""

import json
import threading

import pytest

from scripts import cli
from scripts.benches.rollout_script import make_script
from training.rollout_attempt import Attempt


def bench(tmp_path, *options):
    arguments = ["bench", "rollouts", "--json", tmp_path / "figures.json", "--rollouts", 8, "--turns", 2, *options]
    status = cli.main([str(argument) for argument in arguments])
    return status, json.loads((tmp_path / "figures.json").read_text())


def test_its_figures_add_up(tmp_path, capsys):
    status, record = bench(tmp_path, "--judges", 2, "--evaluation", 0.1, "--step", 0.001, "--tokens", 100, 200)
    figures = record["figures"]
    assert status == (0 if figures["ratio"] <= 1.25 else 4), capsys.readouterr().out
    assert figures["num_evaluations"] == 16 and figures["num_not_whole"] == 0
    assert figures["evaluation_s"] >= 8 * 0.1 and figures["wall_s"] >= figures["evaluation_s"]
    assert figures["ratio"] == figures["wall_s"] / max(figures["generation_s"], figures["evaluation_s"])
    assert figures["num_generated_tokens"] >= 16 * 100 and 0 < figures["overlap_s"] < figures["wall_s"]


def test_a_loop_that_waits_for_each_evaluation_is_a_missed_target(tmp_path, capsys, monkeypatch):
    """As TRL's tool loop does it: one environment after another."""
    at_a_time = threading.Lock()
    step = Attempt.step

    def one_after_another(self):
        with at_a_time:
            return step(self)

    monkeypatch.setattr(Attempt, "step", one_after_another)
    status, record = bench(tmp_path, "--judges", 4, "--evaluation", 0.1, "--step", 0.0005, "--tokens", 90, 100)
    assert status == 4 and record["figures"]["ratio"] > 1.25
    assert "MISSED" in capsys.readouterr().out


@pytest.mark.slow
def test_trls_own_loop_calls_its_tools_one_after_another(tmp_path, capsys):
    options = ("--judges", 4, "--evaluation", 0.2, "--step", 0.0005, "--tokens", 90, 100, "--trl", 4)
    figures = bench(tmp_path, *options)[1]["figures"]
    assert figures["trl_wall_s"] > 4 * 2 * 0.2 and figures["trl_wall_s"] > figures["ours_wall_s"]


def test_answers_have_the_drawn_lengths_and_differ():
    script = make_script(9, 3, (120, 300))
    answers = [tuple(ids) for turns in script.answers.values() for ids in turns]
    assert len(set(answers)) == len(answers) == 27
    assert all(120 <= len(ids) < 340 for ids in answers) and len({len(ids) for ids in answers}) > 5
    assert len({request.group for request in script.requests}) == 2
