"""Verbs that start other things: what they refuse before anything is started, and what they hand over."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import cli
from scripts.verbs import train
from scripts.verbs.evaluate import StageClock


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, list[str]]:
    """Exit status, stdout and the lines of stderr."""
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err.splitlines()


@pytest.fixture
def collect_config(tmp_path: Path) -> Path:
    path = tmp_path / "collect.yaml"
    path.write_text("name: tried\ntasks: [nowhere]\npolicy: {kind: expert}\n")
    return path


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["num_atempts=3"], ["override 'num_atempts=3'", "unknown key", "did you mean 'num_attempts'?"]),
        (["limits.max_turn=3"], ["'limits.max_turn'", "'limits.max_turns'"]),
        (["num_attempts=0"], ["num_attempts = 0", "greater than or equal to 1"]),
        ([], ["nowhere", "no such task folder"]),
        (["--device", "cuda:x"], ["--device cuda:x"]),
    ],
)
def test_collect_refuses_in_one_line(
    collect_config: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], words: list[str]
) -> None:
    status, out, lines = run(capsys, "collect", "--config", collect_config, "--dry-run", *overrides)
    assert (status, out, len(lines)) == (2, "", 1), lines
    assert all(word in lines[0] for word in words), lines[0]


def test_an_unknown_key_in_the_file_names_the_file(collect_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collect_config.write_text(collect_config.read_text() + "polcy: {}\n")
    status, _, lines = run(capsys, "collect", "--config", collect_config)
    assert status == 2
    assert str(collect_config) in lines[0]
    assert "did you mean 'policy'?" in lines[0]


def test_overrides_may_stand_before_and_after_flags(collect_config: Path) -> None:
    parsed = cli.parse_arguments(
        ["collect", "a=1", "--config", str(collect_config), "b=2", "--no-resume", "c=3"]
    )
    assert sorted(parsed.overrides) == ["a=1", "b=2", "c=3"]
    assert parsed.resume is False


def test_an_unknown_flag_is_no_override(collect_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, lines = run(capsys, "collect", "--config", collect_config, "--attempts", "3")
    assert status == 2
    assert "unrecognized arguments: --attempts" in lines[0]


def test_train_hands_its_arguments_to_the_launcher() -> None:
    arguments = ["--config", "x.yaml", "trainer.seed=1", "--no-resume"]
    command = " ".join(train.launch_command("scripts.train_sft", arguments, accelerate_config=train.CPU_LAUNCH))
    assert "accelerate.commands.launch --config_file" in command
    assert command.endswith("-m scripts.train_sft --config x.yaml trainer.seed=1 --no-resume")


def test_train_refuses_a_launch_configuration_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, lines = run(capsys, "train", "sft", "--config", "x.yaml", "--accelerate-config", "no.yaml")
    assert status == 2
    assert lines[-1].startswith("passwright train: no.yaml: no such file")


@pytest.mark.parametrize(("ended_with", "status"), [("sys.exit(0)", 0), ("sys.exit(3)", 3)])
def test_a_launch_hands_its_exit_status_back(ended_with: str, status: int) -> None:
    assert train.run_launched([sys.executable, "-c", f"import sys; {ended_with}"]) == status


@pytest.mark.slow
def test_a_launched_stage_that_refuses_is_one_line_and_2(tmp_path: Path) -> None:
    config = tmp_path / "x.yaml"
    config.write_text("trainer: {no_such_field: 1}\n")
    command = [sys.executable, "-m", "scripts.cli", "train", "sft", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "train_sft: " in done.stderr and "Traceback" not in done.stderr


def test_an_interrupted_launch_is_130() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)"
    assert train.run_launched([sys.executable, "-c", code]) == 130


def test_dataset_build_without_a_collection_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, lines = run(capsys, "dataset", "build", "--collection", tmp_path / "nothing")
    assert (status, len(lines)) == (2, 1)
    assert str(tmp_path / "nothing") in lines[0]


def test_report_names_a_file_that_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    status, _, lines = run(capsys, "report", f"mine={wrong}", "--out", tmp_path / "report")
    assert (status, len(lines)) == (2, 1)
    assert str(wrong) in lines[0]
    assert not (tmp_path / "report").exists()


def test_the_stage_clock_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from concurrent.futures import Future

    future: Future[int] = Future()
    future.set_result(7)
    clock = StageClock()
    clock.enter("timing")
    assert clock.watch(future) == 7
    assert capsys.readouterr().err == ""
