"""run_collect: concurrent, resumable after a kill with nothing lost or done twice, within its budget."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from eval_harness.errors import HarnessError, UserError
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.collect import CollectConfig, attempt_seed, run_collect
from trajectories.policies.replay import pass_folder_answers
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.policy import PolicyError
from trajectories.record import StopReason, Usage
from trajectories.store import TrajectoryStore

REPOSITORY = Path(__file__).parent.parent
TASKS = [make_task(f"task{i}") for i in range(3)]


class Teacher(ScriptedPolicy):
    """Writes one pass and evaluates it; each answer costs 0.1 USD. Stateless: it goes by the conversation."""

    is_stateless = True
    asked: ClassVar[Counter] = Counter()
    fail_from = None
    pause_s = 0.0

    def __init__(self, own):
        super().__init__(pass_folder_answers(pass_files("as=1.5")))

    def start(self, task, *, attempt_index, seed, device):
        self.name = f"{task.task_id}__{attempt_index:03d}"

    def answer(self, messages, tools):
        time.sleep(self.pause_s)
        self._position = sum(message.role == "assistant" for message in messages)
        Teacher.asked[self.name, self._position] += 1
        if Teacher.fail_from is not None and sum(Teacher.asked.values()) > Teacher.fail_from:
            raise PolicyError("endpoint down")
        answer = super().answer(messages, tools)
        return answer.model_copy(update={"usage": Usage(cost_usd=0.1, output_tokens=1)})


@pytest.fixture(autouse=True)
def fresh_teacher():
    Teacher.asked, Teacher.fail_from, Teacher.pause_s = Counter(), None, 0.0


def collect(tmp_path, evaluator=None, *, tasks=TASKS, resume=True, **changes):
    settings = {
        "name": "c", "tasks": ["x"], "policy": {"kind": "teacher"}, "num_attempts": 2, "num_workers": 3,
        "out_dir": tmp_path / "c", "order": "given",
    }  # fmt: skip
    return run_collect(
        CollectConfig(**(settings | changes)),
        tasks,
        evaluator or CannedEvaluator(),
        resume=resume,
        factories={"teacher": Teacher},
        progress=False,
    )


def test_every_task_gets_its_attempts_once(tmp_path):
    evaluator = CannedEvaluator()
    summary = collect(tmp_path, evaluator)
    assert summary.is_complete and summary.num_finished == summary.num_planned == 6
    assert summary.stop_reasons == {"SUBMITTED": 6} and summary.num_tasks_solved == 3
    assert summary.median_final_as == 1.5 and summary.shrinkage == pytest.approx(1.0)
    assert summary.spent_usd == summary.usage.cost_usd == pytest.approx(6 * 4 * 0.1)
    assert Counter(protocol for _, protocol, _ in evaluator.submitted) == {"reward": 6, "strict": 6}
    assert json.loads((tmp_path / "c" / "summary.json").read_text()) == summary.model_dump(mode="json")
    assert set(Teacher.asked.values()) == {1}


def test_a_second_run_does_nothing(tmp_path):
    collect(tmp_path)
    files = {path: path.read_bytes() for path in (tmp_path / "c" / "trajectories").iterdir()}
    Teacher.asked = Counter()
    evaluator = CannedEvaluator()
    assert collect(tmp_path, evaluator).is_complete
    assert not Teacher.asked and not evaluator.submitted
    assert {path: path.read_bytes() for path in (tmp_path / "c" / "trajectories").iterdir()} == files


def test_another_configuration_is_refused_and_more_workers_are_not(tmp_path):
    collect(tmp_path, num_attempts=1)
    with pytest.raises(UserError, match="protocol changed"):
        collect(tmp_path, num_attempts=1, protocol="strict")
    with pytest.raises(UserError, match="task_hashes"):
        collect(tmp_path, num_attempts=1, tasks=[make_task("task0", num_graphs=2), *TASKS[1:]])
    with pytest.raises(UserError, match="holds a collection already"):
        collect(tmp_path, num_attempts=1, resume=False)
    collect(tmp_path, num_attempts=1, num_workers=1, budget_usd=5)


def test_wrong_settings_fail_before_anything_is_written(tmp_path):
    for fault, changes in {"kind": {"policy": {"kind": "teachr"}}, "protocol": {"protocol": "fast"}}.items():
        with pytest.raises(UserError, match=fault):
            collect(tmp_path, **changes)
    with pytest.raises(UserError, match="same task_id"):
        collect(tmp_path, tasks=[TASKS[0], TASKS[0]])
    assert not (tmp_path / "c").exists()


def test_infrastructure_errors_in_a_row_stop_the_run_and_a_resume_goes_on(tmp_path):
    Teacher.fail_from = 5
    with pytest.raises(HarnessError, match=r"2 attempts in a row .* endpoint down"):
        collect(tmp_path, num_workers=1, max_infrastructure_errors=2)
    store = TrajectoryStore(tmp_path / "c")
    reasons = [trajectory.stop_reason for trajectory in store]
    assert reasons == [StopReason.SUBMITTED, StopReason.POLICY_ERROR, StopReason.POLICY_ERROR]
    Teacher.fail_from, Teacher.asked = None, Counter()
    assert collect(tmp_path, num_workers=1).is_complete
    # the first attempt is finished, the second had one answer, which was paid for and is not asked for again
    assert not any(name == "task0__000" for name, _ in Teacher.asked)
    assert ("task1__000", 0) not in Teacher.asked and Teacher.asked["task1__000", 1] == 1


def test_failures_that_are_not_in_a_row_do_not_stop_the_run(tmp_path):
    class Unlucky(Teacher):
        def answer(self, messages, tools):
            if self.name in ("task1__000", "task0__001"):
                raise PolicyError("endpoint down")
            return super().answer(messages, tools)

    config = CollectConfig(
        name="c", tasks=["x"], policy={"kind": "u"}, num_attempts=2, num_workers=1, out_dir=tmp_path,
        max_infrastructure_errors=2,
    )  # fmt: skip
    summary = run_collect(config, TASKS, CannedEvaluator(), factories={"u": Unlucky}, progress=False)
    assert summary.stop_reasons == {"POLICY_ERROR": 2, "SUBMITTED": 4} and not summary.is_complete


def test_the_budget_stops_and_a_larger_one_goes_on(tmp_path):
    summary = collect(tmp_path, budget_usd=0.6, num_workers=1)
    assert summary.spent_usd == pytest.approx(0.6) and summary.num_finished == 1
    assert summary.stop_reasons == {"BUDGET_LIMIT": 1, "SUBMITTED": 1}
    assert sum(Teacher.asked.values()) == 6
    summary = collect(tmp_path, budget_usd=100.0)
    assert summary.is_complete and set(Teacher.asked.values()) == {1}
    assert summary.spent_usd == summary.usage.cost_usd == pytest.approx(2.4)


def test_a_full_disk_stops_the_run_with_everything_kept(tmp_path, monkeypatch):
    original, num_written = TrajectoryStore.write, []

    def write(self, trajectory):
        num_written.append(1)
        if len(num_written) > 12:
            raise UserError(f"{self.path(trajectory.trajectory_id)}: the disk is full")
        original(self, trajectory)

    monkeypatch.setattr(TrajectoryStore, "write", write)
    with pytest.raises(UserError, match="disk is full"):
        collect(tmp_path, num_workers=2)
    monkeypatch.undo()
    assert list(TrajectoryStore(tmp_path / "c"))
    assert collect(tmp_path).is_complete


def test_a_bug_in_a_worker_is_not_swallowed(tmp_path):
    class Broken(Teacher):
        def answer(self, messages, tools):
            raise ZeroDivisionError

    config = CollectConfig(name="c", tasks=["x"], policy={"kind": "b"}, out_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_collect(config, TASKS, CannedEvaluator(), factories={"b": Broken}, progress=False)


def test_a_worker_that_outlives_the_run_writes_nothing_more(tmp_path, monkeypatch):
    monkeypatch.setattr("trajectories.collect._CLOSE_GRACE_S", 0.0)
    begun, release = threading.Event(), threading.Event()

    class Slow(Teacher):
        def answer(self, messages, tools):
            if self.name == "task0__000":
                begun.wait(10)
                raise ZeroDivisionError
            begun.set()
            release.wait(10)
            return super().answer(messages, tools)

    config = CollectConfig(name="c", tasks=["x"], policy={"kind": "s"}, num_workers=2, out_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_collect(config, TASKS, CannedEvaluator(), factories={"s": Slow}, progress=False)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("attempt-")]
    release.set()
    for worker in workers:
        worker.join(10)
    assert workers and not list(TrajectoryStore(tmp_path))


def test_attempts_wait_side_by_side(tmp_path):
    Teacher.pause_s = 0.5
    started = time.monotonic()
    collect(tmp_path, num_workers=6)
    assert time.monotonic() - started < 6 * 4 * 0.5 / 2


def test_seeds_differ_by_attempt_and_stay():
    seeds = {attempt_seed(0, task, i) for task in "ab" for i in range(4)} | {attempt_seed(1, "a", 0)}
    assert len(seeds) == 9 and all(0 <= seed < 2**31 for seed in seeds)
    assert attempt_seed(0, "a", 0) == 668558283


COLLECTOR = """
import sys, time
from pathlib import Path
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.test_collect import Teacher
from trajectories.collect import CollectConfig, run_collect
root = Path(sys.argv[1])
class Logged(Teacher):
    is_stateless = sys.argv[2] == "stateless"
    def answer(self, messages, tools):
        time.sleep(0.1)  # long beside the time in which a signal reaches a busy machine's process
        return super().answer(messages, tools)
