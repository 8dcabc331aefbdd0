"""PassEnvironment: what a policy is shown, what ends an attempt, and that our failures are raised."""

import json
import re
from concurrent.futures import Future

import pytest

from data.task import Task
from eval_harness.errors import HarnessError
from tests.canned_evaluator import CannedEvaluator, make_graph, make_task, pass_files
from trajectories.environment import AgentLimits, AttemptCancelledError, PassEnvironment
from trajectories.policies.scripted import call_message
from trajectories.prompts import PromptConfig, render_messages
from trajectories.record import Message, StopReason, Usage

EVALUATE = call_message(("pass_evaluator", {}))
DONE = Message(role="assistant", content="Done.")


def write_pass(mark):
    return call_message(
        *(
            ("file_editor", {"command": "create", "path": f"pass_dir/{path}", "file_text": text})
            for path, text in pass_files(mark).items()
        )
    )


def begin(evaluator=None, **limits):
    environment = PassEnvironment(make_task(), evaluator or CannedEvaluator(), limits=AgentLimits(**limits))
    environment.reset()
    return environment


def test_an_attempt_from_prompt_to_answer():
    environment = PassEnvironment(make_task(num_graphs=2), CannedEvaluator())
    system, user = environment.reset()
    assert (system.role, user.role) == ("system", "user") and "numba" in system.content
    written = environment.step(write_pass("as=1.5"))
    assert [message.role for message in written.messages] == ["tool", "tool"] and not written.done
    assert [message.tool_call_id for message in written.messages] == ["call_0_0", "call_0_1"]
    judged = environment.step(EVALUATE)
    assert judged.messages[0].name == "pass_evaluator" and "1.5" in judged.messages[0].content
    assert judged.messages[0].content.endswith("turns left: 48")
    ended = environment.step(DONE)
    assert ended.done and ended.stop_reason is StopReason.SUBMITTED and ended.messages == []
    assert environment.score() == 0 and environment.evaluations[0].files == pass_files("as=1.5")
    with pytest.raises(RuntimeError, match="make a new environment"):
        environment.step(DONE)
    with pytest.raises(RuntimeError, match="one attempt"):
        environment.reset()


def test_the_best_evaluation_is_by_covered_score_then_the_earliest():
    environment = begin()
    for mark in ("as=3.0 # covered=0.15", "as=1.2", "wrong", "as=1.2 "):
        environment.step(write_pass(mark))
        environment.step(EVALUATE)
    assert environment.score() == 1


def test_an_unchanged_folder_is_not_judged_twice():
    evaluator = CannedEvaluator()
    environment = begin(evaluator)
    environment.step(write_pass("as=1.1"))
    environment.step(EVALUATE)
    assert "as at evaluation 1" in environment.step(EVALUATE).messages[0].content
    assert len(evaluator.submitted) == len(environment.evaluations) == 1


def test_a_folder_that_is_no_candidate_is_an_observation():
    environment = begin()
    reply = environment.step(EVALUATE)
    assert "sorted_output_pass_rule_names.json" in reply.messages[0].content
    assert environment.evaluations == [] and reply.num_malformed == 0


@pytest.mark.parametrize(
    ("limits", "answers", "reason"),
    [
        ({"max_turns": 3}, [EVALUATE] * 3, StopReason.TURN_LIMIT),
        ({"max_evaluations": 1}, [write_pass("as=1.1"), EVALUATE], StopReason.EVALUATION_LIMIT),
        (
            {"max_total_tokens": 100},
            [EVALUATE.model_copy(update={"usage": Usage(input_tokens=40, output_tokens=20)})] * 2,
            StopReason.TOKEN_LIMIT,
        ),
        ({"time_limit_s": 1e-9}, [EVALUATE], StopReason.TIME_LIMIT),
        ({"max_malformed_in_a_row": 2}, [call_message(("nothing", {}))] * 2, StopReason.FORMAT_ERROR),
    ],
)
def test_limits_end_the_attempt_after_their_turn(limits, answers, reason):
    environment = begin(**limits)
    results = [environment.step(answer) for answer in answers]
    assert [result.done for result in results] == [False] * (len(answers) - 1) + [True]
    assert results[-1].stop_reason is reason and results[-1].messages


