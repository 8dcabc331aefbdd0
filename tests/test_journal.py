"""The journal: a running attempt's record is what was written last, whatever was left over by a kill."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.canned_evaluator import canned_verdict, make_task, pass_files
from trajectories.journal import journal_path
from trajectories.record import EvaluationRecord, Message, StopReason, Trajectory
from trajectories.store import TrajectoryStore, load_trajectory

TASK = make_task("t")


def begun(**changes):
    return Trajectory(
        trajectory_id="t__000", task_id="t", task_hash="h", graph_hashes={}, attempt_index=0,
        policy={"kind": "x"}, messages=[Message(role="system", content="s")], **changes,
    )  # fmt: skip


def evaluation(turn):
    verdict = canned_verdict(f"# as=1.{turn}", TASK)
    return EvaluationRecord(turn=turn, verdict=verdict, files=pass_files(f"as=1.{turn}"))


def turn(trajectory, number, *, is_evaluated=False):
    trajectory.messages.append(Message(role="assistant", content=f"é {number}", turn=number))
    trajectory.num_turns = number
    if is_evaluated:
        trajectory.evaluations = [*trajectory.evaluations, evaluation(number)]
        trajectory.best_evaluation = len(trajectory.evaluations) - 1


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.sampled_from(["turn", "evaluated", "field", "write", "rewrite"]), max_size=12))
def test_what_is_read_is_what_was_written_last(tmp_path_factory, steps):
    store = TrajectoryStore(tmp_path_factory.mktemp("c"))
    store.open_for_writing({})
    trajectory = begun()
    for number, step in enumerate(steps, start=1):
        if step in ("turn", "evaluated"):
            turn(trajectory, number, is_evaluated=step == "evaluated")
        elif step == "field":
            trajectory.agent_state = {"number": number}
        elif step == "rewrite":  # as an agent that begins anew does
            trajectory.messages = [message.model_copy() for message in trajectory.messages]
        if step != "field":
            store.write(trajectory)
            assert store.load("t__000") == trajectory
    trajectory.stop_reason = StopReason.SUBMITTED
    store.write(trajectory)
    assert store.load("t__000") == trajectory
    assert [path.name for path in (store.root / "trajectories").iterdir()] == ["t__000.json"]
    store.close()


def test_a_turn_costs_what_it_adds(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    trajectory = begun()
    store.write(trajectory)
    path, sizes = store.path("t__000"), []
    before = path.read_bytes()
    for number in range(1, 41):
        turn(trajectory, number)
        store.write(trajectory)
        sizes.append(journal_path(path).stat().st_size)
    assert path.read_bytes() == before
    assert sizes[-1] - sizes[-2] < 2 * (sizes[1] - sizes[0])


def test_a_torn_line_loses_that_change_alone(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    trajectory = begun()
    for number in range(1, 5):
        turn(trajectory, number)
        store.write(trajectory)
    path = store.path("t__000")
    journal = journal_path(path)
    data = journal.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last + 1, last + 20, len(data) - 2):
        journal.write_bytes(data[:cut])
        assert load_trajectory(path).messages == trajectory.messages[:-1]
    middle = data.splitlines(keepends=True)
    journal.write_bytes(b"".join([*middle[:2], *middle[3:]]))  # a line in the middle is gone: nothing after it counts
    assert load_trajectory(path).num_turns == 2
    for foreign in ({}, {"at": 5}, {"at": "x", "fields": {}}):  # objects, but none of ours
        journal.write_bytes(data + json.dumps(foreign).encode() + b"\n")
        assert load_trajectory(path) == trajectory


def test_a_journal_of_another_record_counts_for_nothing_and_is_removed(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    trajectory = begun()
    for number in (1, 2):
        turn(trajectory, number)
        store.write(trajectory)
    path = store.path("t__000")
    left_over = journal_path(path).read_bytes()
    trajectory.stop_reason = StopReason.SUBMITTED
    store.write(trajectory)
    journal_path(path).write_bytes(left_over)  # killed before it was removed
    orphan = path.with_name("u__000.turns.jsonl")
    orphan.write_text(json.dumps({"base": "0"}) + "\n")
    assert load_trajectory(path) == trajectory
    store.close()
    store.open_for_writing({})
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_record_that_was_taken_up_is_continued_by_its_own_journal(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    trajectory = begun()
    for number in (1, 2):
        turn(trajectory, number)
        store.write(trajectory)
    store.close()
    store.open_for_writing({})
    taken_up = store.load("t__000")
    assert taken_up == trajectory
    for number in (3, 4):
        turn(taken_up, number, is_evaluated=True)
        store.write(taken_up)
        assert store.load("t__000") == taken_up
    assert json.loads(store.path("t__000").read_text())["num_turns"] == 3


@pytest.mark.parametrize("at", [0, 3])
def test_readers_see_a_running_attempt(tmp_path, at):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    trajectory = begun()
    store.write(trajectory)
    for number in range(1, at + 1):
        turn(trajectory, number)
        store.write(trajectory)
    assert [each.num_turns for each in TrajectoryStore(tmp_path)] == [at]
