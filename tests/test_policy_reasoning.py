"""Turns without visible reasoning: kept, dropped or given a rationale; marked, counted and paid for."""

import time

import pytest

from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import PROTOCOLS, QUESTION, make, scripted_answer, serve_fixture  # noqa: F401 (fixture)
from tests.protocol_servers import Answer, status
from trajectories.environment import PassEnvironment
from trajectories.policies.reasoning import split_thinking
from trajectories.rollout import run_rollout
from trajectories.tools import TOOLS

EACH = pytest.mark.parametrize("protocol", PROTOCOLS)


@EACH
@pytest.mark.parametrize("policy", ["empty", "dropped"])
def test_a_turn_without_reasoning_is_marked_and_one_with_it_is_not(serve, protocol, policy):
    server = serve([Answer("a"), Answer("b", reasoning="hm"), Answer("c", reasoning=" \n")])
    teacher = make(server, protocol, missing_reasoning=policy)
    answers = [teacher.answer(QUESTION, TOOLS) for _ in range(3)]
    assert [answer.reasoning_policy for answer in answers] == [policy, None, policy]
    assert [answer.reasoning for answer in answers] == [None, "hm", None] and len(server.requests) == 3


@EACH
def test_a_rationale_is_asked_of_the_same_teacher_and_paid_for(serve, protocol):
    call = ("file_editor", '{"command": "view", "path": "%s"}' % ("x" * 3000))
    server = serve([Answer("looking", calls=[call]), Answer("I should look at the graph first.")])
    teacher = make(server, protocol, missing_reasoning="summarised", prices={"input": 1, "output": 1})
    answer = teacher.answer(QUESTION, TOOLS)
    assert answer.reasoning == "I should look at the graph first." and answer.reasoning_policy == "summarised"
    assert answer.content == "looking" and answer.tool_calls[0].arguments == call[1]
    assert answer.usage.output_tokens == 40 and answer.usage.cost_usd > 40e-6
    question = str(server.requests[1]["messages"][-1]["content"])
    assert "looking" in question and "more characters" in question and len(question) < 3000
    # the conversation before the question is the same, so that an endpoint's cache serves it
    assert server.requests[1].get("tools") == server.requests[0].get("tools")


@EACH
@pytest.mark.parametrize(
    "fault", [status(500, "no"), Answer("  "), status(401, "withdrawn")], ids=["fails", "empty", "key withdrawn"]
)
def test_a_rationale_that_does_not_come_loses_nothing(serve, protocol, fault):
    teacher = make(serve([Answer("a"), fault]), protocol, missing_reasoning="summarised", max_retries=0)
    answer = teacher.answer(QUESTION, TOOLS)
    assert (answer.content, answer.reasoning, answer.reasoning_policy) == ("a", None, "empty")


@EACH
def test_an_attempt_counts_its_turns_without_reasoning(serve, protocol):
    def teacher(body):
        is_first = sum(message["role"] == "assistant" for message in body["messages"]) == 0
        return scripted_answer(body, reasoning="hm" if is_first else None)

    policy = make(serve(teacher), protocol, missing_reasoning="dropped")
    trajectory = run_rollout(policy, PassEnvironment(make_task(), CannedEvaluator()))
    assert trajectory.num_turns == 4 and trajectory.num_without_reasoning == 3
    marks = [message.reasoning_policy for message in trajectory.messages if message.role == "assistant"]
    assert marks == [None, "dropped", "dropped", "dropped"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("<think>a\nb</think>\n\nc", ("a\nb", "c")),
        ("a</think>c", ("a", "c")),
        ("<think>\n\n</think>\n\nc", (None, "c")),
        ("c", (None, "c")),
        ("<think>never closed", (None, "<think>never closed")),
    ],
)
def test_thinking_inside_the_text(content, parts):
    assert split_thinking(content) == parts


def test_blanks_without_end_are_read_in_no_time():
    started = time.monotonic()
    for content in (" " * 500_000, "<think>" + "\n" * 500_000, "\n" * 500_000 + "</think>" + " " * 500_000 + "so"):
        split_thinking(content)
    assert time.monotonic() - started < 2  # in the square of the length: an hour
