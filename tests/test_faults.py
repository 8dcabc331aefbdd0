"""Faults through whole evaluations on CPU: each has its outcome, and the next honest evaluation is right, with nothing
left running and nothing left open."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eval_harness.executor import LocalExecutor
from eval_harness.process_tree import children, descendants, is_running
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from scripts.benches.fault_passes import Fault, fault_pass, fault_protocol, fault_task
from scripts.benches.faults import FAULTS

NEXT = "return torch.relu(x + bias) * scale"
"""The evaluation after each fault: right values, without a compilation, which is most of an honest pass's time."""
LEAVE_S = 30.0
"""Within which a killed process must be gone, on a machine that may be busy."""


@dataclass
class Running:
    """An executor with one judge, and a mark that every process below it carries in its first environment."""

    executor: LocalExecutor
    mark: str

    @property
    def judge_pid(self) -> int:
        return self.executor._judges[0]._process.pid

    @property
    def zygote_pid(self) -> int:
        (zygote,) = children(self.judge_pid)
        return zygote

    def evaluate(self, body: str = "", **overrides) -> tuple[GraphVerdict, Verdict]:
        return self.result(self.submit(body, **overrides))

    def submit(self, body: str = "", **overrides):
        return self.executor.submit(fault_pass(body), fault_task(), protocol=fault_protocol(**overrides), seed=5)

    def result(self, future) -> tuple[GraphVerdict, Verdict]:
        verdict = future.result(timeout=240)
        (graph,) = verdict.graphs
        return graph, verdict

    def workers(self) -> list[int]:
        """The processes outside and inside the namespaces of every worker."""
        return [pid for pid in descendants(self.zygote_pid) if is_running(pid)]

    def marked(self) -> set[int]:
        """Every process of the machine, of any session, parent or namespace, that descends from this executor."""
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        return {pid for pid in found if is_running(pid) and pid != os.getpid()}

    def assert_clean(self) -> None:
        """Nothing but the judge and its zygote is left, and the judge holds no memory files of an evaluation."""
        standing = {self.judge_pid, self.zygote_pid}
        wait_until(lambda: self.marked() <= standing, f"left running: {self.marked() - standing}")
        assert not memory_files(self.judge_pid)


def memory_files(pid: int) -> list[str]:
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue
    return [link for link in links if link.startswith("/memfd:passwright")]


def wait_until(holds: Callable[[], bool], otherwise: str, *, seconds: float = LEAVE_S) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    mark = f"/nowhere/{uuid.uuid4()}"
    before = os.environ.get("VIRTUAL_ENV")
    os.environ["VIRTUAL_ENV"] = mark  # one of the few variables that a zygote may know
    with LocalExecutor("cpu") as executor:
        started = Running(executor, mark)
        try:
            started.evaluate(in_full=True)
        finally:
            os.environ.pop("VIRTUAL_ENV") if before is None else os.environ.update(VIRTUAL_ENV=before)
        yield started
    wait_until(lambda: not started.marked(), "the executor is closed and something runs on")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_outcome_and_leaves_nothing(running: Running, fault: Fault) -> None:
    judge_pid = running.judge_pid
    graph, verdict = running.evaluate(
        fault.body, graph_timeout_s=fault.graph_timeout_s, max_memory_share=fault.max_memory_share
    )
    assert graph.outcome in fault.outcomes, graph.message
    assert fault.says in graph.message
    assert "eval_harness" not in verdict.candidate_output, "a traceback of ours"
    assert len(verdict.candidate_output) <= 4000
    running.assert_clean()
    after, _ = running.evaluate(NEXT, disabled_layers=("source", "dispatch"))
    assert after.outcome is Outcome.CORRECT, after.message
    assert running.judge_pid == judge_pid, "a candidate cost us the judge"


def test_after_all_of_them_an_honest_pass_is_judged_in_full(running: Running) -> None:
    graph, _ = running.evaluate(in_full=True)
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert graph.speedup and graph.coverage == pytest.approx(1.0)
    running.assert_clean()


def test_the_judge_keeps_no_descriptors(running: Running) -> None:
    def count() -> int:
        running.assert_clean()
        return len(list(Path(f"/proc/{running.judge_pid}/fd").iterdir()))

    running.evaluate("import os\nos._exit(0)")
    before = count()
    for _ in range(2):
        running.evaluate("import os\nos._exit(0)")
    assert count() <= before


def when_it_sleeps(running: Running, action: Callable[[], None]) -> threading.Thread:
    """Do something once the candidate has said, through a file in its /dev/shm, that it is at work."""

    def run() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for pid in running.workers():
                if Path(f"/proc/{pid}/root/dev/shm/at-work").exists():
                    action()
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


AT_WORK = "import time\nopen('/dev/shm/at-work', 'w').close()\ntime.sleep({seconds})"


def kill_candidate(running: Running, number: int = signal.SIGKILL) -> None:
    for pid in running.workers():
        if Path(f"/proc/{pid}/root/dev/shm/at-work").exists():
            os.kill(pid, number)


def test_one_kill_from_outside_is_not_the_candidates(running: Running) -> None:
    """The kernel's, or an administrator's: the graph is tried again on a fresh process."""
    future = running.submit(AT_WORK.format(seconds=0.5))
    killer = when_it_sleeps(running, lambda: kill_candidate(running))
    graph, _ = running.result(future)
    killer.join()
    assert graph.outcome is Outcome.CORRECT, graph.message
    running.assert_clean()


def test_a_kill_that_repeats_is_the_candidates(running: Running) -> None:
    future = running.submit(AT_WORK.format(seconds=30.0))
    for _ in range(2):
        when_it_sleeps(running, lambda: kill_candidate(running)).join()
        time.sleep(0.3)
    graph, _ = running.result(future)
    assert graph.outcome is Outcome.RUNTIME_ERROR
    assert "SIGKILL" in graph.message
    running.assert_clean()


def test_a_stopped_candidate_is_a_timeout_and_goes(running: Running) -> None:
    future = running.submit(AT_WORK.format(seconds=0.5), graph_timeout_s=4.0)
    when_it_sleeps(running, lambda: kill_candidate(running, signal.SIGSTOP)).join()
    graph, _ = running.result(future)
    assert graph.outcome is Outcome.TIMEOUT, graph.message
    running.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["judge", "zygote"])
def test_a_killed_judge_or_zygote_costs_one_try(running: Running, victim: str) -> None:
    judge_pid = running.judge_pid
    pid = judge_pid if victim == "judge" else running.zygote_pid
    future = running.submit(AT_WORK.format(seconds=0.5))
    when_it_sleeps(running, lambda: os.kill(pid, signal.SIGKILL)).join()
    graph, _ = running.result(future)
    assert graph.outcome is Outcome.CORRECT, graph.message
    assert running.judge_pid != judge_pid
    running.assert_clean()
