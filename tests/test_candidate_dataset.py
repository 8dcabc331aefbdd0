"""Candidates as data: rows of searches and conversations, what is imitated, pairs, dedup, contamination, the card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from eval_harness.errors import UserError
from scripts import cli
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.search_policy import RequestPolicy, writes
from tests.test_agent_evolve import SMALL, model
from tests.test_agents import answers
from tests.test_agents import run as run_conversation
from training.candidate_dataset import NOT_IMITATED, SAME_FILES, build_candidate_dataset
from training.candidate_rows import candidates_of, preference_pairs
from training.dataset_config import DatasetConfig
from training.sft_dataset import build_sft_dataset, load_sft_dataset
from trajectories.agents import make_agent
from trajectories.limits import AgentLimits
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.record import Trajectory
from trajectories.store import TrajectoryStore

SCORES = ["as=1.5", "as=1.1", "nothing", "as=1.2\nimport os", "as=1.8", "as=1.79"]


def search(policy: RequestPolicy | None = None, attempt_index: int = 0) -> Trajectory:
    policy = policy or model(improve=lambda before, request: writes(SCORES[before]))
    agent = make_agent({**SMALL, "num_evaluated": 3})
    return agent.run(make_task(), [policy], CannedEvaluator(), AgentLimits(), seed=3, attempt_index=attempt_index)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("collection")
    store = TrajectoryStore(root)
    store.open_for_writing({"x": 1}, resume=False)
    for trajectory in (
        search(),
        search(attempt_index=1),
        run_conversation(ScriptedPolicy(answers("as=1.3", "as=2.0"))),
    ):
        store.write(trajectory)
    store.close()
    return root


def build(collection: Path, out: Path, kind: str, **more: Any) -> Any:
    config = DatasetConfig.model_validate(
        {"name": "cands", "kind": kind, "collections": [collection], "out": out, "eval_tasks": [], **more}
    )
    return build_candidate_dataset(config)


def test_a_row_a_candidate_none_twice(collection: Path, tmp_path: Path) -> None:
    summary = build(collection, tmp_path / "out", "candidates")
    rows = load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    assert summary.num_rows == len(rows) == 7 + 2 and summary.refusals == {SAME_FILES: 7}
    by_candidate = {(row["agent"], row["candidate"]): row for row in rows}
    best = by_candidate["evolve", 5]
    assert best["parents"] == [2, 0, 1]
    assert best["as_covered"] == 1.8 and json.loads(best["files"])["Fuse.py"] == "# as=1.8\n"
    assert json.loads(best["verdict"])["as_score"] == 1.8 and best["request_kind"] == "improve"
    assert by_candidate["evolve", 4]["stage"] == "source" and not by_candidate["evolve", 4]["verdict"]
    assert by_candidate["iterative", 1]["parents"] == [0] and by_candidate["iterative", 1]["request_kind"] == ""
    card = (tmp_path / "out" / "README.md").read_text()
    assert "candidates" in card.split("## ")[0] and "`parents`" in card and "lucky" in card
    again = build(collection, tmp_path / "again", "candidates")
    assert again.dataset_hash == summary.dataset_hash
    files = [sorted(path.read_bytes() for path in (tmp_path / name).rglob("*.parquet")) for name in ("out", "again")]
    assert files[0] == files[1]


def test_what_is_imitated_is_right_and_no_slower_than_its_request_showed(collection: Path, tmp_path: Path) -> None:
    summary = build(collection, tmp_path / "out", "candidate-sft")
    rows = load_sft_dataset(tmp_path / "out")
    # the translation, and what is faster than all that was shown: not 1.1, and nothing wrong; no conversation
    assert sorted(row["as_covered"] for row in rows) == [1.2, 1.5, 1.79, 1.8]
    assert summary.refusals == {SAME_FILES: 7, NOT_IMITATED: 5}
    for row in rows:
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert "Request: " in row["messages"][1]["content"] and row["messages"][2]["tool_calls"]
        assert json.loads(row["tools"])[0]["function"]["name"] == "file_editor"


def test_pairs_are_of_one_task_and_differ_by_more_than_noise(collection: Path, tmp_path: Path) -> None:
    summary = build(collection, tmp_path / "out", "preferences", max_pairs_per_task=3)
    rows = load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    assert summary.num_rows == len(rows) == 3
    for row in rows:
        assert row["as_covered"] == 2.0 and row["as_covered_rejected"] * 1.1 < 2.0
        chosen, rejected = row["chosen"][0], row["rejected"][0]
        assert chosen["role"] == rejected["role"] == "assistant" and chosen != rejected
        assert "# as=2.0" in json.dumps(chosen["tool_calls"]) and row["prompt"][-1]["role"] == "user"
    records = [record for trajectory in (search(),) for record in candidates_of(trajectory)]
    assert preference_pairs(records, margin=100.0, max_pairs=9) == [
        pair for pair in preference_pairs(records, margin=0.0, max_pairs=9) if not pair[1].is_correct
    ]
    assert preference_pairs([record for record in records if not record.is_correct], margin=0.1, max_pairs=4) == []


def test_questions_of_verifiers_have_the_harness_s_answers(collection: Path, tmp_path: Path) -> None:
    build(collection, tmp_path / "out", "verifier")
    rows = load_sft_dataset(tmp_path / "out")
    answers_by_aspect = {(row["aspect"], row["label"]) for row in rows}
    assert answers_by_aspect == {("compilation", "pass"), ("memory", "pass"), ("numerics", "pass")}
    for row in rows:
        assert row["messages"][-1]["content"] == f"VERDICT: {row['label']}"
        assert row["messages"][0]["content"].startswith("Task add_norm") and "### pass_dir/Fuse.py" in str(
            row["messages"]
        )
    assert len({row["row_hash"] for row in rows}) == len(rows)
    assert "`aspect`, `label`" in (tmp_path / "out" / "README.md").read_text()


def test_evaluation_tasks_are_kept_out(collection: Path, tmp_path: Path) -> None:
    from data.passbench import write_parquet

    write_parquet([make_task()], tmp_path / "held.parquet")
    refs = [f"{tmp_path / 'held.parquet'}"]
    with pytest.raises(UserError, match="share something"):
        build(collection, tmp_path / "out", "candidates", eval_tasks=refs)
    with pytest.raises(UserError, match="no row of kind candidates"):
        build(collection, tmp_path / "out", "candidates", eval_tasks=refs, contamination="drop")
    summary = build(collection, tmp_path / "out", "candidates", eval_tasks=refs, contamination="report")
    assert summary.contamination is not None and summary.contamination.num_found == 3


def test_the_command_builds_and_shows_each_kind(
    collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("candidates", "candidate-sft", "preferences", "verifier"):
        out = str(tmp_path / kind)
        arguments = ["dataset", "build", "--kind", kind, "--collection", str(collection), "--out", out, "eval_tasks=[]"]
        assert cli.main(arguments) == 0
        assert cli.main(["dataset", "show", out]) == 0
    shown = capsys.readouterr().out
    assert '"chosen"' in shown and '"parents"' in shown
    assert cli.main(["dataset", "build", "--kind", "candidates", "--collection", str(tmp_path), "--out", "x"]) != 0


def test_a_search_is_no_conversation(collection: Path, tmp_path: Path) -> None:
    config = DatasetConfig(name="c", collections=[collection], out=tmp_path / "out", eval_tasks=[])
    summary = build_sft_dataset(config)
    assert summary.num_rows == 1 and summary.refusals == {
        "a search, no conversation: dataset build --kind candidates": 2
    }
