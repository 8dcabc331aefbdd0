"""Screening: each reason on a graph written for it, none on an ordinary one; `passwright tasks screen`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.graph import Graph
from data.passbench import write_task
from eval_harness.screening import REASONS, ScreenFinding, screen_graph
from scripts import cli
from tests.helpers import make_graph, make_task

PLAIN = {"in_0": ((8, 16), "float32"), "in_1": ((8, 16), "float32")}


def graph(body: str, inputs: dict[str, tuple[tuple[int, ...], str]] = PLAIN) -> Graph:
    return make_graph("g", body, inputs)


def reasons(body: str, inputs: dict[str, tuple[tuple[int, ...], str]] = PLAIN) -> set[str]:
    return {finding.reason for finding in screen_graph(graph(body, inputs))}


def test_nothing_speaks_against_ordinary_graphs() -> None:
    assert screen_graph(graph("tmp_0 = in_0 * in_1\ntmp_1 = torch.relu(tmp_0)\nreturn (tmp_1,)")) == []
    assert reasons("tmp_0 = in_0 + in_1\nreturn (tmp_0, tmp_0.sum(dim=-1))") == set()
    # in place: what is written counts, not the name of the result
    assert reasons("tmp_0 = in_0 * 2.0\ntmp_1 = tmp_0.add_(in_1)\nreturn (tmp_0,)") == set()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0 * 1e-6\nreturn (tmp_1,)", "near_zero"),
        ("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0 * 1e-6\ntmp_2 = tmp_1 + 5.0\nreturn (tmp_2,)", "same_for_all_seeds"),
        ("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0.sum(dim=0, keepdim=True)\nreturn (tmp_1.expand(8, 16),)", "uniform_axis"),
        ("tmp_0 = in_1 * 0.0\ntmp_1 = in_0 + tmp_0\nreturn (torch.relu(tmp_1),)", "input_without_effect"),
        ("tmp_0 = in_0 * in_1\ntmp_1 = torch.sin(in_0)\nreturn (tmp_0,)", "operator_without_effect"),
        ("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0 * 1e-9\nreturn (tmp_1,)", "passes_zeros"),
        ("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0 * 1e-9\ntmp_2 = tmp_1 + 3.0\nreturn (tmp_2,)", "passes_mean"),
        ("tmp_0 = in_1 * 1e-9\ntmp_1 = in_0 + tmp_0\nreturn (tmp_1,)", "passes_identity"),
        ("tmp_0 = in_0[:4] * 1.0\nreturn (tmp_0,)", "passes_identity"),
        ("tmp_0 = in_0 @ in_1\nreturn (tmp_0,)", "does_not_run"),
    ],
)
def test_each_reason_is_found(body: str, reason: str) -> None:
    assert reason in reasons(body)


def test_a_finding_names_what_it_is_about() -> None:
    found = screen_graph(graph("tmp_0 = in_0 * in_1\ntmp_1 = torch.sin(in_0)\nreturn (tmp_0,)"))
    assert found == [ScreenFinding("operator_without_effect", "sin (tmp_1)")]
    found = screen_graph(graph("tmp_0 = in_1 * 0.0\nreturn (torch.exp(in_0 + tmp_0),)"))
    assert ScreenFinding("input_without_effect", "in_1") in found
    assert {finding.reason for finding in found} <= set(REASONS)


def test_an_index_that_is_needed_is_no_operator_without_effect() -> None:
    inputs = {"in_0": ((50, 8), "float32"), "in_1": ((6,), "int64")}
    assert reasons("tmp_0 = in_1 + 1\ntmp_1 = tmp_0 % 50\nreturn (in_0[tmp_1] * 2.0,)", inputs) == set()


def test_a_call_outside_the_allow_list_is_not_run(tmp_path: Path) -> None:
    body = f"torch.save(in_0, {str(tmp_path / 'x')!r})\nreturn (in_0 + in_1,)"
    assert reasons(body) == {"does_not_run"} and not (tmp_path / "x").exists()


def test_the_command_counts_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = graph("return (torch.relu(in_0 * in_1),)")
    idle = graph("tmp_0 = in_0 * in_1\ntmp_1 = torch.sin(in_0)\nreturn (tmp_0,)")
    task = make_task(Graph("graphs/good", good.files), Graph("graphs/idle", idle.files))
    folder = tmp_path / "tasks" / "t"
    write_task(replace(task, task_id="t"), folder)
    out = tmp_path / "screen.jsonl"
    command = ["tasks", "screen", str(folder), "--out", str(out), "--seeds", "3", "--json", str(tmp_path / "j.json")]
    assert cli.main(command) == 0, capsys.readouterr().err
    first = out.read_text()
    found = json.loads((tmp_path / "j.json").read_text())
    assert (found["num_graphs"], found["num_dropped"], found["num_tasks_dropped"]) == (2, 1, 0)
    assert found["reasons"] == {"operator_without_effect": 1}
    shown = capsys.readouterr()
    assert "operator_without_effect (sin (tmp_1))" in shown.err and "2 graphs, 1 with a reason" in shown.err
    out.write_text(first + '{"graph_hash": "cut o')
    assert cli.main(command) == 0 and out.read_text().startswith(first)
    assert json.loads((tmp_path / "j.json").read_text()) == found
    assert cli.main(["tasks", "screen", str(folder), "--seeds", "1"]) == 2
    profile = tmp_path / "profile.jsonl"
    digest = found["records"][0]["graph_hash"]
    measured = {"graph": "g", "graph_hash": digest, "outcome": "CORRECT", "first_correct_t": -6, "speedup": 2.5}
    profiled = {
        "task_id": "t",
        "graph": "g",
        "graph_hash": digest,
        "num_nodes": 2,
        "dtype": "float32",
        "direct": measured,
    }
    profile.write_text(f"{{}}\n{json.dumps(profiled)}\n")
    assert cli.main([*command, "--profile", str(profile)]) == 0
    assert json.loads((tmp_path / "j.json").read_text())["reasons"]["beaten_by_inductor"] == 1
    profile.write_text("{}\nno record\n")
    assert cli.main([*command, "--profile", str(profile)]) == 2


def test_lazy_passes_are_not_correct_before_the_harness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = graph("return (torch.relu(in_0 * in_1),)")
    idle = graph("return (in_0 * 0.0 + in_0,)")  # an identity in other words: its lazy pass is right
    task = make_task(Graph("graphs/good", good.files), Graph("graphs/idle", idle.files))
    folder = tmp_path / "tasks" / "t"
    write_task(replace(task, task_id="t"), folder)
    report = tmp_path / "j.json"
    assert cli.main(["tasks", "screen", str(folder), "--harness", "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    assert found["num_graphs"] == 2 and found["passed"] == []
    assert found["outcomes"]["zeros: WRONG_VALUES"] == 2
    assert found["outcomes"]["identity: VIOLATION"] == 2  # a copy by torch is no kernel
