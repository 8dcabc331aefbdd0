"""An evaluation of a stand-in student by canned verdicts; `main` makes runs that can be killed. Not a test."""

from __future__ import annotations

import os
import sys
import time
import traceback
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from training.evaluate import run_student_evaluation
from training.evaluate_config import StudentEvaluationConfig
from training.student import TinyStudentConfig, build_tiny_student

REPOSITORY = Path(__file__).parent.parent
STAND_IN = [sys.executable, str(REPOSITORY / "tests/stand_in_vllm.py")]
BASELINE_SPEED = {"eager": 1.0, "inductor": 0.9}


class CannedJudge(CannedEvaluator):
    """Canned verdicts, of baselines too."""

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        if isinstance(candidate, str):
            candidate = Candidate(pass_files(f"as={BASELINE_SPEED[candidate]} baseline={candidate}"))
        return super().submit(candidate, task, protocol=protocol, seed=seed)


def make_tasks(count: int = 4) -> list[Task]:
    return [make_task(f"task{index}", num_graphs=1 + index % 2) for index in range(count)]


def make_student(folder: Path) -> Path:
    build_tiny_student(["write a pass " * 20], TinyStudentConfig(vocab_size=300, num_layers=1, hidden_size=16), folder)
    return folder


def make_config(student: Path, out: Path, *, log: Path | None = None, latency_s: float = 0.0, **fields: Any) -> Any:
    """With vLLM's stand-in as the server."""
    env = {"PYTHONPATH": str(REPOSITORY), "STAND_IN_LATENCY": str(latency_s)}
    env |= {"STAND_IN_LOG": str(log)} if log else {}
    values = {
        "name": "student",
        "student": student,
        "tasks": ["x"],
        "out": out,
        "num_workers": 3,
        "server": {"kind": "vllm", "program": STAND_IN, "env": env},
    }
    return StudentEvaluationConfig.model_validate(values | fields)


def main() -> None:
    """For each line `STUDENT OUT LOG KILL_AT`: a run in a fork, killed after KILL_AT requests; prints its status."""
    import transformers

    assert transformers.AutoTokenizer  # imported once, before the forks
    for line in sys.stdin:
        student, out, log, kill_at = line.split()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                config = make_config(
                    Path(student), Path(out), log=Path(log), latency_s=0.02, num_attempts=2,
                    sampling={"temperature": 0.7}, baselines=["eager", "inductor"],
                )  # fmt: skip
                run_student_evaluation(config, make_tasks(), CannedJudge(), progress=False)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        killed = False
        while True:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            answered = Path(log).read_text().count('"chat"') if Path(log).exists() else 0
            if not killed and 0 <= int(kill_at) <= answered:
                os.kill(pid, 9)
                killed = True
            time.sleep(0.002)
        print(os.waitstatus_to_exitcode(code), flush=True)


if __name__ == "__main__":
    main()