def test_one_readable_call_breaks_a_row_of_malformed_ones():
    environment = begin(max_malformed_in_a_row=2)
    bad = call_message(("file_editor", "{broken"))
    mixed = call_message(("file_editor", "{broken"), ("pass_evaluator", {}))
    counts = [environment.step(answer).num_malformed for answer in (bad, mixed, bad)]
    assert counts == [1, 1, 1] and environment.stop_reason is None
    assert environment.step(bad).stop_reason is StopReason.FORMAT_ERROR


def test_an_answer_that_was_cut_off_does_not_end_the_attempt():
    environment = begin()
    cut = Message(role="assistant", content="Let me think", finish_reason="length")
    reply = environment.step(cut)
    assert not reply.done and reply.messages[0].role == "user" and "cut off" in reply.messages[0].content


def test_unstable_and_failed_evaluations_are_asked_for_again():
    evaluator = CannedEvaluator()
    environment = begin(evaluator, max_harness_retries=1)
    environment.step(write_pass("unstable"))
    environment.step(EVALUATE)
    assert len(evaluator.submitted) == 2 and environment.score() is None
    environment.step(write_pass("harness-error"))
    with pytest.raises(HarnessError, match="judge died"):
        environment.step(EVALUATE)
    assert len(evaluator.submitted) == 4 and len(environment.evaluations) == 1


def test_a_cancelled_run_does_not_wait_for_the_verdict():
    environment = PassEnvironment(make_task(), CannedEvaluator(delay_s=3), cancelled=lambda: True)
    environment.reset()
    environment.step(write_pass("as=1"))
    with pytest.raises(AttemptCancelledError):
        environment.step(EVALUATE)


def test_an_evaluator_that_is_closed_leaves_the_attempt_unfinished(monkeypatch):
    evaluator = CannedEvaluator()

    def submit(*arguments, **options):
        future = Future()
        future.cancel()
        return future

    monkeypatch.setattr(evaluator, "submit", submit)
    environment = begin(evaluator)
    environment.step(write_pass("as=1"))
    with pytest.raises(AttemptCancelledError):
        environment.step(EVALUATE)


def test_replies_are_clipped():
    environment = begin(max_reply_chars=300)
    environment.step(
        call_message(("file_editor", {"command": "create", "path": "pass_dir/a", "file_text": "x\n" * 900}))
    )
    reply = environment.step(call_message(("file_editor", {"command": "view", "path": "pass_dir/a"}))).messages[0]
    assert len(reply.content) <= 300 + len("\nturns left: 48")


def test_the_prompt_of_a_typical_task_is_short_and_always_the_same():
    task = make_task(num_graphs=3)
    first, again = (render_messages(task, "cpu", 50) for _ in range(2))
    assert first == again
    assert sum(len(message.content) for message in first) < 3200
    text = first[1].content
    assert text.count("def forward") == 1 and "tmp_0 = None" not in text
    assert "graphs/1 (g1): in_0,in_1 float32[2, 16]; line 3: (8,) -> (16,)" in text
    assert "Triton" in render_messages(task, "cuda:0", 50)[0].content


def test_graphs_of_another_structure_are_listed_apart():
    other = make_graph("other")
    files = {**other.files, "model.py": other.model_source.replace("in_0 + in_1", "in_0 * in_1")}
    graphs = (make_graph("a"), type(other)("b", files), make_graph("c", dtype="float16", eps="1e-06"))
    text = render_messages(Task("t", graphs), "cpu", 50)[1].content
    assert text.count("def forward") == 2 and "in_0 * in_1" in text
    assert "graphs/2 (c): in_0,in_1 float16[2, 8]; line 3: 1e-05 -> 1e-06" in text


def test_a_prompt_of_hundreds_of_graphs_keeps_its_cap_and_says_what_is_hidden():
    task = make_task(num_graphs=396)
    messages = render_messages(task, "cpu", 50, PromptConfig(max_chars=6000))
    assert 5000 < sum(len(message.content) for message in messages) <= 6000
    shown = len(re.findall(r"^\d+\|2,\d+", messages[1].content, re.M))
    assert f"({396 - 1 - shown} graphs are not shown here; graphs/index.txt" in messages[1].content


def test_messages_survive_json():
    environment = begin()
    result = environment.step(write_pass("as=1"))
    for message in result.messages:
        assert Message.model_validate(json.loads(message.model_dump_json())) == message