config = CollectConfig(name="c", tasks=["x"], policy={"kind": "t"}, num_attempts=4, num_workers=3, out_dir=root / "c")
try:
    run_collect(config, [make_task(f"task{i}") for i in range(3)], CannedEvaluator(log_path=root / "log", delay_s=0.02),
                factories={"t": Logged}, progress=False)
except KeyboardInterrupt:
    sys.exit(130)
"""


def run_collector(root, kind, *, stop=None, after_files=0):
    """Run a real collector; send it a signal once so many trajectory files are there. Returns its exit status."""
    process = subprocess.Popen(
        [sys.executable, "-c", COLLECTOR, str(root), kind], cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 60
    while stop and process.poll() is None and time.monotonic() < deadline:
        if len(list((root / "c" / "trajectories").glob("*.json"))) >= after_files:
            process.send_signal(stop)
            break
        time.sleep(0.005)
    return process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stateless", "stateful"])
def test_after_sigkill_nothing_is_lost_or_done_twice(tmp_path, kind):
    assert run_collector(tmp_path, kind, stop=signal.SIGKILL, after_files=4) == -signal.SIGKILL
    store = TrajectoryStore(tmp_path / "c")
    before = {trajectory.trajectory_id: trajectory for trajectory in store}  # every file can be read
    finished = {name for name, trajectory in before.items() if trajectory.stop_reason is not None}
    assert len(finished) < 12
    bytes_before = {name: store.path(name).read_bytes() for name in finished}
    assert run_collector(tmp_path, kind) == 0
    after = {trajectory.trajectory_id: trajectory for trajectory in store}
    assert len(after) == 12 and all(t.stop_reason is StopReason.SUBMITTED for t in after.values())
    assert all(t.final_verdict is not None and t.num_turns == 4 for t in after.values())
    assert {name: store.path(name).read_bytes() for name in finished} == bytes_before
    turns = Counter()
    for line in (tmp_path / "c" / "ledger.jsonl").read_text().splitlines():
        entry = json.loads(line)
        turns[entry["trajectory_id"], entry["turn"]] += 1
    assert set(turns) == {(name, turn) for name in after for turn in (1, 2, 3, 4)}
    again = {name for (name, _), count in turns.items() if count > 1}
    assert again.isdisjoint(finished)
    if kind == "stateless":  # at most the answer that was paid for and not yet stored, one for each of three workers
        assert sum(turns.values()) - 48 <= 3


@pytest.mark.slow
def test_ctrl_c_closes_the_files_and_exits_130(tmp_path):
    assert run_collector(tmp_path, "stateless", stop=signal.SIGINT, after_files=4) == 130
    assert sum(trajectory.stop_reason is not None for trajectory in TrajectoryStore(tmp_path / "c")) < 12
    assert not list((tmp_path / "c").rglob("*.tmp-*"))
    assert run_collector(tmp_path, "stateless") == 0
    assert all(trajectory.final_verdict for trajectory in TrajectoryStore(tmp_path / "c"))


CONFIGS = sorted((REPOSITORY / "configs" / "collect").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_parse(path):
    config = CollectConfig(**yaml.safe_load(path.read_text()))
    config.protocols()
    assert config.root == Path("runs/collect") / path.stem


def test_no_thread_is_left(tmp_path):
    before = threading.active_count()
    collect(tmp_path)
    time.sleep(0.1)
    assert threading.active_count() <= before
