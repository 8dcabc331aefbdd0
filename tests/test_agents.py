"""Agents behind one interface; the iterative one: its budget, its early end, its best candidate, its record."""

from __future__ import annotations

from typing import Any

import pytest

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.agents import Agent, AttemptSetup, make_agent
from trajectories.environment import AttemptCancelledError
from trajectories.limits import AgentLimits
from trajectories.policies.scripted import ScriptedPolicy, call_message
from trajectories.prompts import PROMPT_VERSION, PromptConfig
from trajectories.record import Message, StopReason, Trajectory, Usage
from trajectories.rollout import RolloutHooks

EVALUATE = call_message(("pass_evaluator", {}))
DONE = Message(role="assistant", content="Done.")


def answers(*marks: str, **fields: Any) -> list[Message]:
    """For each mark one turn that writes a pass and has it judged; then the end."""
    turns = []
    for mark in marks:
        files = {f"pass_dir/{path}": text for path, text in pass_files(mark).items()}
        create = [
            ("file_editor", {"command": "create", "path": path, "file_text": text}) for path, text in files.items()
        ]
        turns.append(call_message(*create, ("pass_evaluator", {})).model_copy(update=fields))
    return [*turns, DONE]


def run(
    policy: Any, evaluator: CannedEvaluator | None = None, *, setup: AttemptSetup | None = None, **kwargs: Any
) -> Trajectory:
    """One attempt; further keywords are limits, but for hooks and earlier."""
    hooks, earlier = kwargs.pop("hooks", None), kwargs.pop("earlier", None)
    agent = make_agent({"kind": "iterative"}, setup)
    return agent.run(
        make_task(),
        [policy],
        evaluator or CannedEvaluator(),
        AgentLimits(**kwargs),
        seed=5,
        attempt_index=2,
        hooks=hooks,
        earlier=earlier,
    )


def test_the_iterative_agent_is_an_agent_and_names_itself_in_the_record() -> None:
    agent = make_agent({"kind": "iterative"})
    assert isinstance(agent, Agent) and agent.num_policies == 1
    assert make_agent({}).describe() == agent.describe() == {"kind": "iterative"}
    trajectory = run(ScriptedPolicy(answers("as=2.0")))
    assert (trajectory.agent, trajectory.agent_settings, trajectory.agent_state) == ("iterative", {}, {})
    assert (trajectory.prompt_version, trajectory.seed, trajectory.attempt_index) == (PROMPT_VERSION, 5, 2)
    assert trajectory.final_verdict is not None and trajectory.final_verdict.protocol == "strict"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "iteratve"}, "agent.kind: 'iteratve' is unknown; did you mean 'iterative'?"),
        ({"kind": "tree"}, "agent.kind: 'tree' is unknown; choose one of iterative, evolve, ksearch"),
        ({"kind": "iterative", "patience": 3}, "agent.patience (iterative): Extra inputs are not permitted"),
    ],
)
def test_a_wrong_configuration_is_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_agent(settings)
    assert str(caught.value) == words


def test_the_iterative_agent_takes_one_policy() -> None:
    policies = [ScriptedPolicy([DONE]), ScriptedPolicy([DONE])]
    with pytest.raises(UserError, match="takes one policy, not 2"):
        make_agent({}).run(make_task(), policies, CannedEvaluator(), AgentLimits(), seed=0, attempt_index=0)


def test_the_setup_s_protocols_and_prompt_are_used() -> None:
    evaluator = CannedEvaluator()
    setup = AttemptSetup(load_protocol("strict"), None, PromptConfig(example=False))
    trajectory = run(ScriptedPolicy(answers("as=2.0")), evaluator, setup=setup)
    assert [protocol for _, protocol, _ in evaluator.submitted] == ["strict"] and trajectory.final_verdict is None
    assert "Example" not in trajectory.messages[0].content


@pytest.mark.parametrize(
    ("marks", "limits", "num_evaluations"),
    [
        (["as=1.0", "as=1.0 ", "as=0.9", "as=2.0"], {"patience": 2}, 3),
        (["as=1.0", "as=1.005", "as=1.009", "as=2.0"], {"patience": 2}, 3),  # gains within the clock's noise
        (["as=1.0", "as=1.005", "as=1.02", "as=2.0"], {"patience": 2}, 4),
        (["as=1.0", "as=1.005", "as=1.009", "as=2.0"], {"patience": 2, "min_gain": 0.0}, 4),
        (["as=1.0", "as=3.0 # covered=0.5", "as=9.0 # covered=1.0", "as=2.0"], {"patience": 2}, 3),  # covered AS counts
        (["nothing", "nothing 2", "nothing 3"], {"patience": 2}, 3),  # failures do not wait for ever either
        (["as=1.0", "unstable", "unstable 2", "as=2.0"], {"patience": 2}, 4),  # those say nothing
    ],
)
def test_patience_ends_an_attempt_that_gains_nothing(
    marks: list[str], limits: dict[str, Any], num_evaluations: int
) -> None:
    trajectory = run(ScriptedPolicy(answers(*marks)), **limits)
    assert len(trajectory.evaluations) == num_evaluations
    ended_early = num_evaluations < len(marks) or marks[0] == "nothing"
    assert trajectory.stop_reason is (StopReason.NO_GAIN if ended_early else StopReason.SUBMITTED)
    assert (trajectory.final_verdict is not None) == (trajectory.best_evaluation is not None)


