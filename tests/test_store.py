"""The store: a file is the old one or the new one, whatever happens in between."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task
from trajectories.environment import PassEnvironment
from trajectories.ledger import Ledger
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.record import StopReason, Usage
from trajectories.rollout import new_trajectory
from trajectories.store import (
    TrajectoryStore,
    disk_errors,
    is_finished,
    load_trajectories,
    load_trajectory,
    write_atomically,
)

IDENTITY = {"seed": 0, "policy": {"kind": "scripted"}}


@pytest.fixture
def store(tmp_path):
    store = TrajectoryStore(tmp_path / "collection")
    store.open_for_writing(IDENTITY)
    yield store
    store.close()


def make_trajectory(task_id="t", attempt_index=0):
    environment = PassEnvironment(make_task(task_id), CannedEvaluator())
    return new_trajectory(ScriptedPolicy([]), environment, attempt_index=attempt_index, seed=0)


def test_records_come_back_as_they_were(store):
    written = [make_trajectory(task_id) for task_id in ("a/b c", "a_b c", "t", "../t", "é" * 200)]
    for trajectory in written:
        store.write(trajectory)
        assert store.load(trajectory.trajectory_id) == trajectory
        assert store.path(trajectory.trajectory_id).parent == store.root / "trajectories"
    assert {trajectory.trajectory_id for trajectory in store} == {one.trajectory_id for one in written}
    assert load_trajectories(store.root) == list(store)
    assert store.load("never") is None


def test_which_stops_are_finished():
    trajectory = make_trajectory()
    assert not is_finished(trajectory)
    unfinished = {StopReason.POLICY_ERROR, StopReason.HARNESS_ERROR, StopReason.BUDGET_LIMIT}
    for reason in StopReason:
        trajectory.stop_reason = reason
        assert is_finished(trajectory) == (reason not in unfinished)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_full_disk_is_one_line_and_leaves_the_old_file(store, monkeypatch, number, call):
    trajectory = make_trajectory()
    store.write(trajectory)
    path = store.path(trajectory.trajectory_id)
    before = path.read_bytes()
    trajectory.error = "changed"

    def full(*arguments, **options):
        raise OSError(number, os.strerror(number))

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError) as caught:
        store.write(trajectory)
    monkeypatch.undo()
    assert "\n" not in str(caught.value) and str(path) in str(caught.value) and "free some space" in str(caught.value)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_really_full_disk(tmp_path):
    script = """
import sys
from pathlib import Path
from eval_harness.errors import UserError
from trajectories.ledger import Ledger
from trajectories.record import Usage
from trajectories.store import write_atomically
path = Path(sys.argv[1]) / "record.json"
write_atomically(path, "old")
try:
    write_atomically(path, "x" * 2_000_000)
except UserError as error:
    assert "disk is full" in str(error), error
else:
    sys.exit("nothing was raised")
assert path.read_text() == "old" and len(list(path.parent.iterdir())) == 1
ledger = Ledger(path.parent / "ledger.jsonl")
try:
    for turn in range(20_000):
        ledger.append("t", turn, Usage(cost_usd=1.0))
except UserError as error:
    assert "ledger.jsonl" in str(error), error
else:
    sys.exit("nothing was raised")
read_again = Ledger(path.parent / "ledger.jsonl")
assert abs(read_again.num_answers - ledger.num_answers) <= 1, (read_again.num_answers, ledger.num_answers)
print("held")
"""
    command = f"mount -t tmpfs -o size=128k tmpfs {tmp_path} && exec {sys.executable} -c '{script}' {tmp_path}"
    ran = subprocess.run(["unshare", "-Urm", "sh", "-c", command], capture_output=True, text=True, timeout=60)
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip(f"no mount namespace here: {ran.stderr.strip()[:80]}")
    assert ran.stdout == "held\n", ran.stderr


def test_readers_see_only_whole_files(tmp_path):
    path = tmp_path / "x.json"
    texts = [json.dumps({"n": n, "fill": "x" * 20_000}) for n in range(2)]
    write_atomically(path, texts[0])
    done = threading.Event()

    def write():
        for n in range(100):
            write_atomically(path, texts[n % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert path.read_text() in texts
    writer.join()


def test_a_resume_with_another_configuration_is_refused(store):
    store.close()
    other = TrajectoryStore(store.root)
    with pytest.raises(UserError, match=r"seed, policy\.kind changed"):
        other.open_for_writing({"seed": 1, "policy": {"kind": "expert"}})
    with pytest.raises(UserError, match="holds a collection already"):
        other.open_for_writing(IDENTITY, resume=False)
    other.open_for_writing(IDENTITY)
    other.close()


def test_two_writers_are_refused(store):
    with pytest.raises(UserError, match="another process is collecting"):
        TrajectoryStore(store.root).open_for_writing(IDENTITY)


def test_left_over_temporary_files_are_removed(store):
    leftover = store.root / "trajectories" / ".t__000.json.tmp-1"
    leftover.write_text("half")
    store.close()
    store.open_for_writing(IDENTITY)
    assert not leftover.exists() and list(store) == []


def test_broken_files_are_named(store, tmp_path):
    path = store.path("t__000")
    broken = {"{": "cannot be read", "[]": "JSON object", '{"schema_version": 99}': "99", "{}": "schema_version None"}
    for text, fault in broken.items():
        path.write_text(text)
        with pytest.raises(UserError, match=fault) as caught:
            load_trajectory(path)
        assert str(path) in str(caught.value)
    path.write_text('{"schema_version": 1, "task_id": 3}')
    with pytest.raises(UserError, match="restore the file or remove it"):
        load_trajectory(path)
    with pytest.raises(UserError, match="give the folder"):
        load_trajectories(tmp_path)


def test_the_ledger_adds_up_over_runs_and_torn_lines(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for turn in (1, 2):
        ledger.append("t__000", turn, Usage(cost_usd=0.1, output_tokens=5), teacher="a")
    ledger.close()
    with path.open("a") as file:
        file.write('{"trajectory_id": "t__000", "cost_')
    again = Ledger(path)
    assert again.spent_usd == pytest.approx(0.2) and again.num_answers == 2
    again.append("u__000", 3, Usage(cost_usd=0.2, input_tokens=7), teacher="b", task_id="u")
    again.close()
    last = Ledger(path)
    assert last.spent_usd == pytest.approx(0.4) and last.total.num_tokens == 17
    assert last.by_teacher["a"].cost_usd == last.by_teacher["b"].cost_usd == pytest.approx(0.2)
    assert {task: spent.num_answers for task, spent in last.by_task.items()} == {"t": 2, "u": 1}


def test_ledger_lines_of_many_threads_are_whole_and_on_disk(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    threads = [
        threading.Thread(
            target=lambda n=n: [ledger.append(f"t__{n:03d}", i, Usage(output_tokens=1)) for i in range(20)]
        )
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = Ledger(tmp_path / "ledger.jsonl")
    assert read.num_answers == 320 and read.total == ledger.total
    assert all(spent.num_answers == 20 for spent in read.by_attempt.values()) and len(read.by_attempt) == 16


def test_a_place_that_is_no_folder_and_a_disk_that_fails_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "deeper")
    for place in ("file", "file/below", "link", "x" * 300):
        with pytest.raises(UserError, match=f"{place[:9]}.*choose another folder by --out"):
            TrajectoryStore(tmp_path / place).open_for_writing({})
    for number in (errno.EIO, errno.ESTALE, errno.ENOENT):
        failing = OSError(number, os.strerror(number))
        with pytest.raises(UserError, match=r"cannot be written .*when the disk is there again"), disk_errors(tmp_path):
            raise failing
