"""`passwright bench collect` in small: the figures are there, and an idle evaluator is status 4."""

import json

import pytest

from scripts import cli
from scripts.benches.collect_stubs import StubJudge, busy_share


def bench(tmp_path, *options):
    sizes = ("--attempts", 6, "--rounds", 2, "--latency", 0.1, "--turns", 4, "--every", 2, "--judges", 1, "--graphs", 2)
    arguments = ["bench", "collect", "--json", tmp_path / "figures.json", *sizes, *options]
    status = cli.main([str(argument) for argument in arguments])
    return status, json.loads((tmp_path / "figures.json").read_text())


def test_an_evaluator_that_waits_is_a_missed_target(tmp_path, capsys):
    status, record = bench(tmp_path, "--evaluation", 0.001)
    figures = record["figures"]
    assert status == 4 and figures["busy_share"] < 0.9
    assert figures["num_finished"] == figures["num_planned"] == 12
    assert figures["num_answers"] == 12 * 5 and figures["num_evaluations"] == 12 * 3
    assert figures["own_cpu_ms_per_answer"] > 0 and figures["peak_rss_mib"] > 10
    (_, first, journal_ms, _), (_, second, whole_ms, _) = figures["store"]
    assert (first, second) == ("journal", "whole record") and journal_ms < whole_ms
    assert "MISSED" in capsys.readouterr().out


@pytest.mark.slow
def test_an_evaluator_that_is_the_bottleneck_is_busy(tmp_path, capsys):
    status, record = bench(tmp_path, "--evaluation", 0.4)
    assert status == 0, capsys.readouterr().out
    assert 0.9 <= record["figures"]["busy_share"] <= 1.0


def test_the_share_counts_what_lies_in_the_window():
    judges = [StubJudge(1.0), StubJudge(1.0)]
    judges[0].busy = [(0.0, 1.0), (2.0, 3.0)]
    assert busy_share(judges, 0.5, 2.5) == (0.5 + 0.5) / 4
    assert busy_share(judges, 1.0, 1.0) == 0.0
