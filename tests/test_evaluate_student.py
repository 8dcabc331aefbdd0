"""A student's evaluation through a server process: its files, resume after SIGKILL, shards, checkpoints, the verb."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import HarnessError, UserError
from eval_harness.judge.device_lock import exclusive_use
from eval_harness.report import build_report
from eval_harness.report_row import ReportRow, load_row
from eval_harness.report_schema import Report
from eval_harness.verdict import Verdict
from scripts.verbs import evaluate_student
from tests.canned_evaluator import canned_verdict
from tests.evaluation_runs import REPOSITORY, CannedJudge, make_config, make_student, make_tasks
from tests.stand_in_server import make_server
from training.evaluate import run_student_evaluation
from training.evaluate_config import StudentEvaluationConfig
from training.evaluate_runs import evaluate_checkpoints, merge_evaluations
from training.evaluate_summary import render_summary
from training.fresh_verdicts import FreshVerdicts
from training.serve import running
from trajectories.plan import Shard

CLOCK_TOTALS = ("answer_s", "evaluation_s", "wall_s", "gpu_hours", "cost_usd")


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Path:
    return make_student(tmp_path_factory.mktemp("student"))


def without_clock(report: dict[str, Any]) -> dict[str, Any]:
    """The report without what the wall clock and the server's place write."""
    report = json.loads(json.dumps(report))
    report.pop("run")
    for row in report["rows"]:
        row["settings"].pop("serving", None)
        for name in CLOCK_TOTALS:
            row["totals"].pop(name, None)
    return report


def test_an_evaluation_writes_the_row_the_report_and_their_record(student: Path, tmp_path: Path) -> None:
    config = make_config(
        student, tmp_path / "out", num_attempts=2, sampling={"temperature": 0.7}, baselines=["eager", "inductor"],
        through_compile=True, cost={"usd_per_gpu_hour": 3.6e6},
    )  # fmt: skip
    said: list[str] = []
    tasks = make_tasks()
    evaluation = run_student_evaluation(config, tasks, CannedJudge(), progress=False, say=said.append)
    report = json.loads((tmp_path / "out/report.json").read_text())
    Report.model_validate(report)
    assert report == evaluation.report and [row["name"] for row in report["rows"]] == [
        "student", "Eager", "TorchInductor",
    ]  # fmt: skip
    own = report["rows"][0]
    assert own["several_attempts"]["pass_at_k"] == {"1": 1.0, "2": 1.0}
    assert own["turns"]["num_evaluations"] == len(tasks) * 2 and own["submissions"]["num_submissions"] == len(tasks) * 4
    assert own["totals"]["gpu_hours"] > 0 and own["totals"]["cost_usd"] > 0 and own["totals"]["output_tokens"] > 0
    assert [row["name"] for row in report["compiled"]["rows"]] == [
        f"{name}, through torch.compile" for name in ("student", "Eager", "TorchInductor")
    ]
    assert "| student |" in (tmp_path / "out/report.md").read_text()
    assert (tmp_path / "out/report.html").stat().st_size > 10_000
    lines = (tmp_path / "out/verdicts.jsonl").read_text().splitlines()
    verdicts = [Verdict.model_validate_json(line) for line in lines]
    assert len(verdicts) == 8 and all(verdict.protocol == "strict" for verdict in verdicts)
    assert load_row(tmp_path / "out/row.json").protocol_settings["batch_invariance"] == "report"
    assert (tmp_path / "out/chat_template.jinja").exists() and "loading" in (tmp_path / "out/vllm.log").read_text()
    text = render_summary(evaluation.summary)
    assert "pass@1 100.0%" in text and "95% over tasks" in text and "fresh AS is 1.000 times" in text
    assert any("ready after" in line for line in said)


def test_a_finished_evaluation_is_read_without_a_server(student: Path, tmp_path: Path) -> None:
    config = make_config(student, tmp_path / "out")
    first = run_student_evaluation(config, make_tasks(), CannedJudge(), progress=False)
    broken = config.server.model_copy(update={"program": ["/nothing/there"]})
    again = run_student_evaluation(
        config.model_copy(update={"server": broken}), make_tasks(), CannedJudge(), progress=False
    )
    assert again.row == first.row


