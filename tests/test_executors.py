"""The queue before the judges: order, back-pressure, cancellation, retries, figures; and judges that share a device.

The queue is tested with judges that a test drives by hand; what needs a real judge has one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from eval_harness.errors import (
    DeviceLostError,
    HarnessError,
    JudgeError,
    MachineLostError,
    ReferenceFailedError,
    UserError,
)
from eval_harness.executor import LocalExecutor, evaluate_all, expand_devices
from eval_harness.executor_config import LocalExecutorConfig, open_executor
from eval_harness.judge_pool import JudgePool
from eval_harness.pool_records import QueueFullError
from eval_harness.presets import load_protocol
from eval_harness.retries import MAX_MACHINES_LOST
from eval_harness.verdict import Outcome
from tests.canned_evaluator import canned_verdict, make_task
from tests.helpers import SHORT_CLOCK, add_relu_mul, add_relu_mul_pass, one_rule
from tests.helpers import make_task as make_real_task

ROOT = Path(__file__).resolve().parents[1]
STRICT = load_protocol("strict")
QUICK = load_protocol("strict", num_draws=2, **SHORT_CLOCK)
HANG = "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    while True:\n        pass\n"
PASS = one_rule("# as=1.5\n")


class HandDrivenJudge:
    """Answers when the test says so. `script`: what the next evaluations and starts end in; else a verdict."""

    def __init__(self, device="cpu", script=(), start_script=()):
        self.device = device
        self.script, self.start_script = list(script), list(start_script)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.is_started = False
        self.seen, self.num_starts, self.interrupted = [], 0, False

    def start(self):
        self.num_starts += 1
        if self.start_script and (error := self.start_script.pop(0)) is not None:
            raise error
        self.is_started, self.interrupted = True, False

    def evaluate(self, subject, task, protocol, *, seed, progress=None):
        if not self.is_started:
            self.start()
        self.seen.append((task.task_id, seed, self.num_starts))
        self.entered.set()
        if progress:
            progress(f"graph of {task.task_id}")
        while not self.gate.wait(0.01):
            if self.interrupted:
                raise JudgeError("interrupted")
        ended = self.script.pop(0) if self.script else None
        if isinstance(ended, BaseException):
            raise ended
        return ended or canned_verdict("# as=1.5", task)

    def interrupt(self):
        self.interrupted = True
        self.is_started = False

    def kill(self):
        self.is_started = False

    close = kill


def submit(pool, name="t", **settings):
    return pool.submit(PASS, make_task(name), protocol=STRICT, **settings)


def wait_until(condition, *, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def test_verdicts_come_in_the_order_of_the_requests_whichever_judge_is_faster():
    slow, fast = HandDrivenJudge(), HandDrivenJudge()
    slow.gate.clear()
    names = [f"t{i}" for i in range(6)]
    fast.gate.clear()
    with JudgePool([slow, fast]) as pool:
        verdicts = evaluate_all(pool, [(PASS, make_task(name)) for name in names], protocol=STRICT, max_in_flight=6)
        found = []
        reader = threading.Thread(target=lambda: found.extend(verdict.task_id for verdict in verdicts))
        reader.start()
        wait_until(lambda: slow.seen and fast.seen)
        fast.gate.set()
        wait_until(lambda: len(fast.seen) == len(names) - 1)
        slow.gate.set()
        reader.join(timeout=10)
        assert found == names


def test_requests_are_read_as_they_are_needed():
    read = []

    def requests():
        for i in range(20):
            read.append(i)
            yield PASS, make_task(f"t{i}")

    with JudgePool([HandDrivenJudge()]) as pool:
        verdicts = evaluate_all(pool, requests(), protocol=STRICT, max_in_flight=3)
        next(verdicts)
        assert len(read) <= 4
        verdicts.close()
        assert pool.metrics().submitted <= 4


def test_submit_blocks_while_the_queue_is_full():
    judge = HandDrivenJudge()
    judge.gate.clear()
    with JudgePool([judge], max_waiting=2) as pool:
        submit(pool)
        assert judge.entered.wait(5)
        submit(pool)
        submit(pool)
        with pytest.raises(QueueFullError):
            submit(pool, block=False)
        blocked = threading.Thread(target=submit, args=(pool,), daemon=True)
        blocked.start()
        blocked.join(0.3)
        assert blocked.is_alive()
        judge.gate.set()
        blocked.join(5)
        assert not blocked.is_alive()
    assert pool.metrics().submitted == 4


def test_a_cancelled_evaluation_leaves_the_queue_and_makes_room():
    judge = HandDrivenJudge()
    judge.gate.clear()
    with JudgePool([judge], max_waiting=1) as pool:
        running = submit(pool, "running")
        assert judge.entered.wait(5)
        waiting = submit(pool, "waiting")
        assert not running.cancel()
        assert waiting.cancel() and waiting.cancel()
        assert wait([waiting], timeout=2).done  # those who wait for it are told
        assert pool.metrics().queue_depth == 0
        last = submit(pool, "last", block=False)
        judge.gate.set()
        assert last.result(5).task_id == "last"
    assert [name for name, *_ in judge.seen] == ["running", "last"]
    assert pool.metrics().cancelled == 1


def test_cancelling_what_runs_ends_its_judge_and_the_next_evaluation_has_a_fresh_one():
    judge = HandDrivenJudge()
    judge.gate.clear()
    with JudgePool([judge]) as pool:
        running, after = submit(pool, "running"), submit(pool, "after")
        assert judge.entered.wait(5)
        assert pool.cancel_running(running)
        with pytest.raises(CancelledError):
            running.result(5)
        judge.gate.set()
        assert after.result(5).complete
        assert not pool.cancel_running(after)
    assert judge.num_starts == 2


def test_closing_cancels_what_waits_and_what_blocks():
    judge = HandDrivenJudge()
    judge.gate.clear()
    pool = JudgePool([judge], max_waiting=1)
    running = submit(pool)
    assert judge.entered.wait(5)
    waiting = submit(pool)
    refused = []

    def blocked_submit():
        try:
            submit(pool)
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=blocked_submit)
    thread.start()
    time.sleep(0.1)
    pool.close(grace_s=0.0)
    thread.join(5)
    assert refused
    assert waiting.cancelled()
    with pytest.raises(HarnessError):
        running.result(1)
    with pytest.raises(RuntimeError):
        submit(pool)


def test_judges_are_started_by_need_and_a_started_one_is_preferred():
    judges = [HandDrivenJudge() for _ in range(3)]
    with JudgePool(judges) as pool:
        for name in "abc":
            assert submit(pool, name).result(5).complete
            time.sleep(0.02)
        assert [judge.num_starts for judge in judges].count(0) == 2
        pool.start_all()
        wait_until(lambda: pool.metrics().num_alive == 3)


def test_judges_of_the_least_loaded_device_are_started_first():
    judges = [HandDrivenJudge("cuda:0"), HandDrivenJudge("cuda:0"), HandDrivenJudge("cuda:1")]
    for judge in judges:
        judge.gate.clear()
    with JudgePool(judges) as pool:
        futures = [submit(pool), submit(pool)]
        wait_until(lambda: pool.metrics().num_running == 2)
        assert {judge.device for judge in judges if judge.seen} == {"cuda:0", "cuda:1"}
        for judge in judges:
            judge.gate.set()
        assert all(future.result(5) for future in futures)


def test_our_failure_is_tried_again_with_another_seed_before_what_came_later():
    judge = HandDrivenJudge(script=[DeviceLostError("gone")])
    judge.gate.clear()
    with JudgePool([judge]) as pool:
        first, second = submit(pool, "first", seed=7), submit(pool, "second")
        judge.gate.set()
        assert first.result(5).complete and second.result(5).complete
        assert pool.metrics().retried == 1
    assert [(name, starts) for name, _, starts in judge.seen] == [("first", 1), ("first", 2), ("second", 2)]
    assert [seed for name, seed, _ in judge.seen if name == "first"] == [7, 8]


def test_a_candidate_that_brings_down_two_fresh_judges_is_a_runtime_error_and_a_baseline_is_our_failure():
    lost = [JudgeError("gone"), JudgeError("gone")]
    with JudgePool([HandDrivenJudge(script=lost)]) as pool:
        verdict = submit(pool).result(5)
        assert {graph.outcome for graph in verdict.graphs} == {Outcome.RUNTIME_ERROR}
        assert "two fresh judges" in verdict.graphs[0].message and verdict.complete
    with JudgePool([HandDrivenJudge(script=lost)]) as pool, pytest.raises(JudgeError):
        pool.submit("eager", make_task(), protocol=STRICT).result(5)


def test_the_second_judge_that_convicts_is_a_fresh_one():
    """The second try goes to the other judge, which has served before and is started anew for it."""
    loses, worn = HandDrivenJudge(script=[JudgeError("gone")]), HandDrivenJudge()
    loses.gate.clear()
    worn.gate.clear()
    with JudgePool([worn, loses]) as pool:
        first = submit(pool, "first")
        assert worn.entered.wait(5)
        second = submit(pool, "second")
        assert loses.entered.wait(5)
        worn.gate.set()
        assert first.result(5).complete
        wait_until(lambda: pool.metrics().num_running == 1)
        loses.gate.set()
        assert second.result(5).complete
    assert [(name, starts) for name, _, starts in worn.seen] == [("first", 1), ("second", 2)]


def test_lost_machines_are_nobodys_failure_but_end_somewhen():
    with JudgePool([HandDrivenJudge(script=[MachineLostError("node")] * MAX_MACHINES_LOST)]) as pool:
        assert submit(pool).result(5).complete
    with JudgePool([HandDrivenJudge(script=[MachineLostError("node")] * (MAX_MACHINES_LOST + 1))]) as pool:
        with pytest.raises(MachineLostError):
            submit(pool).result(5)
        assert pool.metrics().failed == 1


def test_an_unstable_verdict_is_tried_again_and_then_returned_incomplete():
    unstable = canned_verdict("# unstable", make_task("t"))
    with JudgePool([HandDrivenJudge(script=[unstable])]) as pool:
        assert submit(pool).result(5).complete
    with JudgePool([HandDrivenJudge(script=[unstable, unstable])]) as pool:
        assert not submit(pool).result(5).complete
        assert pool.metrics().incomplete == 1


def test_a_failing_reference_is_not_tried_again():
    judge = HandDrivenJudge(script=[ReferenceFailedError("nan")])
    with JudgePool([judge]) as pool, pytest.raises(ReferenceFailedError):
        submit(pool).result(5)
    assert judge.num_starts == 1


def test_a_judge_that_does_not_start_fails_one_evaluation_after_two_tries_and_the_next_tries_anew():
    judge = HandDrivenJudge(start_script=[HarnessError("no"), HarnessError("no"), None])
    with JudgePool([judge]) as pool:
        with pytest.raises(HarnessError, match="no"):
            submit(pool).result(5)
        assert submit(pool).result(5).complete
        assert pool.metrics().start_failures == 2 and pool.metrics().last_error == "no"


def test_a_mistake_in_the_set_up_is_not_tried_again():
    judge = HandDrivenJudge(start_script=[UserError("install it")])
    with JudgePool([judge]) as pool, pytest.raises(UserError):
        submit(pool).result(5)
    assert judge.num_starts == 1


def test_a_judge_that_does_not_start_leaves_the_work_to_the_others():
    broken, fine = HandDrivenJudge(start_script=[HarnessError("no")] * 50), HandDrivenJudge()
    fine.gate.clear()
    with JudgePool([fine, broken]) as pool:
        futures = [submit(pool, f"t{i}") for i in range(5)]
        wait_until(lambda: broken.num_starts == 2)
        time.sleep(0.2)
        assert broken.num_starts == 2  # left alone for a while
        fine.gate.set()
        assert all(future.result(5).complete for future in futures)
    assert not broken.seen and len(fine.seen) == 5


def test_progress_is_told_by_evaluation_and_for_all():
    all_texts, own_texts = [], []
    with JudgePool([HandDrivenJudge()], progress=all_texts.append) as pool:
        submit(pool, "a", progress=own_texts.append).result(5)
        submit(pool, "b").result(5)
    assert own_texts == ["graph of a"] and all_texts == ["graph of a", "graph of b"]


def test_figures_add_up():
    with JudgePool([HandDrivenJudge(script=[None, HarnessError("x"), None, ReferenceFailedError("y")])]) as pool:
        futures = [submit(pool) for _ in range(3)]
        wait(futures)
        metrics = pool.metrics()
    assert (metrics.submitted, metrics.complete, metrics.failed, metrics.retried) == (3, 2, 1, 1)
    assert metrics.outcomes == {"CORRECT": 2}
    assert metrics.queue_depth == metrics.num_running == 0
    assert metrics.busy_s["cpu"] >= 0


def test_devices_are_named_once():
    assert expand_devices("cpu") == ["cpu"]
    assert expand_devices(["cuda:0", "cuda:1"]) == ["cuda:0", "cuda:1"]
    with pytest.raises(UserError):
        expand_devices(["cuda:0", "cuda:0"])
    with pytest.raises(UserError):
        expand_devices([])


@pytest.fixture(scope="module")
def two_judges():
    with open_executor(LocalExecutorConfig(num_judges=2), device="cpu") as running:
        running.start_all()
        yield running


def submit_real(executor, candidate=None, *, protocol=QUICK):
    task = make_real_task(add_relu_mul())
    return executor.submit(candidate or add_relu_mul_pass(), task, protocol=protocol, seed=7)


@pytest.mark.slow
def test_a_device_that_another_process_holds_is_waited_for(two_judges):
    """Two judges here and a holder elsewhere: nobody computes while somebody else may be timing."""
    hold = "import sys; from eval_harness.judge.device_lock import exclusive_use\n"
    hold += "with exclusive_use('cpu'): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        wait_until(lambda: two_judges.metrics().num_alive == 2, seconds=180)
        futures = [submit_real(two_judges), submit_real(two_judges)]
        assert not wait(futures, timeout=6, return_when="FIRST_COMPLETED").done
        assert two_judges.metrics().num_running == 2
    finally:
        holder.stdin.close()
        holder.wait(10)
    assert [future.result(180).graphs[0].outcome for future in futures] == [Outcome.CORRECT] * 2


@pytest.mark.slow
def test_a_hang_that_is_cancelled_leaves_its_judge_replaced_and_the_other_working(two_judges):
    hang = submit_real(two_judges, add_relu_mul_pass(wrapper=HANG))
    wait_until(hang.running, seconds=60)
    time.sleep(1.0)
    assert two_judges.cancel_running(hang)
    with pytest.raises(CancelledError):
        hang.result(30)
    verdicts = list(
        evaluate_all(two_judges, [(add_relu_mul_pass(), make_real_task(add_relu_mul(f"g{i}"))) for i in range(3)],
                     protocol=QUICK)
    )  # fmt: skip
    assert [verdict.graphs[0].graph for verdict in verdicts] == ["g0", "g1", "g2"]
    assert {verdict.graphs[0].outcome for verdict in verdicts} == {Outcome.CORRECT}


def test_local_is_the_default_executor():
    with open_executor(LocalExecutorConfig(), device="cpu") as executor:
        assert isinstance(executor, LocalExecutor) and executor.device == "cpu"
        assert executor.metrics().judges_started == 0