def test_dollars_and_tokens_of_an_attempt_are_limited() -> None:
    usage = Usage(input_tokens=100, output_tokens=10, cost_usd=0.3)
    turns = answers("as=1.0", "as=2.0", "as=3.0", usage=usage)
    by_cost = run(ScriptedPolicy(turns), max_cost_usd=0.5)
    assert by_cost.stop_reason is StopReason.COST_LIMIT and by_cost.num_turns == 2
    assert by_cost.usage.cost_usd == 0.6 and by_cost.final_verdict is not None
    by_tokens = run(ScriptedPolicy(turns), max_total_tokens=110)
    assert by_tokens.stop_reason is StopReason.TOKEN_LIMIT and by_tokens.num_turns == 1


@pytest.mark.parametrize(
    ("marks", "best"),
    [
        (["as=2.0 # covered=1.0", "as=2.0 # covered=1.0 "], 0),  # a tie: the earliest
        (["as=1.0 # covered=1.0", "as=2.0 # covered=1.0"], 1),  # covered alike: the faster
        (["as=9.0 # covered=0.2", "as=1.1"], 1),  # a cheap operator replaced is no gain
        (["unstable", "wrong"], 1),  # an incomplete verdict is none
        (["unstable"], None),
        (["violation", "as=0.5"], 1),
    ],
)
def test_the_best_is_by_covered_as_among_complete_verdicts(marks: list[str], best: int | None) -> None:
    evaluator = CannedEvaluator()
    trajectory = run(ScriptedPolicy(answers(*marks)), evaluator)
    assert trajectory.best_evaluation == best
    strict = [mark for _, protocol, mark in evaluator.submitted if protocol == "strict"]
    assert len(strict) == (best is not None)
    if best is not None:
        assert trajectory.best_files == pass_files(marks[best])


def test_a_final_verdict_that_is_not_steady_is_kept_and_gives_no_score() -> None:
    class OnceSteady(CannedEvaluator):
        def _evaluate(self, future, candidate, task, protocol):  # type: ignore[no-untyped-def]
            if protocol == "strict":
                candidate = type(candidate)(pass_files("unstable"))
            super()._evaluate(future, candidate, task, protocol)

    trajectory = run(ScriptedPolicy(answers("as=2.0")), OnceSteady())
    assert trajectory.final_verdict is not None and not trajectory.final_verdict.complete
    assert trajectory.shrinkage is None and trajectory.stop_reason is StopReason.SUBMITTED


def test_a_policy_with_state_begins_its_interrupted_attempt_anew() -> None:
    states: list[Trajectory] = []
    hooks = RolloutHooks(keep=lambda trajectory: states.append(trajectory.model_copy(deep=True)))
    run(ScriptedPolicy(answers("as=1.5", "as=2.0")), hooks=hooks)
    interrupted = next(state for state in states if state.num_turns == 2)
    asked: list[int] = []
    hooks = RolloutHooks(after_answer=lambda name, turn, usage: asked.append(turn))
    run(ScriptedPolicy(answers("as=1.5", "as=2.0")), hooks=hooks, earlier=interrupted)
    assert asked == [1, 2, 3]

    class Stateless(ScriptedPolicy):
        is_stateless = True

        def answer(self, messages, tools):  # type: ignore[no-untyped-def]
            self._position = sum(message.role == "assistant" for message in messages)
            return super().answer(messages, tools)

    asked.clear()
    evaluator = CannedEvaluator()
    continued = run(Stateless(answers("as=1.5", "as=2.0")), evaluator, hooks=hooks, earlier=interrupted)
    assert asked == [3] and continued.best_evaluation == 1
    assert [protocol for _, protocol, _ in evaluator.submitted][-1] == "strict"


def test_the_policy_describes_itself_once_it_has_started() -> None:
    class Chooses(ScriptedPolicy):
        chosen = "none"

        def start(self, task, *, attempt_index, seed, device):  # type: ignore[no-untyped-def]
            super().start(task, attempt_index=attempt_index, seed=seed, device=device)
            self.chosen = f"teacher-{attempt_index}"

        def describe(self) -> dict[str, Any]:
            return {"kind": "mixture", "teacher": self.chosen}

    assert run(Chooses([DONE])).policy["teacher"] == "teacher-2"


def test_answers_without_visible_reasoning_are_counted() -> None:
    seen = [
        EVALUATE.model_copy(update={"reasoning": "Look first."}),
        EVALUATE,
        EVALUATE.model_copy(update={"reasoning_policy": "dropped"}),
        EVALUATE.model_copy(update={"reasoning": "It looks.", "reasoning_policy": "summarised"}),
        DONE.model_copy(update={"reasoning": "That is all."}),
    ]
    trajectory = run(ScriptedPolicy(seen))
    assert trajectory.num_turns == 5 and trajectory.num_without_reasoning == 3


def test_a_cancelled_attempt_does_not_wait() -> None:
    with pytest.raises(AttemptCancelledError):
        run(ScriptedPolicy(answers("as=1.0")), CannedEvaluator(delay_s=3), hooks=RolloutHooks(cancelled=lambda: True))