def test_another_template_is_another_evaluation(student: Path, tmp_path: Path) -> None:
    config = make_config(student, tmp_path / "out")
    run_student_evaluation(config, make_tasks(1), CannedJudge(), progress=False)
    other = config.model_copy(update={"server": config.server.model_copy(update={"chat_template": "qwen3"})})
    with pytest.raises(UserError, match=r"policy\.serving\.chat_template changed"):
        run_student_evaluation(other, make_tasks(1), CannedJudge(), progress=False)


def test_a_short_context_gets_the_answer_that_is_left(student: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = make_config(student, tmp_path / "out", log=log)
    server = config.server.model_copy(update={"max_model_len": 2000})
    config = config.model_copy(update={"server": server})
    evaluation = run_student_evaluation(config, make_tasks(1), CannedJudge(), progress=False)
    asked = [json.loads(line)["max_tokens"] for line in log.read_text().splitlines() if '"chat"' in line]
    assert evaluation.trajectories[0].num_turns == 5 and all(limit < 2000 for limit in asked)
    assert asked == sorted(asked, reverse=True)


def test_a_server_that_cannot_start_leaves_an_evaluation_that_goes_on(student: Path, tmp_path: Path) -> None:
    config = make_config(student, tmp_path / "out")
    env = config.server.env | {"STAND_IN_FAULT": "oom"}
    broken = config.model_copy(update={"server": config.server.model_copy(update={"env": env})})
    with pytest.raises(UserError, match="out of memory"):
        run_student_evaluation(broken, make_tasks(1), CannedJudge(), progress=False)
    assert run_student_evaluation(config, make_tasks(1), CannedJudge(), progress=False).row.attempts == 1


def test_a_server_on_the_evaluator_s_device_stands_still_while_that_one_works(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a lock of its own
    log = tmp_path / "log"

    class Locked(CannedJudge):
        """Holds the device as a real judge does, and says so in the server's log."""

        def _evaluate(self, *arguments: Any) -> None:
            with exclusive_use("cpu"):
                with log.open("a") as file:
                    file.write('{"route": "evaluation"}\n')
                time.sleep(0.05)
                with log.open("a") as file:
                    file.write('{"route": "evaluated"}\n')
            super()._evaluate(*arguments)

    with running(make_server(tmp_path, STAND_IN_LOG=str(log), STAND_IN_LATENCY="0.05")) as server:
        serve = {"kind": "endpoint", "base_url": server.base_url, "model": "student", "shares_gpu": True}
        config = make_config(student, tmp_path / "out", server=serve)
        run_student_evaluation(config, make_tasks(3), Locked(), progress=False)
    is_paused, evaluated = False, 0
    for entry in map(json.loads, log.read_text().splitlines()):
        is_paused = entry["route"] == "/pause" or (is_paused and entry["route"] != "/resume")
        evaluated += entry["route"] == "evaluated"
        if entry["route"] in ("evaluation", "evaluated"):
            assert is_paused
        if entry["route"] == "chat-done":
            assert not is_paused
    assert evaluated == 3 * 3
    turns = json.loads((tmp_path / "out/serving.jsonl").read_text())["turns"]
    assert turns["num_pauses"] >= 1 and turns["paused_s"] > 9 * 0.05


def test_unstable_final_verdicts_are_settled(student: Path, tmp_path: Path) -> None:
    class Shaky(CannedJudge):
        """UNSTABLE for the first strict evaluation of each task."""

        def submit(self, candidate, task, *, protocol, seed=None):
            future = super().submit(candidate, task, protocol=protocol, seed=seed)
            seen = sum(entry[:2] == (task.task_id, "strict") for entry in self.submitted)
            if protocol.name != "strict" or seen:
                return future
            from tests.canned_evaluator import Candidate, pass_files

            self.submitted.append((task.task_id, "strict", "unstable"))
            return super().submit(Candidate(pass_files("unstable")), task, protocol=protocol, seed=seed)

    config = make_config(student, tmp_path / "out")
    evaluation = run_student_evaluation(config, make_tasks(2), Shaky(), progress=False)
    assert evaluation.summary.first_attempt.incomplete_tasks == []
    assert evaluation.summary.first_attempt.as_score is not None


def test_fresh_verdicts_are_stored_as_they_come_and_failures_name_their_task(tmp_path: Path) -> None:
    config = make_config(Path("m"), tmp_path)
    protocol, tasks, judge = config.resolved_final_protocol(), make_tasks(3), CannedJudge()
    done: list[str] = []
    fresh = FreshVerdicts(tmp_path / "fresh", judge, protocol)
    requests = [(task.task_id, "inductor", task) for task in tasks]
    verdicts = fresh.evaluate(requests, on_done=done.append)
    assert sorted(done) == sorted(verdicts) == [task.task_id for task in tasks] and len(judge.submitted) == 3
    assert FreshVerdicts(tmp_path / "fresh", judge, protocol).evaluate(requests) == verdicts
    assert len(judge.submitted) == 3, "all of them were stored"
    FreshVerdicts(tmp_path / "fresh", judge, config.resolved_final_protocol(apply="compile")).evaluate(requests)
    assert len(judge.submitted) == 6, "another protocol is another verdict"

    class Broken(CannedJudge):
        def submit(self, candidate, task, *, protocol, seed=None):
            from tests.canned_evaluator import Candidate, pass_files

            return super().submit(Candidate(pass_files("harness-error")), task, protocol=protocol, seed=seed)

    with pytest.raises(HarnessError, match="task task0: inductor could not be evaluated"):
        FreshVerdicts(tmp_path / "other", Broken(), protocol).evaluate(requests[:1])


@pytest.mark.slow
def test_shards_together_are_the_whole(student: Path, tmp_path: Path) -> None:
    whole = run_student_evaluation(
        make_config(student, tmp_path / "whole", baselines=["inductor"]), make_tasks(), CannedJudge(), progress=False
    )
    folders = []
    for shard in ("1/2", "2/2"):
        folders.append(tmp_path / shard.replace("/", "-of-"))
        config = make_config(student, folders[-1], baselines=["inductor"])
        part = run_student_evaluation(config, make_tasks(), CannedJudge(), progress=False, shard=Shard.parse(shard))
        assert part.summary.shard == shard and len(part.row.verdicts) == 2
    merged = merge_evaluations(folders, tmp_path / "merged")
    judge = CannedJudge()
    evaluation = run_student_evaluation(merged, make_tasks(), judge, progress=False)
    assert judge.submitted == [], "everything was made by the shards"
    assert without_clock(evaluation.report) == without_clock(whole.report) | {"title": "student: x"}
    with pytest.raises(UserError, match="is there already"):
        merge_evaluations(folders, tmp_path / "merged")
    other = make_config(student, tmp_path / "other", seed=1)
    run_student_evaluation(other, make_tasks(1), CannedJudge(), progress=False)
    with pytest.raises(UserError, match="no share of the same evaluation"):
        merge_evaluations([folders[0], tmp_path / "other"], tmp_path / "new")


@pytest.mark.slow
def test_checkpoints_of_a_run_make_a_curve(student: Path, tmp_path: Path) -> None:
    for step in (10, 20):
        shutil.copytree(student, tmp_path / f"run/checkpoints/checkpoint-{step}")
    config = make_config(Path("unused"), tmp_path / "out", baselines=["inductor"])
    evaluations, report = evaluate_checkpoints(config, tmp_path / "run", make_tasks(2), CannedJudge(), progress=False)
    assert [evaluation.row.step for evaluation in evaluations] == [10, 20]
    assert [(point["step"], point["row"]) for point in report["curve"]] == [(10, "student-10"), (20, "student-20")]
    assert report["curve"][0]["figures"]["as_score"]["value"] > 1
    assert [row["name"] for row in report["rows"]] == ["student-10", "student-20", "TorchInductor"]
    assert "## Checkpoints" in (tmp_path / "out/report.md").read_text()


@pytest.mark.slow
def test_a_run_killed_twice_and_resumed_gives_the_same_report(student: Path, tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-m", "tests.evaluation_runs"], cwd=REPOSITORY, stdin=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    assert launcher.stdin is not None and launcher.stdout is not None

    def launch(out: str, log: str, kill_at: int) -> int:
        assert launcher.stdin is not None and launcher.stdout is not None
        launcher.stdin.write(f"{student} {tmp_path / out} {tmp_path / log} {kill_at}\n")
        launcher.stdin.flush()
        return int(launcher.stdout.readline())

    num_requests = 4 * 2 * 5  # tasks, attempts, answers of each
    assert launch("killed", "log", 9) == -9
    assert launch("killed", "log", 25) == -9
    assert launch("killed", "log", -1) == 0
    assert launch("whole", "whole-log", -1) == 0
    launcher.stdin.close()
    launcher.wait(30)
    killed, whole = (json.loads((tmp_path / out / "report.json").read_text()) for out in ("killed", "whole"))
    assert without_clock(killed) == without_clock(whole)
    answered = (tmp_path / "log").read_text().count('"chat-done"')
    assert num_requests <= answered <= num_requests + 2 * 3, "only answers under way at a kill are asked for again"


def parsed(*arguments: str) -> StudentEvaluationConfig:
    parser = argparse.ArgumentParser()
    evaluate_student.add_arguments(parser)
    return evaluate_student._config(parser.parse_intermixed_args(list(arguments)))


def test_the_command_of_the_paper_s_row_is_short() -> None:
    config = parsed("--model", "runs/sft/tiny/student", "--tasks", "passbench_lite:eval")
    assert config.name == "tiny-student" and config.limits.max_turns == 50 and config.sampling.temperature == 0
    assert config.final_protocol == "strict" and config.final_protocol_overrides == {"batch_invariance": "report"}
    assert config.baselines == ["eager", "inductor"] and config.limits.time_limit_s is None
    assert parsed("--student", "a/b", "--task", "mini").tasks == ["mini"]
    assert parsed("--model", "Qwen/Qwen3-4B", "--tasks", "m", "--name", "q", "--baselines", "none").baselines == []


def test_the_command_s_options_reach_the_configuration() -> None:
    config = parsed(
        "--model", "m", "--tasks", "a", "--tasks", "b", "--protocol", "passnet", "--attempts", "4", "--endpoint",
        "http://host:1/v1", "sampling.temperature=0.6", "server.shares_gpu=true",
    )  # fmt: skip
    assert config.tasks == ["a", "b"] and config.num_attempts == 4 and config.sampling.temperature == 0.6
    assert config.resolved_final_protocol().apply == "compile" and config.server.kind == "endpoint"
    assert config.server.shares_gpu and config.server.base_url == "http://host:1/v1"
    assert parsed("--model", "m", "--tasks", "a", "--serve", "vllm", "server.tensor_parallel=2").server.num_gpus == 2
    for wrong, words in (
        (("--checkpoints", "r", "--model", "m", "--tasks", "a"), "takes the place of --model"),
        (("--merge", "a", "--model", "m"), "--merge: give the shards' folders"),
        (("--model", "m", "--tasks", "a", "--serve", "vllm", "--endpoint", "http://x/v1"), "is served already"),
        (("--model", "m", "--tasks", "a", "server.kind=vlm"), "server"),
    ):
        with pytest.raises(UserError, match=words):
            parsed(*wrong)


def test_flags_replace_what_a_file_says_of_them_and_overrides_go_into_it() -> None:
    file = ("--config", "configs/proof/eval.yaml", "--model", "m")
    assert parsed(*file, "--serve", "transformers").server.kind == "transformers"
    assert parsed(*file, "--serve", "vllm", "server.data_parallel=2").server.chat_template == "smollm2"
    endpoint = parsed(*file, "--endpoint", "http://host:1/v1", "server.shares_gpu=true").server
    assert endpoint.kind == "endpoint" and endpoint.shares_gpu
    passnet = parsed(*file, "--protocol", "passnet", "final_protocol_overrides.num_trials=10")
    assert passnet.final_protocol_overrides == {"num_trials": 10}


def test_a_row_of_an_older_version_is_read() -> None:
    verdict = canned_verdict("# as=1.5", make_tasks(1)[0]).model_dump(mode="json")
    old = {"name": "a", "verdicts": {"task0": verdict}, "attempts": 1, "totals": {}, "feedback_scores": {},
           "as_by_turn": [0.1, 1.5], "note": ""}  # fmt: skip
    row = ReportRow.model_validate(old)
    report = build_report([row])
    assert report["rows"][0]["several_attempts"] is None and report["rows"][0]["groups"] == {}
