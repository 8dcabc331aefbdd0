"""Difficulty pools: where a task goes by its groups, and draws that every rank and every resume makes alike."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from eval_harness.errors import UserError
from training.difficulty_pools import DifficultyPools, GroupResult, Pool, PoolConfig

TASKS = [f"task_{index:02d}" for index in range(20)]
rewards = st.one_of(st.none(), st.integers(0, 1500).map(lambda number: number / 1024))
results = st.builds(
    GroupResult,
    task_id=st.sampled_from(TASKS),
    step=st.integers(0, 30),
    rewards=st.lists(rewards, min_size=1, max_size=5).map(tuple),
)

few = st.builds(
    GroupResult,
    task_id=st.sampled_from(TASKS[:2]),
    step=st.integers(0, 30),
    rewards=st.sampled_from([(0.0, 1.0), (0.0, 0.0), (1.0, 1.0)]),
)
"""Many groups of few tasks: the order in which they are noted matters."""


def group(task_id: str, *rewards: float | None, step: int = 0) -> GroupResult:
    return GroupResult(task_id, step, rewards)


def test_a_task_goes_where_its_groups_put_it() -> None:
    pools = DifficultyPools(TASKS)
    pools.update(
        [
            group("task_00", 0.0, 0.7, None),
            group("task_01", 0.0, 0.0),
            group("task_02", 1.2, 1.2),
            group("task_03", 0.5, None),  # one reward: nothing to compare with
            group("task_04", 0.0, 0.02),  # less than noise
        ]
    )
    wanted = [Pool.LIVE, Pool.HARD, Pool.SOLVED, Pool.FRESH, Pool.HARD]
    assert [pools.pool_of(task_id) for task_id in TASKS[:5]] == wanted
    assert pools.counts() == {"fresh": 16, "live": 1, "hard": 2, "solved": 1}
    pools.update([group("task_00", 0.0, 0.0, step=1)])
    assert pools.pool_of("task_00") is Pool.LIVE  # one dead group may be chance
    pools.update([group("task_00", 0.0, 0.0, step=2)])
    assert pools.pool_of("task_00") is Pool.HARD
    pools.update([group("task_00", 0.0, 1.0, step=3)])
    assert pools.pool_of("task_00") is Pool.LIVE


def test_dead_groups() -> None:
    assert group("t", 0.5, 0.5, None).is_dead and group("t", 0.5, None).is_dead and group("t", None).is_dead
    assert not group("t", 0.5, 0.5 + 1 / 1024).is_dead
    assert group("t", 0.0, 1.0).spread == 0.5 and group("t", None).spread == 0.0


@settings(max_examples=40)
@given(
    history=st.lists(few, max_size=30),
    seed=st.integers(0, 5),
    step=st.integers(0, 100),
    world_size=st.integers(1, 5),
    uniform=st.booleans(),
)
def test_ranks_share_out_one_order_of_all_tasks(
    history: list[GroupResult], seed: int, step: int, world_size: int, uniform: bool
) -> None:
    ranks = []
    for rank in range(world_size):  # each rank has gathered the same results, in its own order
        pools = DifficultyPools(TASKS if rank % 2 else TASKS[::-1], PoolConfig(uniform=uniform), seed=seed)
        pools.update(history if rank % 2 else history[::-1])
        ranks.append(pools.draw(20 // world_size, step=step, rank=rank, world_size=world_size))
    drawn = [task_id for tasks in ranks for task_id in tasks]
    assert len(set(drawn)) == len(drawn) == world_size * (20 // world_size)
    assert ranks[0] == pools.draw(20 // world_size, step=step, rank=0, world_size=world_size)  # a draw changes nothing


@settings(max_examples=40)
@given(history=st.lists(results, max_size=30), later=st.lists(results, max_size=10), step=st.integers(0, 100))
def test_a_state_survives_json(history: list[GroupResult], later: list[GroupResult], step: int) -> None:
    pools = DifficultyPools(TASKS, seed=3)
    pools.update(history)
    resumed = DifficultyPools(TASKS, seed=3)
    resumed.update([group("task_00", 0.0, 1.0)])  # whatever was there is replaced
    resumed.load_state_dict(json.loads(json.dumps(pools.state_dict())))
    for each in (pools, resumed):
        each.update(later)
    assert resumed.state_dict() == pools.state_dict() and resumed.counts() == pools.counts()
    assert list(islice(resumed.stream(step=step), 50)) == list(islice(pools.stream(step=step), 50))


def test_a_draw_is_the_same_in_another_process() -> None:
    """Python's own hash of a text differs from process to process, and so would a draw that used it."""
    code = (
        "from training.difficulty_pools import DifficultyPools;"
        "print(DifficultyPools([f't{i}' for i in range(9)], seed=4).draw(12, step=7))"
    )
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(DifficultyPools([f"t{i}" for i in range(9)], seed=4).draw(12, step=7))


def test_steps_and_seeds_draw_differently_and_no_task_starves() -> None:
    pools = DifficultyPools(TASKS)
    assert len({tuple(pools.draw(5, step=step)) for step in range(20)}) > 15
    assert pools.draw(5, step=0) != DifficultyPools(TASKS, seed=1).draw(5, step=0)
    seen = Counter(task_id for step in range(100) for task_id in pools.draw(4, step=step))
    assert set(seen) == set(TASKS)
    # more than there are: every task once, then again
    assert all(count == 2 for count in Counter(pools.draw(40, step=0)).values())


def test_live_tasks_come_first_by_their_share() -> None:
    pools = DifficultyPools(TASKS)
    pools.update([group(task_id, 0.0, 1.0) for task_id in TASKS[:4]])  # live
    pools.update([group(task_id, 0.0, 0.0) for task_id in TASKS[4:]])  # hard
    firsts = Counter(pools.pool_of(pools.draw(1, step=step)[0]) for step in range(1000))
    assert firsts[Pool.LIVE] / 1000 == pytest.approx(0.5 / 0.65, abs=0.05)
    even = DifficultyPools(TASKS, PoolConfig(uniform=True))
    even.load_state_dict(pools.state_dict())
    firsts = Counter(pools.pool_of(even.draw(1, step=step)[0]) for step in range(1000))
    assert firsts[Pool.LIVE] / 1000 == pytest.approx(4 / 20, abs=0.05)


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="no training tasks"):
        DifficultyPools([])
    with pytest.raises(UserError, match="t1 is there twice"):
        DifficultyPools(["t1", "t1"])
    with pytest.raises(ValidationError, match="hard, solved must be above 0"):
        PoolConfig(shares={Pool.FRESH: 1.0, Pool.LIVE: 1.0})
    pools = DifficultyPools(TASKS)
    with pytest.raises(KeyError, match="none of this run's"):
        pools.update([group("other", 0.0, 1.0)])
    state = DifficultyPools(TASKS).state_dict()
    for change, said in (({"version": 9}, "version 9"), ({"seed": 5}, "seed 5"), ({"tasks": {"x": {}}}, "task x")):
        with pytest.raises(UserError, match=said):
            pools.load_state_dict(state | change)
