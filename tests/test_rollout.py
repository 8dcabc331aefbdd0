"""run_rollout: the loop, its ends, the final verdict, and going on with an interrupted record."""

import pytest

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.environment import AgentLimits, PassEnvironment
from trajectories.policies import make_policy
from trajectories.policies.replay import ReplayPolicy, ReplayPolicyConfig, pass_folder_answers
from trajectories.policies.scripted import ScriptedPolicy, call_message
from trajectories.policy import ContextLimitError, Policy, PolicyError
from trajectories.record import Message, StopReason, Usage
from trajectories.rollout import RolloutHooks, run_rollout
from trajectories.store import TrajectoryStore

EVALUATE = call_message(("pass_evaluator", {}))
DONE = Message(role="assistant", content="Done.")


def attempt(*marks):
    """Answers that write and evaluate a pass for each mark, then stop."""
    answers = []
    for mark in marks:
        for path, text in pass_files(mark).items():
            create = {"command": "create", "path": f"pass_dir/{path}", "file_text": text}
            answers.append(call_message(("file_editor", create)))
        answers.append(EVALUATE)
    return [*answers, DONE]


class Failing(ScriptedPolicy):
    """Raises after its answers."""

    def __init__(self, answers, error):
        super().__init__(answers)
        self.error = error

    def answer(self, messages, tools):
        if self._position >= len(self._answers):
            raise self.error
        return super().answer(messages, tools)


def rollout(policy, evaluator=None, *, hooks=None, earlier=None, **limits):
    environment = PassEnvironment(
        make_task(),
        evaluator or CannedEvaluator(),
        limits=AgentLimits(**limits),
        known_evaluations=earlier.evaluations if earlier else (),
    )
    return run_rollout(policy, environment, hooks=hooks, earlier=earlier)


def test_the_best_candidate_gets_one_fresh_strict_verdict():
    evaluator = CannedEvaluator()
    trajectory = rollout(ScriptedPolicy(attempt("wrong", "as=2.0", "as=1.5")), evaluator)
    assert trajectory.stop_reason is StopReason.SUBMITTED and trajectory.best_evaluation == 1
    assert trajectory.best_files == pass_files("as=2.0")
    assert trajectory.final_verdict.protocol == "strict" and trajectory.final_verdict.as_score == 2.0
    assert [protocol for _, protocol, _ in evaluator.submitted] == ["reward"] * 3 + ["strict"]
    assert [record.turn for record in trajectory.evaluations] == [3, 6, 9]
    assert trajectory.num_turns == 10 and len(trajectory.messages) == 2 + 10 + 9
    assert trajectory.messages[-1].turn == 10 and trajectory.messages[0].turn is None


def test_without_a_scored_evaluation_there_is_no_final_verdict():
    evaluator = CannedEvaluator()
    assert rollout(ScriptedPolicy([DONE]), evaluator).final_verdict is None
    assert evaluator.submitted == []


def test_grpo_leaves_the_final_verdict_out():
    evaluator = CannedEvaluator()
    environment = PassEnvironment(make_task(), evaluator, protocol=load_protocol("reward"))
    trajectory = run_rollout(ScriptedPolicy(attempt("as=2.0")), environment, evaluate_finally=False)
    assert trajectory.final_verdict is None and trajectory.best_evaluation == 0 and len(evaluator.submitted) == 1


@pytest.mark.parametrize(
    ("error", "reason", "has_final"),
    [
        (ContextLimitError("too long"), StopReason.CONTEXT_LIMIT, True),
        (PolicyError("endpoint down"), StopReason.POLICY_ERROR, False),
    ],
)
def test_what_an_endpoint_s_failure_leaves(error, reason, has_final):
    trajectory = rollout(Failing(attempt("as=2.0")[:-1], error))
    assert trajectory.stop_reason is reason and trajectory.error == str(error)
    assert trajectory.best_evaluation == 0 and (trajectory.final_verdict is not None) == has_final


def test_our_failure_is_no_score():
    trajectory = rollout(ScriptedPolicy(attempt("as=1.0", "harness-error")))
    assert trajectory.stop_reason is StopReason.HARNESS_ERROR and "judge died" in trajectory.error
    assert len(trajectory.evaluations) == 1 and trajectory.final_verdict is None


def test_a_user_error_goes_through():
    def keep(trajectory):
        raise UserError("x.json: the disk is full")

    with pytest.raises(UserError, match="disk is full"):
        rollout(ScriptedPolicy(attempt("as=1.0")), hooks=RolloutHooks(keep=keep))


