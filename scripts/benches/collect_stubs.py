"""Judges that take a fixed time and judge nothing, and the stub endpoint as a process: what `bench collect` runs on."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, JudgeError
from eval_harness.pool_records import Progress
from eval_harness.presets import EvaluationProtocol
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict

ROOT = Path(__file__).resolve().parents[2]


class StubJudge:
    """A Judge (pool_records.py) for a JudgePool: sleeps, then reads the speed that the candidate claims."""

    device = "cpu"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_started = False
        self.busy: list[tuple[float, float]] = []
        """Begin and end of each evaluation, time.monotonic()."""
        self._interrupted = threading.Event()

    def start(self) -> None:
        self.is_started = True

    def evaluate(
        self,
        subject: Candidate | str,
        task: Task,
        protocol: EvaluationProtocol,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> Verdict:
        self.is_started = True
        began = time.monotonic()
        if self._interrupted.wait(self.seconds):
            raise JudgeError("interrupted")
        self.busy.append((began, time.monotonic()))
        assert isinstance(subject, Candidate)
        return claimed_verdict(subject, task, protocol, seconds=self.seconds)

    def interrupt(self) -> None:
        self._interrupted.set()

    def kill(self) -> None:
        self.is_started = False

    def close(self) -> None:
        self.kill()


def claimed_verdict(candidate: Candidate, task: Task, protocol: EvaluationProtocol, *, seconds: float) -> Verdict:
    """CORRECT on every graph, with the speed of the comment `# as=X` in the candidate; NO_MATCH without one."""
    claim = re.search(r"# as=([\d.]+)", "\n".join(candidate.files.values()))
    graphs = [
        GraphVerdict(
            graph=graph.name,
            graph_hash=graph.content_hash,
            outcome=Outcome.CORRECT if claim else Outcome.NO_MATCH,
            first_correct_t=-6 if claim else None,
            speedup=float(claim[1]) if claim else None,
            coverage=1.0 if claim else None,
        )
        for graph in task.graphs
    ]
    scores = score_verdict(graphs, protocol.scoring, protocol.slowdown_exponent)
    return Verdict(
        candidate_hash=candidate.candidate_hash,
        task_id=task.task_id,
        task_hash=task.content_hash,
        protocol=protocol.name,
        device="cpu",
        complete=True,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        graphs=graphs,
        timings={"total": seconds},
    )


@contextmanager
def stub_endpoint(*options: object) -> Iterator[str]:
    """The stub endpoint in a process of its own; yields its address. Raises HarnessError if it does not start."""
    command = [sys.executable, "-m", "scripts.benches.stub_endpoint", *map(str, options)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not (address := process.stdout.readline().strip()):
            raise HarnessError(f"the stub endpoint did not start (exit status {process.wait(10)})")
        yield address
    finally:
        process.terminate()
        process.wait(10)


def busy_share(judges: Sequence[StubJudge], begin: float, end: float) -> float:
    """Of the judges' time between two moments, the share in which they evaluated."""
    if end <= begin:
        return 0.0
    busy = sum(max(0.0, min(b, end) - max(a, begin)) for judge in judges for a, b in judge.busy)
    return busy / (len(judges) * (end - begin))
