"""BIEvolve's figures of an agent with and without gates, on records whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_harness.verdict import Outcome
from scripts import cli
from tests.test_agent_evolve import SMALL, model
from tests.test_agent_evolve import run as run_evolve
from trajectories.batch_figures import PAPER, compare_collections, late_gain
from trajectories.record import Trajectory
from trajectories.store import TrajectoryStore

VARIANT = {"outcome": "variant"}
INVARIANT = {"outcome": "invariant"}


def attempt(index: int, *, speed: float = 2.0, variant: bool = False, wrong: bool = False) -> Trajectory:
    trajectory = run_evolve(SMALL, model())
    trajectory.attempt_index = index
    trajectory.trajectory_id = f"task__{index:03d}"
    final = trajectory.final_verdict
    assert final is not None
    fields: dict[str, Any] = {"batch_invariance": VARIANT if variant else INVARIANT}
    if wrong:
        fields |= {"outcome": Outcome.WRONG_VALUES, "first_correct_t": None, "speedup": None}
    graphs = [graph.model_copy(update=fields) for graph in final.graphs]
    trajectory.final_verdict = final.model_copy(update={"graphs": graphs, "as_covered": speed})
    return trajectory


def test_the_figures() -> None:
    vanilla = [attempt(0, variant=True, speed=4.0), attempt(1), attempt(2, wrong=True), attempt(3, variant=True)]
    aware = [attempt(0, speed=3.0), attempt(1), attempt(2), attempt(3, wrong=True)]
    aware[1].agent_state["archive"][3] |= {"stage": "batch_invariance"}
    verdict = aware[1].evaluations[2].verdict
    graph = verdict.graphs[0].model_copy(
        update={"outcome": Outcome.BATCH_VARIANT, "first_correct_t": None, "speedup": None}
    )
    aware[1].evaluations[2].verdict = verdict.model_copy(update={"graphs": [graph]})
    found = compare_collections(vanilla, aware)
    assert found["num_tasks"] == 4 and found["num_both_correct"] == 2 and found["num_variant_baseline"] == 2
    assert found["vanilla"] == {"bi_success": 0.25, "correct": 0.75}
    assert (found["aware"]["bi_success"], found["aware"]["correct"]) == (0.75, 0.75)
    # of 4 x 5 evaluations and one candidate that the rules refused, two did not keep their bits
    assert found["aware"]["intervention_rate"] == pytest.approx(2 / 21)
    assert found["speedup_kept"] == pytest.approx((3 / 4 * 2 / 2) ** 0.5)
    assert found["speedup_vanilla"] == pytest.approx((4 * 2) ** 0.5)


def test_late_stage_gain_is_of_the_last_five_turns() -> None:
    trajectory = attempt(0)
    turns = [record.turn for record in trajectory.evaluations]
    scores = [record.verdict.as_covered or 0.0 for record in trajectory.evaluations]
    early = max(score for score, turn in zip(scores, turns, strict=True) if turn <= trajectory.num_turns - 5)
    assert late_gain(trajectory) == pytest.approx(max(scores) / early - 1) and late_gain(trajectory) > 0
    trajectory.num_turns = 5
    assert late_gain(trajectory) == 0.0  # nothing stood before them


def test_the_paper_s_rows_are_the_paper_s() -> None:
    assert PAPER["K-Search, 20 turns"] == (75.7, 97.4, 23.1, 86.4)
    assert PAPER["Iterative, 25 turns"] == (48.6, 89.2, 43.6, 87.7)
    assert PAPER["Evolve, 25 turns"] == (78.4, 89.2, 25.6, 102.0) and PAPER["all"][:2] == (67.6, 91.9)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, attempts in {"vanilla": [attempt(0, variant=True)], "aware": [attempt(0)], "other": [attempt(7)]}.items():
        store = TrajectoryStore(tmp_path / name)
        store.open_for_writing({"x": name}, resume=False)
        for each in attempts:
            store.write(each)
        store.close()
    assert cli.main(["bi", "agents", str(tmp_path / "vanilla"), str(tmp_path / "aware")]) == 0
    shown = capsys.readouterr().out
    assert "BI success, % of tasks" in shown and "97.4" in shown
    assert cli.main(["bi", "agents", str(tmp_path / "vanilla"), str(tmp_path / "other")]) != 0
    assert "share no finished task" in capsys.readouterr().err
