"""A collection with the gate of batch invariance: a variant pass is refused, fed back and mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_harness.verdict import Outcome
from tests.helpers import make_task
from tests.test_bi_gate import BY_ROWS, FIXED, SHORT, row_sum_graph
from trajectories.collect import CollectConfig, run_collect
from trajectories.policies.replay import pass_folder_answers
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.selection import SelectionConfig, refusal
from trajectories.store import load_trajectories


def teacher(_: Any) -> ScriptedPolicy:
    return ScriptedPolicy(pass_folder_answers(BY_ROWS.files)[:-1] + pass_folder_answers(FIXED.files))


@pytest.mark.slow
def test_a_variant_pass_is_refused_and_fed_back_and_the_mended_one_is_kept(executor: Any, tmp_path: Path) -> None:
    gate = {**SHORT, "batch_invariance": "enforce"}
    config = CollectConfig(
        name="bi", tasks=["x"], policy={"kind": "mending"}, out_dir=tmp_path / "bi", num_workers=1, verdict_cache=False,
        protocol_overrides=gate, final_protocol_overrides=gate,
    )  # fmt: skip
    task = make_task(row_sum_graph())
    summary = run_collect(config, [task], executor, factories={"mending": teacher}, progress=False)
    assert summary.num_finished == summary.num_tasks_solved == 1
    (trajectory,) = load_trajectories(tmp_path / "bi")
    first, second = (evaluation.verdict for evaluation in trajectory.evaluations)
    assert [graph.outcome for graph in first.graphs] == [Outcome.BATCH_VARIANT] and first.as_score == pytest.approx(0.1)
    assert [graph.outcome for graph in second.graphs] == [Outcome.CORRECT]
    told = [message.content for message in trajectory.messages if message.role == "tool"]
    (reply,) = (text for text in told if "BATCH_VARIANT" in text)
    assert "Fuse.py" in reply and "x.shape[0]" in reply
    assert trajectory.best_evaluation == 1
    final = trajectory.final_verdict
    assert final is not None and final.graphs[0].batch_invariance["outcome"] == "invariant"
    assert refusal(trajectory, SelectionConfig(batch_invariant=True, min_as_covered=0.0)) is None
