"""Searches by served models: whole collections against local servers of both protocols, with faults on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from tests.policy_helpers import Servers, serve_fixture, settings
from tests.protocol_servers import Answer, Fault, drop, slow, status
from trajectories.agents.archive import archive_of
from trajectories.agents.plan_tree import plans_of
from trajectories.agents.requests import kind_of
from trajectories.collect import CollectConfig, run_collect
from trajectories.record import StopReason, Trajectory
from trajectories.store import load_trajectories

__all__ = ["serve_fixture"]


def writes(mark: str) -> Answer:
    files = pass_files(mark)
    calls = [
        ("file_editor", json.dumps({"command": "create", "path": f"pass_dir/{path}", "file_text": text}))
        for path, text in files.items()
    ]
    return Answer(calls=calls)


class Model:
    """Answers by the kind of the request; every fault comes once, before the answer."""

    def __init__(self, **faults: Fault) -> None:
        self.faults, self.count = dict(faults), dict.fromkeys(("translate", "improve", "instantiate"), 0)

    def __call__(self, body: dict[str, Any]) -> Answer | Fault:
        last = body["messages"][-1]["content"]
        text = last if isinstance(last, str) else "".join(part.get("text", "") for part in last)
        kind = kind_of(text)
        if kind in self.faults:
            return self.faults.pop(kind)
        if kind in self.count:
            self.count[kind] += 1
        if kind == "improve" and self.count[kind] == 2:  # a call that cannot be read
            return Answer(calls=[("file_editor", json.dumps({"command": "creat", "path": 3}))])
        answers = {
            "translate": lambda: writes("nothing" if self.count["translate"] == 1 else "as=1.2"),
            "summarise": lambda: Answer(content="The pattern misses the bias."),
            "improve": lambda: writes(f"as={1.3 + self.count['improve'] / 10}"),
            "verify_compilation": lambda: Answer(content="Fine. VERDICT: pass"),
            "verify_memory": lambda: Answer(content="VERDICT: fail"),
            "verify_numerics": lambda: Answer(content="Hard to say."),
            "plans": lambda: Answer(content='Here: {"plans": [{"plan": "one row a warp", "score": "high"}]}'),
            "instantiate": lambda: writes(f"as={1.1 + self.count['instantiate'] / 100}"),
            "revise": lambda: Answer(content="No JSON today."),
        }
        return answers[kind]()


def collect(server: Any, protocol: str, root: Path, agent: dict[str, Any], **more: Any) -> Trajectory:
    config = CollectConfig(
        name="search", tasks=["x"], policy=settings(server, protocol, backoff_s=0.01, timeout_s=5.0), agent=agent,
        num_workers=1, verdict_cache=False, out_dir=root, **more,
    )  # fmt: skip
    run_collect(config, [make_task()], CannedEvaluator(), progress=False)
    (trajectory,) = load_trajectories(root)
    return trajectory


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_evolve_by_a_served_model(serve: Servers, tmp_path: Path, protocol: str) -> None:
    model = Model(translate=status(429, "slow down"), improve=slow(writes("as=1.35"), 0.3), summarise=drop())
    server = serve(model)
    agent = {
        "kind": "evolve", "generations": 1, "num_proposals": 4, "num_evaluated": 2, "verifier": {},
        "ensemble": [{"temperature": 0.0}, {"temperature": 1.0}],
    }  # fmt: skip
    trajectory = collect(server, protocol, tmp_path / "mine", agent)
    assert trajectory.stop_reason is StopReason.SUBMITTED and trajectory.error == ""
    entries = archive_of(trajectory)
    assert [entry.generation for entry in entries] == [0, 0, 1, 1, 1] and trajectory.num_malformed_calls == 1
    judged = [entry for entry in entries if entry.evaluation is not None]
    assert len(judged) == 4 and entries[2].votes == {"compilation": 1.0, "memory": 0.0, "numerics": 0.5}
    assert "The pattern misses the bias." in json.dumps(server.requests[4]["messages"])
    temperatures = {body.get("temperature") for body in server.requests}
    assert temperatures == {0.0, 1.0} and trajectory.usage.num_retries >= 2
    tools = [bool(body.get("tools")) for body in server.requests if "VERDICT" in json.dumps(body)]
    assert tools and not any(tools)  # a question in words offers none
    assert trajectory.final_verdict is not None and trajectory.policy["ensemble"]


def test_ksearch_by_a_served_model_that_answers_badly(serve: Servers, tmp_path: Path) -> None:
    trajectory = collect(serve(Model(plans=drop())), "openai", tmp_path / "mine", {"kind": "ksearch", "max_rounds": 2})
    (plan,) = plans_of(trajectory)
    assert (plan.text, plan.score) == ("one row a warp", 0.5)
    assert trajectory.agent_state["refused_edits"] == 1 and trajectory.stop_reason is StopReason.SUBMITTED
    assert trajectory.best_evaluation is not None


def test_an_endpoint_that_is_gone_ends_the_attempt_and_a_resume_goes_on(serve: Servers, tmp_path: Path) -> None:
    faults = iter([None, None, None, *[status(500, "down")] * 4])
    model = Model()
    server = serve(lambda body: next(faults, None) or model(body))
    agent = {"kind": "evolve", "generations": 1, "num_proposals": 3, "num_evaluated": 3}
    first = collect(server, "openai", tmp_path / "mine", agent)
    assert first.stop_reason is StopReason.POLICY_ERROR and first.num_turns == 3
    second = collect(server, "openai", tmp_path / "mine", agent)
    assert second.stop_reason is StopReason.SUBMITTED
    assert second.messages[: len(first.messages)] == first.messages  # nothing that was paid for is asked again
    ledger = (tmp_path / "mine" / "ledger.jsonl").read_text().splitlines()
    turns = [json.loads(line)["turn"] for line in ledger]
    assert sorted(turns) == list(range(1, second.num_turns + 1))
