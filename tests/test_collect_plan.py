"""Which attempts are made, in which order, by whom; and when a task is given up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.canned_evaluator import make_task
from trajectories.collect_index import AttemptRow
from trajectories.plan import Plan, Shard, StopRules, order_tasks
from trajectories.record import Usage

TASKS = [make_task(f"task{i}") for i in range(11)]


def row(task_id="task0", index=0, *, score=1.0, kept=True, is_finished=True):
    return AttemptRow(
        trajectory_id=f"{task_id}__{index:03d}", task_id=task_id, attempt_index=index, teacher="t",
        stop_reason="SUBMITTED" if is_finished else "POLICY_ERROR", is_finished=is_finished,
        refusal=None if kept else "no", num_turns=3, num_evaluations=1, evaluation_s=1.0, final_evaluation_s=2.0,
        final_as=score, final_as_covered=score, shown_as_covered=score, is_solved=True, shrinkage=1.0,
        shrinkage_covered=1.0, usage=Usage(), duration_s=1.0,
    )  # fmt: skip


def take_all(plan, end=lambda task, index: row(task.task_id, index)):
    """Every attempt in the order in which one worker gets them."""
    taken = []
    while not plan.is_done:
        task, index = plan.take(timeout_s=1)
        taken.append((task.task_id, index))
        plan.end(task, index, end(task, index))
    return taken


@settings(max_examples=40, deadline=None)
@given(
    num=st.integers(0, 11),
    count=st.integers(1, 13),
    seed=st.integers(0, 5),
    order=st.sampled_from(["shuffled", "given"]),
)
def test_shards_are_disjoint_complete_and_even(num, count, seed, order):
    tasks = TASKS[:num]
    shards = [order_tasks(tasks, seed=seed, order=order, shard=Shard(i, count)) for i in range(1, count + 1)]
    ids = [task.task_id for shard in shards for task in shard]
    assert sorted(ids) == sorted(task.task_id for task in tasks)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert shards == [order_tasks(tasks, seed=seed, order=order, shard=Shard(i, count)) for i in range(1, count + 1)]


def test_the_order_follows_the_seed():
    orders = {tuple(task.task_id for task in order_tasks(TASKS, seed=seed)) for seed in range(5)}
    assert len(orders) == 5 and order_tasks(TASKS, seed=0, order="given") == TASKS
    assert order_tasks(TASKS, seed=0) == order_tasks(TASKS, seed=0) != TASKS


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3"])
def test_a_wrong_shard_is_one_line(text):
    with pytest.raises(UserError, match="give i/n"):
        Shard.parse(text)
    assert str(Shard.parse(" 2/3")) == "2/3"


def test_first_attempts_come_before_second_ones_and_finished_ones_not_again():
    done = [row("task1", 0), row("task0", 1), row("task2", 0, is_finished=False), row("elsewhere", 0), row("task0", 7)]
    plan = Plan(TASKS[:3], 2, done)
    assert (plan.num_planned, plan.num_finished, plan.num_open) == (6, 2, 4)
    assert take_all(plan) == [("task0", 0), ("task2", 0), ("task1", 1), ("task2", 1)]
    assert plan.num_open == 0 and plan.num_finished == 6


def test_with_rules_a_task_has_one_attempt_at_a_time():
    plan = Plan(TASKS[:2], 3, [], StopRules(patience=2))
    first, second = plan.take(timeout_s=1), plan.take(timeout_s=1)
    assert {first[0].task_id, second[0].task_id} == {"task0", "task1"}
    assert plan.take(timeout_s=0.01) is None and not plan.is_done
    plan.end(*first, row(first[0].task_id, 0))
    assert plan.take(timeout_s=1) == (first[0], 1)
    plan.end(first[0], 1, None)  # broken off: the run is being stopped
    plan.end(*second, None)
    assert plan.is_done


@pytest.mark.parametrize(
    ("rules", "scores", "num_made", "reason"),
    [
        (StopRules(target_as=2.0), [1.0, 2.0, 3.0], 2, "solved"),
        (StopRules(patience=2), [1.0, 1.01, 1.015, 9.0], 3, "no gain"),
        (StopRules(patience=2), [1.0, 1.01, 1.03, 1.031, 1.032, 9.0], 5, "no gain"),
        (StopRules(patience=2, min_gain=0.0), [1.0, 1.01, 1.02, 1.03], 4, None),
        (StopRules(patience=3), [None, None, None, 5.0], 3, "no gain"),
        (StopRules(max_kept_per_task=2), [1.0, 1.0, 1.0], 2, "enough kept"),
        (StopRules(), [5.0, 1.0, 1.0], 3, None),
    ],
)
def test_a_task_is_given_up(rules, scores, num_made, reason):
    plan = Plan(TASKS[:1], len(scores), [], rules)
    made = take_all(plan, lambda task, index: row(index=index, score=scores[index]))
    assert [index for _, index in made] == list(range(num_made))
    assert plan.reasons == ({reason: 1} if reason else {})
    assert plan.num_skipped == len(scores) - num_made and plan.num_open == 0


@given(scores=st.lists(st.one_of(st.none(), st.floats(0.1, 4.0)), min_size=1, max_size=8), cut=st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_a_resume_decides_as_an_uninterrupted_run(scores, cut):
    rules = StopRules(patience=2, target_as=3.0, max_kept_per_task=4)

    def end(task, index):
        return row(index=index, score=scores[index])

    whole = take_all(Plan(TASKS[:1], len(scores), [], rules), end)
    done = [end(None, index) for _, index in whole[:cut]]
    assert whole[:cut] + take_all(Plan(TASKS[:1], len(scores), done, rules), end) == whole


def test_an_attempt_that_has_begun_is_finished_though_the_task_is_given_up():
    rows = [row(index=0, score=5.0), row(index=2, is_finished=False)]
    plan = Plan(TASKS[:1], 4, rows, StopRules(target_as=2.0))
    assert take_all(plan) == [("task0", 2)]
    assert plan.num_skipped == 2


def test_an_attempt_that_failed_by_our_fault_says_nothing_about_its_task():
    plan = Plan(TASKS[:1], 3, [], StopRules(patience=1, min_gain=0.0))
    made = take_all(plan, lambda task, index: row(index=index, score=1.0 + index, is_finished=index != 0))
    assert [index for _, index in made] == [0, 1, 2]
