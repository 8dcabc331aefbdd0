"""What cannot be measured is no score; whoever makes it unmeasurable, or works while eager is timed, gains nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from eval_harness.evaluate import evaluate
from eval_harness.executor import LocalExecutor
from eval_harness.judge import graph_timing
from eval_harness.judge.background import MIN_WORK_S, BackgroundWork, cpu_seconds
from eval_harness.judge.looks import UnstableError
from eval_harness.judge.session import Bench
from eval_harness.presets import load_protocol
from eval_harness.retries import Tries
from eval_harness.verdict import Outcome, Violation
from tests.helpers import add_relu_mul, add_relu_mul_pass, make_task

QUICK = {
    "num_draws": 1,
    "num_clusters": 2,
    "pairs_per_cluster": 4,
    "block_cpu_ms": 5.0,
    "timing_cpu_s": 0.0,
    "max_noise": 1000.0,
    "unseen_shapes": 0,
    "unseen_dtypes": 0,
}


def submit(executor, candidate, **settings):
    protocol = load_protocol("strict", **QUICK | settings)
    task = make_task(add_relu_mul(rows=256, columns=512))
    return executor.submit(candidate, task, protocol=protocol, seed=2).result(timeout=300)


SPINNING = """
import threading


@numba.njit(nogil=True)
def _spin(count):
    total = 1
    for i in range(count):
        total = (total * 1103515245 + 12345) % 2147483648
    return total


threading.Thread(target=_spin, args=(1 << 44,), daemon=True).start()


@torch.fx.wrap
def fused(x, bias, scale):
    out = torch.empty_like(x)
    _kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())
    return out
"""


def test_a_thread_that_works_while_eager_is_timed_is_a_violation(executor):
    verdict = submit(executor, add_relu_mul_pass(wrapper=SPINNING), disabled_layers=["source"])
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.VIOLATION, graph.message
    assert [violation.rule for violation in graph.violations] == ["behaviour.background-work"]
    assert "while eager was timed" in graph.message


def test_a_parallel_kernel_is_no_background_work(executor):
    parallel = """

@numba.njit(parallel=True)
def _kernel(a, b, c, o):
    for i in numba.prange(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]
"""
    (graph,) = submit(executor, add_relu_mul_pass(kernel=parallel)).graphs
    assert graph.outcome is Outcome.CORRECT, graph.message


UNSTEADY = """

@numba.njit
def _kernel(a, b, c, o):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            o[i, j] = max(a[i, j] + b[j], np.float32(0.0)) * c[i, j]
    if a[0, 0] > a[0, 1]:
        s = a[0, 0]
        for k in range(3_000_000):
            s = s * np.float32(0.999) + np.float32(1.0)
        if s < 0:
            o[0, 0] = s
