"""Whole attempts and collections by both served policies over a bad line; resumes; and where the key never is."""

import logging

import pytest

from eval_harness.errors import UserError
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import (
    KEY,
    MODE_NAMES,
    MODES,
    PROTOCOLS,
    make,
    scripted_answer,
    serve_fixture,  # noqa: F401 (fixture)
    settings,
)
from tests.protocol_answers import Answer
from tests.protocol_servers import cut, drop, page, status, stream_error
from trajectories.collect import CollectConfig, run_collect
from trajectories.environment import PassEnvironment
from trajectories.record import StopReason, Trajectory
from trajectories.rollout import RolloutHooks, run_rollout
from trajectories.store import load_trajectories

BOTH = pytest.mark.parametrize(("protocol", "stream"), MODES, ids=MODE_NAMES)
EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
LONG = Answer("an answer in several pieces", reasoning="hm, let me see")
TOO_LONG = status(400, "prompt is too long: 300000 tokens > 200000 maximum")


@BOTH
def test_a_whole_attempt_over_a_bad_line(serve, protocol, stream):
    """Each request fails first, every time in another way; the conversation is the one without faults."""
    faults = [status(429, "x", headers={"retry-after": "1"}), drop(), cut(LONG), page(200, "<html>")]
    seen: set[int] = set()

    def unlucky(body):
        num_messages = len(body["messages"])
        if num_messages not in seen:
            seen.add(num_messages)
            return faults[len(seen) - 1]
        return scripted_answer(body, reasoning=f"thought {num_messages}")

    def teacher(body):
        return scripted_answer(body, reasoning=f"thought {len(body['messages'])}")

    rough = run_rollout(make(serve(unlucky), protocol, stream=stream), PassEnvironment(make_task(), CannedEvaluator()))
    smooth = run_rollout(make(serve(teacher), protocol, stream=stream), PassEnvironment(make_task(), CannedEvaluator()))
    assert rough.stop_reason is StopReason.SUBMITTED and rough.final_verdict.as_score == 1.5
    assert rough.num_turns == 4 and rough.usage.num_retries == 4 and smooth.usage.num_retries == 0
    assert [(m.role, m.content, m.reasoning, m.tool_calls, m.provider_blocks) for m in rough.messages] == [
        (m.role, m.content, m.reasoning, m.tool_calls, m.provider_blocks) for m in smooth.messages
    ]


@EACH
def test_a_full_context_ends_the_attempt_with_what_it_has(serve, protocol):
    def teacher(body):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return TOO_LONG if turn == 3 else scripted_answer(body)

    trajectory = run_rollout(make(serve(teacher), protocol), PassEnvironment(make_task(), CannedEvaluator()))
    assert trajectory.stop_reason is StopReason.CONTEXT_LIMIT and trajectory.final_verdict.as_score == 1.5
    assert trajectory.num_turns == 3


@BOTH
def test_an_interrupted_attempt_goes_on_from_its_record(serve, protocol, stream):
    """What is sent after a resume is, to the byte, what would have been sent without the interruption."""

    def teach(body):
        return scripted_answer(body, reasoning=f"thought {len(body['messages'])}")

    whole, resumed = serve(teach), serve(teach)
    kept = []
    hooks = RolloutHooks(keep=lambda trajectory: kept.append(trajectory.model_dump_json()))
    run_rollout(make(whole, protocol, stream=stream), PassEnvironment(make_task(), CannedEvaluator()), hooks=hooks)
    records = [Trajectory.model_validate_json(text) for text in kept]
    earlier = next(record for record in records if record.num_turns == 2 and record.messages[-1].role == "tool")
    environment = PassEnvironment(make_task(), CannedEvaluator(), known_evaluations=earlier.evaluations)
    trajectory = run_rollout(make(resumed, protocol, stream=stream), environment, earlier=earlier)
    assert trajectory.stop_reason is StopReason.SUBMITTED and len(resumed.requests) == 2
    assert resumed.requests == whole.requests[2:]


@BOTH
def test_no_record_log_or_error_of_a_collection_holds_the_key(serve, protocol, stream, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    said = [
        status(500, f"{KEY} failed"),
        status(429, f"{KEY} is too fast"),
        page(502, f"<html>x-api-key: {KEY}</html>"),
        page(200, f"not JSON {KEY}"),
        status(400, f"what is {KEY}?"),
        stream_error(LONG, {"type": "api_error", "message": f"Bearer {KEY}"}),
        status(400, f"{KEY}: prompt is too long"),
    ]

    def unlucky(body):
        text = str(body["messages"]) + str(body.get("system"))
        for index, fault in enumerate(said):
            if f"task_{index}" in text:
                return fault
        # what is signed may not be touched, so there the model's thought holds no key
        thought = f"the header says {KEY}" if protocol == "openai" else "hm"
        return scripted_answer(body, reasoning=thought, redacted=f"{KEY}", extra_text=f" {KEY}")

    policy = settings(serve(unlucky), protocol, stream=stream, max_retries=0, prices={"input": 3, "output": 15})
    config = CollectConfig(
        name="c", tasks=["x"], policy=policy, out_dir=tmp_path, max_infrastructure_errors=99, num_workers=2
    )
    tasks = [make_task(f"task_{index}") for index in range(len(said) + 1)]
    summary = run_collect(config, tasks, CannedEvaluator(), progress=False)
    ends = {str(reason): count for reason, count in summary.stop_reasons.items()}
    assert ends["POLICY_ERROR"] >= 5 and ends["CONTEXT_LIMIT"] == 1 and ends["SUBMITTED"] >= 1
    texts = {str(path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    texts |= {"log": caplog.text, "output": "".join(capfd.readouterr())}
    for name, text in texts.items():
        assert KEY not in text, name
    assert any("***" in trajectory.error for trajectory in load_trajectories(tmp_path))
    assert summary.model_dump_json().count(KEY) == 0


@EACH
def test_a_refused_key_stops_the_collection_at_once(serve, protocol, tmp_path):
    server = serve(lambda body: status(401, "no"))
    policy = settings(server, protocol)
    config = CollectConfig(name="c", tasks=["x"], policy=policy, num_workers=1, out_dir=tmp_path)
    with pytest.raises(UserError, match="was refused"):
        run_collect(config, [make_task("a"), make_task("b")], CannedEvaluator(), progress=False)
    assert len(server.requests) == 1
