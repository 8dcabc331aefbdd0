"""A collector that is killed at 20 random moments: no turn lost, no stored answer paid for twice, the same result."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.benches.collect_stubs import stub_endpoint
from trajectories.collect import attempt_seed
from trajectories.store import TrajectoryStore

REPOSITORY = Path(__file__).parent.parent
NUM_TASKS, NUM_ATTEMPTS, NUM_WORKERS, NUM_KILLS = 12, 3, 4, 20
LAUNCHER = f"""
import os, signal, sys, time, traceback
from pathlib import Path
from scripts.benches.collect_stubs import StubJudge
from eval_harness.judge_pool import JudgePool
from tests.canned_evaluator import make_task
from trajectories.collect import CollectConfig, run_collect
import openai.resources.chat.completions, trajectories.agents.iterative, trajectories.policies.openai

def collect(root, address):
    config = CollectConfig(
        name="c", tasks=["x"], num_attempts={NUM_ATTEMPTS}, num_workers={NUM_WORKERS}, out_dir=Path(root),
        policy={{"kind": "openai", "model": "stub", "base_url": address, "prices": {{"input": 1, "output": 2}}}},
    )
    with JudgePool([StubJudge(0.02), StubJudge(0.02)]) as pool:
        tasks = [make_task(f"task{{i}}") for i in range({NUM_TASKS})]
        run_collect(config, tasks, pool, progress=False)

# the imports take seconds; each run is a fork of this process
for line in sys.stdin:
    root, address, log, num_requests, pause_s = line.split()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            collect(root, address)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = None
    while status is None:
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
        elif int(num_requests) >= 0 and Path(log).read_bytes().count(b"\\n") >= int(num_requests):
            time.sleep(float(pause_s))
            os.kill(pid, signal.SIGKILL)
            num_requests = -1
        time.sleep(0.002)
    print(status, flush=True)
"""


class Launcher:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)

    def run(self, root, address, log, *, kill_at=-1, pause_s=0.0):
        """Exit status of one run; killed pause_s after the endpoint has had kill_at requests."""
        self.process.stdin.write(f"{root} {address} {log} {kill_at} {pause_s}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def answers(trajectory):
    return [message for message in trajectory.messages if message.role == "assistant"]


def comparable(trajectory):
    """The record without what the clock writes."""
    data = trajectory.model_dump(mode="json", exclude={"started_at", "duration_s"})
    data["usage"].pop("latency_s")
    for message in data["messages"]:
        (message["usage"] or {}).pop("latency_s", None)
    data["policy"].pop("base_url")
    return data


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_no_turn_and_pays_nothing_twice(tmp_path):
    seed_of = {
        attempt_seed(0, f"task{i}", index): f"task{i}__{index:03d}"
        for i in range(NUM_TASKS)
        for index in range(NUM_ATTEMPTS)
    }
    moments = random.Random(20)
    root, log = tmp_path / "killed", tmp_path / "log"
    log.touch()
    before, stored_keys, num_lines_before = {}, set(), 0
    options = ("--latency", 0.03, "--jitter", 0.6, "--turns", 6, "--every", 2, "--chars", 300, "--log", log)
    with stub_endpoint(*options) as address, Launcher() as launcher:
        for _ in range(NUM_KILLS):
            kill_at = num_lines_before + moments.randint(0, 12)
            status = launcher.run(root, address, log, kill_at=kill_at, pause_s=moments.uniform(0.0, 0.05))
            assert status == -signal.SIGKILL, "nothing was left to kill: give it more to do"
            asked = lines(log)[num_lines_before:]
            again = {(seed_of[entry["seed"]], entry["turn"]) for entry in asked} & stored_keys
            assert not again, f"paid for twice: {again}"
            num_lines_before += len(asked)
            if not (root / "trajectories").is_dir():
                continue
            now = {trajectory.trajectory_id: trajectory for trajectory in TrajectoryStore(root)}
            for name, old in before.items():
                assert now[name].messages[: len(old.messages)] == old.messages, name
                assert now[name].evaluations[: len(old.evaluations)] == old.evaluations, name
                assert old.stop_reason is None or now[name] == old, name
            before = now
            stored_keys = {(name, answer.turn) for name, each in now.items() for answer in answers(each)}
            paid = Counter((entry["trajectory_id"], entry["turn"]) for entry in lines_of_ledger(root))
            assert stored_keys <= set(paid)
        num_interrupted = sum(trajectory.stop_reason is None for trajectory in before.values())
        assert num_interrupted and len(before) > NUM_WORKERS
        assert launcher.run(root, address, log) == 0
        asked = lines(log)
        again = {(seed_of[entry["seed"]], entry["turn"]) for entry in asked[num_lines_before:]} & stored_keys
        assert not again, f"paid for twice: {again}"
        # the ledger holds what was asked for and came, and every stored answer once
        requests = Counter((seed_of[entry["seed"]], entry["turn"]) for entry in asked)
        paid = Counter((entry["trajectory_id"], entry["turn"]) for entry in lines_of_ledger(root))
        assert set(paid) == set(requests) and all(paid[key] <= requests[key] for key in paid)
        assert sum(paid.values()) - len(paid) <= NUM_KILLS * NUM_WORKERS
        assert launcher.run(tmp_path / "whole", address, log) == 0

    killed = {each.trajectory_id: each for each in TrajectoryStore(root)}
    whole = {each.trajectory_id: each for each in TrajectoryStore(tmp_path / "whole")}
    assert set(killed) == set(whole) == set(seed_of.values())
    for name in whole:
        assert comparable(killed[name]) == comparable(whole[name]), name
    # the summary's money is the ledger's, the records' is what was stored
    summary = json.loads((root / "summary.json").read_text())
    spent = sum(entry["cost_usd"] for entry in lines_of_ledger(root))
    assert summary["is_complete"] and summary["spent_usd"] == pytest.approx(spent)
    assert summary["usage"]["cost_usd"] == pytest.approx(sum(each.usage.cost_usd for each in whole.values()))
    assert not list((root / "trajectories").glob("*.turns.jsonl"))


def lines_of_ledger(root):
    found = []
    for line in (root / "ledger.jsonl").read_text().splitlines() if (root / "ledger.jsonl").exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:  # torn by a kill
            continue
    return found
