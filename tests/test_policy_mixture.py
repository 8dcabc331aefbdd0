"""MixturePolicy: one teacher an attempt, by weight, the same after a resume."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import scripted_answer, serve_fixture, settings  # noqa: F401 (fixture)
from tests.protocol_servers import status
from trajectories.collect import CollectConfig, attempt_seed, run_collect
from trajectories.policies import make_policy
from trajectories.policies.mixture import choose
from trajectories.policy import Policy
from trajectories.record import StopReason
from trajectories.store import load_trajectories


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.text(max_size=9),
    st.integers(0, 9),
)
def test_the_choice_is_a_function_of_seed_task_and_attempt(weights, seed, task_id, attempt_index):
    one = choose(weights, seed=seed, task_id=task_id, attempt_index=attempt_index)
    assert 0 <= one < len(weights)
    assert one == choose(weights, seed=seed, task_id=task_id, attempt_index=attempt_index)
    scaled = [weight * 2 for weight in weights]  # a power of two: the shares are the same to the bit
    assert one == choose(scaled, seed=seed, task_id=task_id, attempt_index=attempt_index)


def test_each_teacher_comes_up_by_its_weight():
    counts = Counter(choose([2, 1], seed=0, task_id=f"t{i // 2}", attempt_index=i % 2) for i in range(6000))
    assert abs(counts[0] - 4000) < 150  # more than four standard deviations
    pairs = Counter(
        tuple(choose([1, 1], seed=0, task_id=f"t{task}", attempt_index=index) for index in range(2))
        for task in range(1000)
    )
    assert len(pairs) == 4 and min(pairs.values()) > 180  # attempts at one task are chosen apart


def mixture(*teachers):
    return {"kind": "mixture", "teachers": list(teachers)}


def test_a_collection_by_two_protocols_records_which_teacher_wrote_what(serve, tmp_path):
    server = serve(lambda body: scripted_answer(body, reasoning="hm"))
    policy = mixture(
        {**settings(server, name="tutor", terms="may be trained on"), "weight": 2},
        {**settings(server, "anthropic", name="mentor", licence="mit"), "weight": 1},
    )
    config = CollectConfig(name="c", tasks=["x"], policy=policy, num_attempts=4, out_dir=tmp_path, num_workers=2)
    tasks = [make_task(f"t{i}") for i in range(3)]
    run_collect(config, tasks, CannedEvaluator(), progress=False)
    policies = [trajectory.policy for trajectory in load_trajectories(tmp_path)]
    assert {(policy["kind"], policy["teacher"], policy["mixture"]) for policy in policies} == {
        ("openai", "tutor", 0),
        ("anthropic", "mentor", 1),
    }
    first = {t.trajectory_id: t.policy["teacher"] for t in load_trajectories(tmp_path)}
    again = CollectConfig(**{**config.model_dump(), "out_dir": tmp_path / "again"})
    run_collect(again, list(reversed(tasks)), CannedEvaluator(), progress=False)
    assert {t.trajectory_id: t.policy["teacher"] for t in load_trajectories(tmp_path / "again")} == first


def test_a_mixture_is_as_stateless_as_its_teachers(serve):
    scripted = {"kind": "scripted", "answers": ["done"]}
    served = settings(serve([]))
    assert not make_policy(mixture(scripted, served)).is_stateless
    policy = make_policy(mixture(served, {**served, "model": "n"}))
    assert policy.is_stateless and isinstance(policy, Policy)
    assert [teacher["teacher"] for teacher in policy.describe()["teachers"]] == ["m", "n"]
    policy.start(make_task(), attempt_index=0, seed=1, device="cpu")
    assert policy.describe()["model"] in ("m", "n") and "teachers" not in policy.describe()


def test_what_is_wrong_with_a_teacher_is_told_with_its_place(monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    good = {"kind": "scripted", "answers": []}
    for teachers, words in (
        ([], "policy.teachers"),
        ([{**good, "weight": 0}], "teacher 0: weight 0 is no positive number"),
        ([good, {**good, "weight": "much"}], "teacher 1: weight 'much'"),
        ([good, mixture(good)], "teacher 1: is a mixture itself"),
        ([good, {"kind": "opnai"}], r"policy.teachers\[1\]: policy.kind: 'opnai' is unknown; did you mean 'openai'"),
        ([{**good, "answer": []}], r"policy.teachers\[0\]: policy.answer \(scripted\)"),
        ([{"kind": "anthropic", "model": "m", "api_key_env": "NOT_SET"}], r"policy.teachers\[0\].*NOT_SET is not set"),
    ):
        with pytest.raises(UserError, match=words):
            make_policy(mixture(*teachers))


def test_beside_a_teacher_with_state_a_served_one_is_not_paid_twice(serve, tmp_path):
    """Whether an interrupted attempt goes on is decided by its own teacher, not by all of the mixture."""
    answers = []

    def teacher(body):
        answers.append(body)
        return status(400, "broken") if len(answers) == 3 else scripted_answer(body, reasoning="hm")

    served = settings(serve(teacher), max_retries=0)
    policy = mixture({"kind": "scripted", "answers": ["done"]}, served)
    config = CollectConfig(name="c", tasks=["x"], policy=policy, out_dir=tmp_path, num_workers=1)
    task = next(
        make_task(f"t{i}")
        for i in range(99)
        if choose([1, 1], seed=attempt_seed(0, f"t{i}", 0), task_id=f"t{i}", attempt_index=0) == 1
    )
    run_collect(config, [task], CannedEvaluator(), progress=False)
    (broken,) = load_trajectories(tmp_path)
    assert broken.stop_reason is StopReason.POLICY_ERROR and broken.num_turns == 2
    run_collect(config, [task], CannedEvaluator(), progress=False)
    (whole,) = load_trajectories(tmp_path)
    assert whole.stop_reason is StopReason.SUBMITTED and whole.num_turns == 4
    assert len(answers) == 2 + 1 + 2  # the first two answers were stored
