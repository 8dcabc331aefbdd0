"""The verdict cache: repeats are served, what must be fresh is not, and the folder stands what may happen to it."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import Future

import pytest

from eval_harness import verdict_cache
from eval_harness.cached_evaluator import CachedEvaluator, with_cache
from eval_harness.candidate import Candidate
from eval_harness.errors import JudgeError, UserError
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from eval_harness.verdict import Outcome
from eval_harness.verdict_cache import VerdictCache, is_kept, verdict_key
from tests.canned_evaluator import CannedEvaluator, canned_verdict, make_task, pass_files
from tests.helpers import add_relu_mul, add_relu_mul_pass
from tests.helpers import make_task as make_real_task

REWARD, STRICT = load_protocol("reward"), load_protocol("strict")
MACHINE = {"cpu": "one", "num_cores": 2}
TASK = make_task()


def candidate(mark="as=1.5"):
    return Candidate(pass_files(mark))


@pytest.fixture
def canned():
    return CannedEvaluator()


@pytest.fixture
def cached(canned, tmp_path):
    return CachedEvaluator(canned, VerdictCache(tmp_path), machine=MACHINE)


def ask(evaluator, mark="as=1.5", protocol=REWARD, **request):
    return evaluator.submit(candidate(mark), TASK, protocol=protocol, **request).result(timeout=30)


def test_a_repeat_is_served_and_says_so(cached, canned):
    first, second = ask(cached), ask(cached)
    assert not first.from_cache and second.from_cache
    assert second.model_copy(update={"from_cache": False}) == first
    assert len(canned.submitted) == 1 and cached.num_served == 1


def test_another_process_is_served_too(canned, tmp_path):
    ask(CachedEvaluator(canned, VerdictCache(tmp_path), machine=MACHINE))
    assert ask(CachedEvaluator(canned, VerdictCache(tmp_path), machine=MACHINE)).from_cache


def test_a_request_with_a_seed_is_always_fresh(cached, canned):
    """So is the final evaluation of an attempt: it has one."""
    ask(cached)
    assert not ask(cached, seed=3).from_cache and not ask(cached, seed=3).from_cache
    assert len(canned.submitted) == 3


def test_what_decides_a_verdict_decides_the_key(monkeypatch):
    def key(mark="as=1.5", task=TASK, protocol=REWARD, device="cpu", machine=MACHINE):
        return verdict_key(candidate(mark), task, protocol, device=device, machine=machine)

    other_task = make_task(num_graphs=2)
    keys = {
        key(),
        key("as=1.6"),
        key(task=other_task),
        key(protocol=STRICT),
        key(protocol=REWARD.model_copy(update={"num_draws": 9})),
        key(device="cuda:0"),
        key(machine=MACHINE | {"gpu": "two"}),
        key(machine=MACHINE | {"num_cores": 4}),
        verdict_key("eager", TASK, REWARD, device="cpu", machine=MACHINE),
    }
    monkeypatch.setattr(verdict_cache, "source_hash", lambda: "another harness")
    keys.add(key())
    monkeypatch.setattr(verdict_cache, "describe_versions", lambda: {"torch": "9"})
    keys.add(key())
    assert len(keys) == 11
    # what changes by itself is not in it
    assert key(machine=MACHINE | {"memory_gib": 1, "other_processes": 3}) == key()


@pytest.mark.parametrize("mark", ["unstable", "harness-error"])
def test_what_says_nothing_is_not_kept(cached, canned, mark):
    for _ in range(2):
        try:
            assert not ask(cached, mark).from_cache
        except JudgeError:
            assert mark == "harness-error"
    assert len(canned.submitted) == 2


def test_verdicts_that_may_be_the_machines_are_not_kept():
    verdict = canned_verdict("# as=1.5", TASK)
    assert is_kept(verdict) and is_kept(canned_verdict("# violation", TASK))
    assert not is_kept(verdict.model_copy(update={"disabled_layers": ["source"]}))
    for outcome, message in [
        (Outcome.TIMEOUT, "slow"),
        (Outcome.OUT_OF_MEMORY, "full"),
        (Outcome.RUNTIME_ERROR, "brought down two fresh judges: the judge was lost"),
    ]:
        graph = verdict.graphs[0].model_copy(update={"outcome": outcome, "message": message})
        assert not is_kept(verdict.model_copy(update={"graphs": [graph]}))


def test_with_layers_off_nothing_is_looked_up(cached, canned):
    bench = REWARD.model_copy(update={"disabled_layers": ("source",)})
    assert not ask(cached, protocol=bench).from_cache and not ask(cached, protocol=bench).from_cache
    assert len(canned.submitted) == 2


def test_identical_requests_in_flight_share_one_evaluation(tmp_path):
    canned = CannedEvaluator(delay_s=0.3)
    cached = CachedEvaluator(canned, VerdictCache(tmp_path), machine=MACHINE)
    futures = [cached.submit(candidate(), TASK, protocol=REWARD) for _ in range(5)]
    assert futures[1].cancel()
    kept = [futures[i].result(timeout=30) for i in (0, 2, 3, 4)]
    assert [verdict.from_cache for verdict in kept] == [False, True, True, True]
    assert len(canned.submitted) == 1 and futures[1].cancelled()


def test_an_error_reaches_all_that_share_it(tmp_path):
    canned = CannedEvaluator(delay_s=0.2)
    cached = CachedEvaluator(canned, VerdictCache(tmp_path), machine=MACHINE)
    for future in [cached.submit(candidate("harness-error"), TASK, protocol=REWARD) for _ in range(3)]:
        with pytest.raises(JudgeError):
            future.result(timeout=30)
    assert len(canned.submitted) == 1


class Waiting:
    """An evaluator whose evaluations wait in a queue for ever."""

    device = "cpu"

    def __init__(self):
        self.futures = []

    def submit(self, candidate, task, *, protocol, seed=None):
        self.futures.append(Future())
        return self.futures[-1]

    def close(self):
        pass


def test_the_last_that_cancels_cancels_the_evaluation_and_the_next_request_is_a_new_one(tmp_path):
    waiting = Waiting()
    cached = CachedEvaluator(waiting, VerdictCache(tmp_path), machine=MACHINE)
    first, second = (cached.submit(candidate(), TASK, protocol=REWARD) for _ in range(2))
    assert first.cancel() and not waiting.futures[0].cancelled()
    assert second.cancel() and waiting.futures[0].cancelled()
    cached.submit(candidate(), TASK, protocol=REWARD)
    assert len(waiting.futures) == 2


def test_what_runs_already_goes_on_and_is_joined_by_the_next_request(tmp_path):
    waiting = Waiting()
    cached = CachedEvaluator(waiting, VerdictCache(tmp_path), machine=MACHINE)
    first = cached.submit(candidate(), TASK, protocol=REWARD)
    waiting.futures[0].set_running_or_notify_cancel()
    assert first.cancel()
    second = cached.submit(candidate(), TASK, protocol=REWARD)
    waiting.futures[0].set_result(canned_verdict("# as=1.5", TASK, "reward"))
    assert second.result(timeout=5).as_score == 1.5 and len(waiting.futures) == 1


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"entry_version": 1}', '{"entry_version": 99, "key": "x"}'])
def test_a_damaged_entry_is_dropped(cached, canned, tmp_path, damage):
    ask(cached)
    (path,) = tmp_path.glob("*/*.json")
    path.write_text(damage)
    assert not ask(cached).from_cache
    assert ask(cached).from_cache and len(canned.submitted) == 2


def test_an_entry_under_a_wrong_name_is_dropped(cached, canned, tmp_path):
    ask(cached)
    ask(cached, "as=9.9")
    one, two = tmp_path.glob("*/*.json")
    two.write_text(one.read_text())
    one.write_text("")
    ask(cached), ask(cached, "as=9.9")
    assert len(canned.submitted) == 4


def test_the_least_recently_used_goes_first(tmp_path):
    verdict = canned_verdict("# as=1.5", TASK)
    size = len(json.dumps(verdict.model_dump(mode="json"))) + 200
    cache = VerdictCache(tmp_path, max_mb=10 * size / 2**20)
    keys = [f"{i:064x}"[::-1] for i in range(12)]
    for age, key in enumerate(keys[:9]):
        cache.put(key, verdict)
        used_at = time.time() - 1000 + age
        os.utime(cache._path(key), (used_at, used_at))
    assert cache.get(keys[0]) is not None  # used now
    for key in keys[9:]:
        cache.put(key, verdict)
    assert cache.get(keys[0]) is not None and cache.get(keys[1]) is None and cache.get(keys[11]) is not None
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= cache.max_bytes


def test_many_writers_leave_whole_entries(tmp_path):
    verdict = canned_verdict("# as=1.5", TASK)
    keys = [f"{i:02x}" * 32 for i in range(4)]

    def write():
        cache = VerdictCache(tmp_path)
        for _ in range(10):
            for key in keys:
                cache.put(key, verdict)
                assert cache.get(key) == verdict

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.glob("*/*"))) == len(keys)


def test_a_place_that_cannot_be_made_is_the_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="give another"):
        VerdictCache(tmp_path / "file" / "cache")


def test_without_a_folder_or_with_judges_elsewhere_there_is_no_cache(canned, tmp_path):
    assert with_cache(canned, None) is canned and with_cache(canned, tmp_path) is canned


def test_a_real_evaluation_is_served_without_a_judge(executor, tmp_path):
    quick = load_protocol("reward", num_draws=1, num_clusters=2, pairs_per_cluster=2, block_ms=1.0, max_noise=1000.0)
    request = (add_relu_mul_pass(), make_real_task(add_relu_mul()))
    first = with_cache(executor, tmp_path).submit(*request, protocol=quick).result(timeout=300)
    assert first.graphs[0].outcome is Outcome.CORRECT and not first.from_cache
    with LocalExecutor("cpu") as unstarted:
        started = time.monotonic()
        again = with_cache(unstarted, tmp_path).submit(*request, protocol=quick).result(timeout=300)
        assert time.monotonic() - started < 5.0
    assert again.from_cache and again.as_score == first.as_score and again.seeds == first.seeds
