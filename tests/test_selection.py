"""Selection: what each preset keeps, why the others are refused, and where a trajectory is cut."""

import math

import pytest
from pydantic import ValidationError

from tests.canned_evaluator import CannedEvaluator, canned_verdict, make_task, pass_files
from trajectories.environment import PassEnvironment
from trajectories.policies.scripted import ScriptedPolicy, call_message
from trajectories.record import Message, StopReason
from trajectories.rollout import run_rollout
from trajectories.selection import NearDuplicateConfig, SelectionConfig, cut_after_best, select_trajectories
from trajectories.selection_choice import NEARLY_SAME_CONVERSATION, NEARLY_SAME_PASS

DONE = Message(role="assistant", content="Done.")


def trajectory(*marks, task_id="t", attempt_index=0, answers_after=(DONE,)):
    answers = []
    for mark in marks:
        for path, text in pass_files(mark).items():
            create = {"command": "create", "path": f"pass_dir/{path}", "file_text": text}
            answers.append(call_message(("file_editor", create)))
        answers.append(call_message(("pass_evaluator", {})))
    environment = PassEnvironment(make_task(task_id), CannedEvaluator())
    return run_rollout(ScriptedPolicy([*answers, *answers_after]), environment, attempt_index=attempt_index)


def only(trajectories, **config):
    return select_trajectories(trajectories, SelectionConfig(**config))


def test_strict_keeps_what_is_correct_and_counts_every_refusal():
    interrupted = trajectory("as=1.1")
    interrupted.stop_reason = None
    failed = trajectory("as=1.1")
    failed.stop_reason = StopReason.POLICY_ERROR
    no_final = trajectory("as=1.1")
    no_final.final_verdict = None
    reward_final = trajectory("as=1.1")
    reward_final.final_verdict = canned_verdict("# as=1.1", make_task("t"), "reward")
    selection = only(
        [
            trajectory("wrong", "as=1.5"),
            interrupted,
            failed,
            no_final,
            reward_final,
            trajectory(),
            trajectory("wrong"),
            trajectory("violation"),
            trajectory("unstable"),
            trajectory("as=1.0 # covered=0.19"),
        ]
    )
    assert [kept.as_score for kept in selection.kept] == [1.5]
    assert selection.refused == {
        "not finished (interrupted)": 1,
        "not finished (POLICY_ERROR)": 1,
        "no final verdict": 1,
        "final verdict by protocol reward, not strict": 1,
        "never evaluated a pass": 1,
        "final verdict has a graph that is WRONG_VALUES": 1,
        "final verdict has violations": 1,
        "no evaluation has a score": 1,
        "covered AS below 0.2": 1,
    }
    assert selection.num_considered == 10


@pytest.mark.parametrize("preset", ["strict", "paper"])
def test_nothing_to_learn_and_no_number_are_refused(preset):
    """A verdict on no graph is right about all of them, and NaN is below no threshold."""
    silent, no_graph, no_number, infinite = (trajectory("as=1.5") for _ in range(4))
    silent.messages = [message for message in silent.messages if message.role != "assistant"]
    no_graph.final_verdict = no_graph.final_verdict.model_copy(update={"graphs": []})
    for record, score in ((no_number, math.nan), (infinite, math.inf)):
        update = {"as_score": score, "as_covered": score}
        record.final_verdict = record.final_verdict.model_copy(update=update)
        shown = record.evaluations[record.best_evaluation]
        shown.verdict = shown.verdict.model_copy(update=update)
    refused = only([silent, no_number, infinite, *([no_graph] if preset == "strict" else [])], preset=preset).refused
    assert refused == {
        "no answer of the policy up to its best evaluation": 1,
        **({"final verdict has no score": 3} if preset == "strict" else {"AS is not above 0.1": 2}),
    }


def test_a_quota_is_no_negative_number():
    with pytest.raises(ValidationError):
        SelectionConfig(teacher_quotas={"x": -1})


def test_the_paper_s_filter_keeps_a_wrong_pass():
    selection = only([trajectory("wrong"), trajectory("violation"), trajectory("nothing")], preset="paper")
    assert [kept.trajectory.final_verdict.num_correct for kept in selection.kept] == [0]
    assert selection.refused == {"AS is not above 0.1": 2}


def test_a_final_verdict_that_shrinks_is_what_counts():
    lucky = trajectory("as=1.5")
    lucky.final_verdict = canned_verdict("# as=0.9 # covered=0.1", make_task("t"))
    assert only([lucky]).refused == {"covered AS below 0.2": 1}
    assert only([lucky], preset="paper").kept[0].as_score == 1.5


def test_the_best_of_a_task_are_kept_in_order():
    found = [trajectory(f"as={speed}", attempt_index=i) for i, speed in enumerate((1.1, 1.4, 1.2))]
    selection = only([*found, trajectory("as=1.05", task_id="u")], best_of=2)
    assert [kept.as_score for kept in selection.kept] == [1.4, 1.2, 1.05]
    assert selection.refused == {"not among the best 2 of its task": 1}


def test_the_same_conversation_is_kept_once():
    twice = [trajectory("as=1.5"), trajectory("as=1.5", attempt_index=1)]
    assert only(twice).refused == {"the same conversation as an earlier attempt": 1}
    assert len(only(twice, drop_duplicates=False, near_duplicates=None).kept) == 2


