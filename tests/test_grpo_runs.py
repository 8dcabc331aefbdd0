"""Whole GRPO runs of a tiny model: killed and gone on with, on one process and two; a judge that fails; an adapter."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.cli import main
from scripts.config_loading import load_config
from tests.canned_evaluator import CannedEvaluator
from tests.grpo_runs import TRAINER, FailingEvaluator, scripted_engine, write_run
from training.grpo import run_grpo
from training.grpo_config import GrpoRunConfig
from trajectories.store import load_trajectories

ROOT = Path(__file__).resolve().parent.parent
STEPS = 6
LOGGED = (
    *("rewards/score", "rewards/format", "rewards/coverage", "score/as", "score/as_covered", "rollouts/violation_rate"),
    *("turns/mean", "tokens/mean", "groups/dead_share", "seconds/rollout", "seconds/generation", "seconds/evaluation"),
    *("seconds/training", "evaluator/utilisation", "entropy", "pools/live", "template/drift_share"),
)


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _losses(out: Path) -> list[tuple[int, float, float]]:
    lines = _lines(out / "metrics.jsonl")
    return [(line["step"], line["loss"], line["rewards/total"]) for line in lines if "loss" in line]


def _rollouts(out: Path) -> list[tuple]:
    keys = ("step", "trajectory_id", "task_id", "reward", "num_turns", "num_generated_tokens")
    return [tuple(line[key] for key in keys) for line in _lines(out / "rollouts.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, processes):
    """Steps, losses, optimizer, pools, trajectories and their log are those of a run that nobody killed."""
    trainer = TRAINER | {"max_steps": STEPS, "save_steps": 2}
    path = write_run(tmp_path, groups=2 * processes, trainer=trainer, credit={"mode": "turn"})
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CANNED_DELAY_S": "0.02"}

    def finish(name):
        if processes == 1:  # here: nothing to import again
            config = load_config(GrpoRunConfig, path, [f"out={tmp_path / name}"])
            run_grpo(config, evaluator=CannedEvaluator(), open_engine=scripted_engine)
        else:
            command = _command(tmp_path, processes, f"out={tmp_path / name}")
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)

    finish("whole")
    _kill_after(_command(tmp_path, processes, f"out={tmp_path / 'killed'}"), environment, tmp_path / "killed")
    assert not (tmp_path / "killed" / "summary.json").exists()
    finish("killed")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    summary = json.loads((killed / "summary.json").read_text())
    assert summary["resumed_from_step"] in (2, 4) and summary["num_steps"] == STEPS
    assert [step for step, _, _ in _losses(whole)] == list(range(1, STEPS + 1))
    assert _losses(killed) == _losses(whole)
    assert _rollouts(killed) == _rollouts(whole)
    assert len(_rollouts(whole)) >= STEPS * 4 * processes
    states = [json.loads((out / f"checkpoints/checkpoint-{STEPS}/passwright_grpo.json").read_text())
              for out in (whole, killed)]  # fmt: skip
    assert states[0]["pools"] == states[1]["pools"] and states[0]["alarms"]["raised_at"] == {}
    counts = [{key: value for key, value in state["totals"].items() if key.startswith("num_")} for state in states]
    assert counts[0] == counts[1] and counts[0]["num_rollouts"] == len(_rollouts(whole))
    for out in (whole, killed):
        stored = {trajectory.trajectory_id for trajectory in load_trajectories(out / "rollouts")}
        assert stored == {row[1] for row in _rollouts(whole)}
        assert len(load_trajectories(out / "evaluations")) == 4  # steps 0, 2, 4, 6


def _command(folder: Path, processes: int, *overrides: str) -> list[str]:
    kind = "MULTI_CPU" if processes > 1 else '"NO"'
    accelerate = folder / f"accelerate-{processes}.yaml"
    accelerate.write_text(
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nmixed_precision: 'no'\nnum_machines: 1\n"
        f"machine_rank: 0\nnum_processes: {processes}\nuse_cpu: true\ndebug: false\n"
    )
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(accelerate)]
    return [*launcher, "-m", "tests.grpo_runs", str(folder), *overrides]


def _kill_after(command, environment, out, *, num_steps=3):
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    deadline = time.monotonic() + 240
    try:
        while len(_losses_while_written(out)) < num_steps:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with (out / "rollouts" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the launcher is waited for; what it had launched may be a moment longer


def _losses_while_written(out: Path) -> list[str]:
    path = out / "metrics.jsonl"
    return [line for line in path.read_text().splitlines() if '"loss"' in line] if path.exists() else []


@pytest.mark.slow
def test_a_judge_that_fails_does_not_end_training_and_the_viewer_shows_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = write_run(
        tmp_path, evaluator={"share_repeats": False}, rollout={"max_completion_tokens": 3000, "wall_limit_s": 2.0}
    )
    config = load_config(GrpoRunConfig, path)
    summary = run_grpo(config, evaluator=FailingEvaluator(), open_engine=scripted_engine)
    assert summary.num_steps == 4 and summary.totals["num_infrastructure_failures"] >= 3
    lines = _lines(tmp_path / "run" / "metrics.jsonl")
    steps = [line for line in lines if "loss" in line]
    assert len(steps) == 4 and any(line.get("alarms/infrastructure") for line in steps)
    assert set(LOGGED) <= set(steps[0]) and steps[0]["seconds/training"] > 0
    assert [line["step"] for line in lines if "held_out/num_attempts" in line] == [0, 2, 4]
    stored = load_trajectories(tmp_path / "run" / "rollouts")
    assert any(trajectory.error for trajectory in stored)
    assert main(["view", str(tmp_path / "run" / "rollouts"), "--out", str(tmp_path / "view")]) == 0
    assert (tmp_path / "view" / "index.html").exists()
    again = run_grpo(config, evaluator=CannedEvaluator(), open_engine=scripted_engine)
    assert again == summary  # finished: not trained again


@pytest.mark.slow
def test_the_model_itself_generates_learns_and_is_saved_with_an_adapter(tmp_path):
    """The transformers engine on the trainer's own model; what is rewarded becomes likelier than at first."""
    from safetensors.torch import load_file

    path = write_run(
        tmp_path,
        groups=1,
        group_size=4,
        limits={"max_turns": 1},
        rollout={"max_new_tokens": 8, "max_completion_tokens": 64, "min_new_tokens": 1},
        lora={"r": 4, "alpha": 8},
        reward={"weights": {"score": 1.0, "length": 1.0}, "length_free_tokens": 0, "length_max_tokens": 8},
        evaluation={"every_steps": None},
        trainer=TRAINER | {"max_steps": 3, "learning_rate": 1e-2, "save_strategy": "no"},
    )
    summary = run_grpo(load_config(GrpoRunConfig, path), evaluator=CannedEvaluator())
    lines = _lines(tmp_path / "run" / "metrics.jsonl")
    assert summary.num_steps == 3 and all(line["template/drift_share"] == 0 for line in lines if "loss" in line)
    before = load_file(tmp_path / "student" / "model.safetensors")
    after = load_file(tmp_path / "run" / "student" / "model.safetensors")
    assert set(before) == set(after) and (tmp_path / "run" / "adapter").is_dir()
    assert (tmp_path / "run" / "student" / "chat_template.jinja").exists()