"""


def test_a_pass_that_is_slow_by_chance_gets_the_lower_bound(executor):
    """Its own noise is its own: never UNSTABLE while eager holds still."""
    for _ in range(3):
        verdict = submit(executor, add_relu_mul_pass(kernel=UNSTEADY), max_noise=1.0001, block_cpu_ms=2.0)
        (graph,) = verdict.graphs
        if graph.outcome is not Outcome.UNSTABLE:
            break
    else:
        pytest.skip("eager does not hold still on this machine now")
    assert graph.outcome is Outcome.CORRECT and "lower bound counts" in graph.message
    assert graph.speedup == graph.speedup_interval[0] < 1


def test_an_unstable_graph_leaves_the_whole_verdict_without_a_score(monkeypatch):
    class Unsteady(graph_timing.PairedClock):
        def measure(self, *, floor):
            if self._graph.name == "second":
                raise UnstableError("eager's own block times vary by 99%")
            return super().measure(floor=floor)

    monkeypatch.setattr(graph_timing, "PairedClock", Unsteady)
    bench = Bench.open("cpu")
    try:
        task = make_task(add_relu_mul("first"), add_relu_mul("second", rows=32))
        verdict = evaluate(add_relu_mul_pass(), task, load_protocol("strict", **QUICK), bench=bench, seed=1)
    finally:
        bench.close()
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.CORRECT, Outcome.UNSTABLE]
    assert not verdict.complete and verdict.as_score is None and verdict.as_covered is None and not verdict.es
    assert verdict.graphs[1].first_correct_t is not None and verdict.graphs[1].speedup is None
    # it is tried again with other seeds, and returned as it is if it stays so: never with fewer graphs
    tries = Tries(add_relu_mul_pass(), task, load_protocol("strict"), seed=5)
    assert tries.book_verdict(verdict) is None and tries.next_seed != 5
    assert tries.book_verdict(verdict) is verdict


@pytest.mark.parametrize("suspicions", [1, 2])
def test_what_looks_like_work_beside_the_blocks_is_measured_again_and_convicts_when_it_shows_again(
    monkeypatch, suspicions
):
    seen = []

    def suspicious(watch, reference):
        seen.append(watch)
        return Violation(rule="x", layer="behaviour", message="busy") if len(seen) <= suspicions else None

    bench = Bench.open("cpu")
    try:
        bench.aa_floor = 0.04  # measured by the same clock
        monkeypatch.setattr(BackgroundWork, "violation", suspicious)
        verdict = evaluate(
            add_relu_mul_pass(), make_task(add_relu_mul()), load_protocol("strict", **QUICK), bench=bench, seed=1
        )
    finally:
        bench.close()
    assert len(seen) == 2 and seen[0] is not seen[1]
    (graph,) = verdict.graphs
    assert graph.outcome is (Outcome.CORRECT if suspicions == 1 else Outcome.VIOLATION)
    assert (graph.speedup is not None) == (suspicions == 1)


def test_a_pass_that_brings_down_two_fresh_judges_is_a_runtime_error():
    """Here by a helping hand: what counts is that it is a score, and that the next evaluation is fine."""
    killed = []

    def kill_judge(stage):
        if stage.startswith("graph") and len(killed) < 2:
            killed.append(running._judges[0]._process.pid)
            os.kill(killed[-1], signal.SIGKILL)

    with LocalExecutor("cpu", progress=kill_judge) as running:
        verdict = submit(running, add_relu_mul_pass())
        assert [graph.outcome for graph in verdict.graphs] == [Outcome.RUNTIME_ERROR]
        assert "brought down two fresh judges" in verdict.graphs[0].message
        assert verdict.complete and verdict.as_score == pytest.approx(0.110706, abs=1e-5)
        assert len(set(killed)) == 2
        assert submit(running, add_relu_mul_pass()).graphs[0].outcome is Outcome.CORRECT


class Process:
    def __init__(self, code):
        self.process = subprocess.Popen([sys.executable, "-c", code])
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


SPIN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass\n"
SLEEP = "import time\ntime.sleep(30)\n"


def test_processor_time_of_another_process_and_its_children():
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"
    with Process(child) as parent, Process(SLEEP) as other:
        ours, theirs = BackgroundWork(parent), BackgroundWork(other)
        deadline = time.monotonic() + 20
        while ours.violation(theirs) is None and time.monotonic() < deadline:
            for watch in (ours, theirs):
                watch.asked()
                watch.answered()
                watch.look_for_children()
            time.sleep(0.2)
            ours.asked()
        assert ours.work_s > MIN_WORK_S
        assert ours.violation(theirs).rule == "behaviour.background-work"
    assert cpu_seconds([parent.pid]) == 0.0  # gone


def test_work_that_was_asked_for_is_none_and_what_the_reference_uses_is_nobodys():
    with Process(SPIN) as busy, Process(SPIN) as twin:
        ours, theirs = BackgroundWork(busy), BackgroundWork(twin)
        ours.asked()
        time.sleep(0.3)
        ours.answered()
        ours.asked()
        assert ours.asked_s > 0.25 and ours.violation(theirs) is None
        theirs.work_s = ours.work_s = 1.0
        assert ours.violation(theirs) is None


def test_a_device_that_comes_to_rest_late_is_not_idle():
    with Process(SLEEP) as waiting:
        ours, theirs, host = BackgroundWork(waiting), BackgroundWork(waiting), BackgroundWork(waiting, has_device=False)
        for index in range(8):
            ours.came_to_rest(9e-3 if index % 2 else 3e-5, 4e-5)  # a busy machine
        assert ours.violation(theirs) is None
        for watch in (ours, host):
            for _ in range(30):
                watch.came_to_rest(8e-3, 4e-5)
        assert "came to rest" in ours.violation(theirs).message
        assert host.violation(theirs) is None


def test_inputs_that_one_side_loads_later_than_the_other_are_work():
    with Process(SLEEP) as waiting:
        ours, theirs, host = BackgroundWork(waiting), BackgroundWork(waiting), BackgroundWork(waiting, has_device=False)
        for watch in (ours, host):
            for _ in range(30):
                watch.loaded(9e-3, 1e-3)  # memory of a process that was forked later
            watch.has_settled = True
            for _ in range(30):
                watch.loaded(1.05e-3, 1e-3)
        assert ours.violation(theirs) is None
        for watch in (ours, host):
            for _ in range(200):
                watch.loaded(4e-3, 1e-3)
        assert "longer than eager to load" in ours.violation(theirs).message
        assert host.violation(theirs) is None  # there the processor's time says it


def test_processor_time_in_requests_that_are_not_timed_is_compared():
    with Process(SPIN) as busy, Process(SLEEP) as waiting:
        ours, theirs = (BackgroundWork(process, has_device=False) for process in (busy, waiting))
        for watch in (ours, theirs):
            for has_settled in (False, True):
                watch.has_settled = has_settled
                watch.asked("load_windows")
                time.sleep(0.15)
                watch.answered()
                assert bool(watch.untimed_s) == (has_settled and watch is ours)
        assert "while inputs were loaded" in ours.violation(theirs).message
        theirs.untimed_s = ours.untimed_s
        assert ours.violation(theirs) is None