@pytest.mark.parametrize(
    ("marks", "after", "num_turns", "reason"),
    [
        (("as=1.5",), (DONE,), 4, "the policy stopped after its best evaluation"),
        (("wrong", "as=1.5"), (DONE,), 7, "the policy stopped after its best evaluation"),
        (("as=1.5", "as=1.2"), (DONE,), 3, "4 turns after the best evaluation cut off"),
        (("as=1.5",), (call_message(("pass_evaluator", {})), DONE), 3, "2 turns after the best evaluation cut off"),
    ],
)
def test_a_trajectory_is_cut_after_its_best_evaluation(marks, after, num_turns, reason):
    whole = trajectory(*marks, answers_after=after)
    messages, why = cut_after_best(whole)
    assert why == reason and sum(message.role == "assistant" for message in messages) == num_turns
    assert messages == whole.messages[: len(messages)]
    asked = {call.id for message in messages for call in message.tool_calls}
    assert messages[-1].role == ("assistant" if "stopped" in reason else "tool") and len(asked) > 0


def test_a_trajectory_that_ends_with_its_best_evaluation():
    whole = trajectory("as=1.5")
    whole.messages.pop()
    assert cut_after_best(whole) == (whole.messages, "the best evaluation is the last turn")


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        (None, "final verdict without a check of batch invariance"),
        ({"outcome": "variant"}, "final verdict has a graph whose rows follow their batch"),
        ({"outcome": "not deterministic"}, "final verdict has a graph whose rows follow their batch"),
        ({"static": {"findings": [{}]}}, "final verdict has a graph whose rows follow their batch"),
        ({"outcome": "invariant", "static": {"findings": []}}, None),
        ({"outcome": "not applicable", "static": {"findings": []}}, None),
    ],
)
def test_batch_invariance_can_be_asked_for(record, refused):
    attempt = trajectory("as=1.5")
    graphs = [graph.model_copy(update={"batch_invariance": record}) for graph in attempt.final_verdict.graphs]
    attempt.final_verdict = attempt.final_verdict.model_copy(update={"graphs": graphs})
    selection = only([attempt], batch_invariant=True)
    assert (len(selection.kept), dict(selection.refused)) == ((0, {refused: 1}) if refused else (1, {}))
    assert len(only([attempt]).kept) == 1


LONG = "".join(f"value_{i} = first_{i} * second_{i} + {i}\n" for i in range(40))
"""Passes of a real length: short ones are not compared."""


def long_trajectory(mark, code, *, thought="", **settings):
    """One attempt whose pass is this code."""
    files = {**pass_files(mark), "Helper.py": code}
    create = [
        ("file_editor", {"command": "create", "path": f"pass_dir/{path}", "file_text": text})
        for path, text in files.items()
    ]
    answers = [call_message(*create, content=thought), call_message(("pass_evaluator", {})), DONE]
    environment = PassEnvironment(make_task(settings.pop("task_id", "t")), CannedEvaluator())
    return run_rollout(ScriptedPolicy(answers), environment, **settings)


def test_of_passes_that_are_nearly_the_same_the_better_stays():
    remark = LONG.replace("\n", "  # as before\n").replace("value_7 ", "other ")
    found = [long_trajectory("as=1.1", LONG), long_trajectory("as=1.4", remark, attempt_index=1)]
    selection = only(found)
    assert [kept.as_score for kept in selection.kept] == [1.4]
    assert selection.refused == {NEARLY_SAME_PASS: 1}
    assert [kept.as_score for kept in only(found[::-1]).kept] == [1.4]
    assert len(only(found, near_duplicates=None).kept) == 2
    assert len(only(found, preset="paper").kept) == 2, "the paper's filter removes none"


def test_other_passes_and_other_tasks_are_no_near_duplicates():
    other = LONG.replace("first_", "weight_")
    found = [long_trajectory("as=1.1", LONG), long_trajectory("as=1.2", other, attempt_index=1)]
    found.append(long_trajectory("as=1.3", LONG, task_id="u"))
    assert len(only(found).kept) == 3
    everywhere = only(found, near_duplicates={"scope": "all"})
    assert [kept.as_score for kept in everywhere.kept] == [1.2, 1.3]
    assert everywhere.refused == {NEARLY_SAME_PASS: 1}


def test_conversations_are_compared_by_what_the_policy_wrote():
    found = [long_trajectory(f"as=1.{i}", LONG, thought=f"Attempt {i}.", attempt_index=i) for i in range(3)]
    near = NearDuplicateConfig(code_threshold=None)
    assert only(found, near_duplicates=near).refused == {NEARLY_SAME_CONVERSATION: 2}
    near = NearDuplicateConfig(code_threshold=None, conversation_threshold=1.0)
    assert len(only(found, near_duplicates=near).kept) == 3


def test_a_teacher_s_quota_takes_the_best_of_every_task_first():
    found = []
    for task in "tuv":
        for index, speed in enumerate((1.1, 1.4)):
            made = trajectory(f"as={speed}", task_id=task, attempt_index=index)
            made.policy = {"kind": "openai", "model": "big", "teacher": "tutor"}
            found.append(made)
    other = trajectory("as=1.9", task_id="t", attempt_index=7)
    selection = only([*found, other], teacher_quotas={"tutor": 4})
    assert sorted((k.trajectory.task_id, k.as_score) for k in selection.kept) == [
        ("t", 1.4), ("t", 1.9), ("u", 1.1), ("u", 1.4), ("v", 1.4),
    ]  # fmt: skip
    assert selection.refused == {"over the quota of tutor": 2}
    assert len(only([*found, other], max_per_teacher=1).kept) == 2
    assert [k.as_score for k in only([*found, other], teacher_quotas={"tutor": 0}).kept] == [1.9]


def test_the_preset_decides_the_default_of_near_duplicates():
    assert SelectionConfig().near_duplicates == NearDuplicateConfig()
    assert SelectionConfig(preset="paper").near_duplicates is None
    asked = SelectionConfig(preset="paper", near_duplicates={})
    assert SelectionConfig.model_validate(asked.model_dump()).near_duplicates == NearDuplicateConfig()