def test_every_state_on_disk_is_unfinished_until_the_final_verdict():
    states = []
    rollout(
        ScriptedPolicy(attempt("as=2.0")),
        hooks=RolloutHooks(keep=lambda t: states.append((t.num_turns, t.stop_reason, t.final_verdict is not None))),
    )
    assert states[-1] == (4, StopReason.SUBMITTED, True)
    assert all(reason is None and not final for _, reason, final in states[:-1])
    assert [turn for turn, _, _ in states[:-1]] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_usage_adds_up():
    answers = [
        message.model_copy(update={"usage": Usage(input_tokens=10, output_tokens=2, cost_usd=0.1, latency_s=1.0)})
        for message in attempt("as=2.0")
    ]
    paid = []
    hooks = RolloutHooks(after_answer=lambda name, turn, usage: paid.append((name, turn, usage.cost_usd)))
    trajectory = rollout(ScriptedPolicy(answers), hooks=hooks)
    assert trajectory.usage == Usage(input_tokens=40, output_tokens=8, cost_usd=0.4, latency_s=4.0)
    assert paid == [("add_norm__000", turn, 0.1) for turn in (1, 2, 3, 4)]


@pytest.mark.parametrize("num_kept", range(1, 8))
def test_an_interrupted_record_is_continued_without_asking_or_judging_again(num_kept):
    answers = attempt("as=1.5", "as=2.0")
    whole = rollout(ScriptedPolicy(answers))
    kept = []
    rollout(ScriptedPolicy(answers), hooks=RolloutHooks(keep=lambda t: kept.append(t.model_copy(deep=True))))
    interrupted = next(t for t in kept if t.num_turns == num_kept)
    evaluator, asked, num_states = CannedEvaluator(), [], []
    policy = ScriptedPolicy([])
    policy._answers = answers
    hooks = RolloutHooks(
        after_answer=lambda name, turn, usage: asked.append(turn), keep=lambda t: num_states.append(t.num_turns)
    )
    policy.start = lambda task, **kwargs: setattr(policy, "_position", num_kept)
    continued = rollout(policy, evaluator, hooks=hooks, earlier=interrupted)
    assert asked == list(range(num_kept + 1, 8))
    assert min(num_states) >= num_kept  # the stored file never goes back
    num_judged = len(interrupted.evaluations)
    assert [protocol for _, protocol, _ in evaluator.submitted] == ["reward"] * (2 - num_judged) + ["strict"]
    for field in ("num_turns", "best_evaluation", "stop_reason", "evaluations", "final_verdict"):
        assert getattr(continued, field) == getattr(whole, field)
    assert [m.model_copy(update={"usage": None}) for m in continued.messages] == [
        m.model_copy(update={"usage": None}) for m in whole.messages
    ]


def test_the_limit_of_time_counts_what_an_interrupted_attempt_took():
    answers = attempt("as=1.5", "as=2.0")
    kept = []
    rollout(ScriptedPolicy(answers), hooks=RolloutHooks(keep=lambda t: kept.append(t.model_copy(deep=True))))
    interrupted = next(t for t in kept if t.num_turns == 3)
    policy = ScriptedPolicy([])
    policy._answers = answers
    policy.start = lambda task, **kwargs: setattr(policy, "_position", 3)
    slow = interrupted.model_copy(update={"duration_s": 99.0})
    continued = rollout(policy, earlier=slow, time_limit_s=100.0)
    assert continued.stop_reason is StopReason.SUBMITTED and continued.duration_s >= 99
    policy.start(None)
    over = interrupted.model_copy(update={"duration_s": 3600.0})
    assert rollout(policy, earlier=over, time_limit_s=100.0).stop_reason is StopReason.TIME_LIMIT


def test_a_pass_folder_is_replayed_through_the_tools(tmp_path):
    for path, text in pass_files("as=1.7").items():
        (tmp_path / path).write_text(text)
    policy = make_policy({"kind": "replay", "pass_dir": str(tmp_path)})
    assert isinstance(policy, Policy)
    trajectory = rollout(policy)
    assert trajectory.final_verdict.as_score == 1.7 and trajectory.stop_reason is StopReason.SUBMITTED
    assert trajectory.num_turns == len(pass_folder_answers(pass_files("as=1.7"))) == 4


def test_a_stored_trajectory_is_replayed(tmp_path):
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({})
    original = rollout(ScriptedPolicy(attempt("wrong", "as=2.0")))
    store.write(original)
    store.close()
    for source in ({"collection": tmp_path}, {"trajectory": store.path(original.trajectory_id)}):
        replayed = rollout(ReplayPolicy(ReplayPolicyConfig(**source)))
        assert [m.content for m in replayed.messages] == [m.content for m in original.messages]
        assert replayed.policy["kind"] == "replay"
    with pytest.raises(UserError, match="holds no attempt"):
        ReplayPolicy(ReplayPolicyConfig(collection=tmp_path)).start(
            make_task("other"), attempt_index=0, seed=0, device="cpu"
        )


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"kind": "opnai"}, "did you mean 'openai'"),
        ({"kind": "scripted", "answer": []}, "policy.answers|did you mean 'answers'"),
        ({"kind": "replay"}, "exactly one of"),
        ({}, "choose one of"),
    ],
)
def test_a_wrong_policy_setting_names_key_and_cure(settings, fault):
    with pytest.raises(UserError, match=fault):
        make_policy(settings)


def test_further_kinds_come_from_their_factory():
    policy = make_policy({"kind": "transformers", "x": 1}, factories={"transformers": lambda own: (own["x"], "made")})
    assert policy == (1, "made")
