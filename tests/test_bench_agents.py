"""`passwright bench agents`: its tables on records whose figures are known, and one small run with the real judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import cli
from scripts.benches.agents import draw_tasks
from scripts.benches.agents_figures import FLOOR, agent_figures, best_after, render, targets
from tests.search_policy import writes
from tests.test_agent_evolve import SMALL, model, run
from trajectories.record import Trajectory


def attempt(task: str, *scores: float) -> Trajectory:
    policy = model(
        translate=lambda before, request: writes(f"as={scores[0]}"),
        improve=lambda before, request: writes(f"as={scores[before + 1]}"),
    )
    settings = {**SMALL, "generations": len(scores) - 1, "num_proposals": 1, "num_evaluated": 1}
    trajectory = run(settings, policy)
    trajectory.task_id = task
    return trajectory


def test_the_best_so_far_over_evaluations_and_pairs_of_agents() -> None:
    found = {
        "iterative": [attempt("a", 1.0, 0.9, 2.0), attempt("b", 1.0, 1.5)],
        "evolve": [attempt("a", 1.0, 3.0, 2.0, 1.1), attempt("b", 1.0, 1.2, 1.8)],
    }
    figures = agent_figures(found, 4)
    assert figures["steps"] == [1, 2, 4]
    assert figures["agents"]["iterative"]["curve"] == pytest.approx([1.0, 1.5**0.5, 3.0**0.5])
    assert figures["agents"]["evolve"]["curve"] == pytest.approx([1.0, 3.6**0.5, 5.4**0.5])
    assert figures["agents"]["evolve"]["evaluations"] == 3.5
    pair = figures["against"]["evolve"]
    assert pair["num_tasks"] == 2 and pair["shown"] == pytest.approx((3.0 / 2.0 * 1.8 / 1.5) ** 0.5)
    low, high = pair["fresh_interval"]
    assert low < pair["fresh"] < high
    assert "over iterative" in render(figures) and "best covered AS after" in render(figures)
    assert [target.is_met for target in targets(figures, "cuda:0")] == [True] and targets(figures, "cpu") == []
    assert best_after(found["evolve"][0], 1) == 1.0 and best_after(found["evolve"][0], 0) == FLOOR


def test_tasks_are_drawn_from_those_with_something_to_tune() -> None:
    tasks = draw_tasks("mini", "cpu", sample=3, seed=1, max_graphs=4)
    assert len(tasks) == 3 and all(len(task.graphs) <= 4 for task in tasks)
    assert tasks == draw_tasks("mini", "cpu", sample=3, seed=1, max_graphs=4)
    assert cli.main(["bench", "agents", "--device", "cpu", "--evaluations", "0"]) == 2


@pytest.mark.slow
def test_one_task_with_the_real_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "agents", "--tasks", "mini", "--sample", "1", "--evaluations", "2", "--max-graphs", "3"]
    command += ["--agents", "iterative,evolve", "--out", str(tmp_path), "--json", "-"]
    assert cli.main(command) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["figures"]["agents"]) == {"iterative", "evolve"}
    assert record["figures"]["agents"]["evolve"]["evaluations"] == 2.0
    assert (tmp_path / "evolve" / "trajectories").is_dir()
