"""The search over plans: the tree and its edits, tries until a plan stagnates, malformed answers, resuming."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.canned_evaluator import CannedEvaluator, make_task
from tests.search_policy import RequestPolicy, plans, writes
from trajectories.agents import make_agent
from trajectories.agents.archive import archive_of
from trajectories.agents.ksearch import FALLBACK_PLAN
from trajectories.agents.plan_tree import PlanTree, plans_of
from trajectories.agents.search_text import parse_files, parse_objects, render_files
from trajectories.limits import AgentLimits
from trajectories.record import Message, StopReason, Trajectory
from trajectories.rollout import RolloutHooks

SCORES = ["as=1.5", "as=1.502", "as=1.501 ", "as=1.2", "as=1.1", "nothing", "as=2.0", "as=2.5", "as=2.4", "as=2.3"]


def model(**kinds: Any) -> RequestPolicy:
    standard = {
        "plans": lambda before, request: plans("tiles of rows", "one row a warp"),
        "instantiate": lambda before, request: writes(SCORES[before]),
        "revise": lambda before, request: (
            '```json\n[{"do": "insert", "parent": 0, "plan": "rows, two at a time", "score": 0.95}]\n```'
            if before == 0
            else '[{"do": "prune", "id": 1}]'
        ),
    }
    return RequestPolicy({**standard, **kinds})


def run(policy: RequestPolicy, **kwargs: Any) -> Trajectory:
    config = {"kind": "ksearch", "num_plans": 2, **kwargs.pop("config", {})}
    hooks, earlier = kwargs.pop("hooks", None), kwargs.pop("earlier", None)
    evaluator = kwargs.pop("evaluator", None) or CannedEvaluator()
    return make_agent(config).run(
        make_task(), [policy], evaluator, AgentLimits(**kwargs), seed=0, attempt_index=0, hooks=hooks, earlier=earlier
    )


def test_the_best_plan_is_tried_until_it_stagnates_and_the_tree_is_revised() -> None:
    policy = model()
    trajectory = run(policy)
    assert trajectory.stop_reason is StopReason.SUBMITTED
    first, second, third = plans_of(trajectory)
    # 1.5, then twice no gain over 1%; the second plan is never tried: the new one is scored higher, then it is pruned
    assert (first.tries, first.status, first.best) == ([0, 1, 2], "stagnated", 1)
    assert (third.parent, third.text, third.score) == (0, "rows, two at a time", 0.95)
    assert third.tries == [3, 4, 5] and third.status == "stagnated" and third.best == 3
    assert (second.status, second.tries) == ("pruned", [])
    assert [kind for kind, _ in policy.shown] == [
        "plans",
        *["instantiate"] * 3,
        "revise",
        *["instantiate"] * 3,
        "revise",
    ]
    refined = policy.requests("instantiate")[3]
    assert "The best candidate so far of the plan that this one refines, AS 1.502" in refined
    assert "0 (score 0.90, stagnated, 3 tries, best covered AS" in policy.requests("revise")[0]
    assert [entry.generation for entry in archive_of(trajectory)] == [0, 0, 0, 2, 2, 2]
    assert trajectory.agent == "ksearch" and trajectory.final_verdict is not None


def test_answers_that_cannot_be_read_leave_the_tree_and_the_search_goes_on() -> None:
    policy = model(
        plans=lambda before, request: "I think we should use wide tiles.",
        revise=lambda before, request: '[{"do": "prune", "id": 7}, {"do": "dance"}, {"do": "insert", "plan": 3}]',
    )
    trajectory = run(policy)
    (plan,) = plans_of(trajectory)
    assert plan.text == FALLBACK_PLAN and plan.status == "stagnated"
    assert trajectory.agent_state["refused_edits"] == 3 and trajectory.stop_reason is StopReason.SUBMITTED
    silent = run(model(revise=lambda before, request: "nothing to say"))
    assert silent.agent_state["refused_edits"] >= 1
    mute = run(model(instantiate=lambda before, request: "no"), max_malformed_in_a_row=20)
    assert all(plan.status == "stagnated" and not plan.tries for plan in plans_of(mute)[:1])


@pytest.mark.parametrize("stop_after", [1, 3, 5, 7])
def test_an_interrupted_search_goes_on_with_what_is_recorded(stop_after: int) -> None:
    whole = run(model())
    states: list[Trajectory] = []
    run(model(), hooks=RolloutHooks(keep=lambda t: states.append(t.model_copy(deep=True))))
    earlier = next(state for state in states if state.num_turns == stop_after)
    done = [kind for kind, _ in _calls(whole)][:stop_after]
    policy = model()
    kinds = policy.kinds
    policy.kinds = {
        kind: (lambda before, request, kind=kind: kinds[kind](before + done.count(kind), request)) for kind in kinds
    }
    again = run(policy, earlier=earlier)
    assert [m.content for m in again.messages] == [m.content for m in whole.messages]
    assert plans_of(again) == plans_of(whole) and len(policy.shown) == len(_calls(whole)) - stop_after


def _calls(trajectory: Trajectory) -> list[tuple[str, Message]]:
    from trajectories.agents.requests import kind_of

    requests = [m for m in trajectory.messages if m.role == "user" and m.turn is not None and kind_of(m.content)]
    return [(kind_of(message.content), message) for message in requests]


def test_a_tree_takes_no_more_plans_than_it_may_and_none_twice() -> None:
    tree = PlanTree(run(model()), max_plans=3)
    assert tree.add("a  plan\nof two lines", 0.5) is not None and tree.plans[0].text == "a plan of two lines"
    assert tree.add("A plan of two lines", 0.9) is None and tree.add("", 0.9) is None
    assert tree.apply([{"do": "insert", "parent": None, "plan": f"plan {i}", "score": 2} for i in range(5)]) == 2
    assert tree.num_refused == 3 and tree.plans[1].score == 1.0
    assert tree.apply([{"do": "rank", "id": 1, "score": True}, {"do": "rank", "id": 1, "score": float("nan")}]) == 0
    assert tree.apply([{"do": "rank", "id": 0, "score": 1}, {"do": "prune", "id": 1}]) == 2
    assert tree.next() is tree.plans[0] and len(tree.render(80)) <= 80


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["do", "id", "plan", "score"]), inner),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(["do", "id", "plan", "score", "parent"]), JSON, max_size=5), max_size=6)
)
def test_no_edit_breaks_a_tree(edits: list[dict[str, Any]]) -> None:
    tree = PlanTree(EMPTY, max_plans=5)
    tree.add("one", 0.5)
    taken = tree.apply(edits)
    assert taken + tree.num_refused == len(edits)
    assert all(0 <= plan.score <= 1 and (plan.parent is None or plan.parent < plan.id) for plan in tree.plans)


EMPTY = run(RequestPolicy({"plans": lambda b, r: "", "instantiate": lambda b, r: "", "revise": lambda b, r: ""}))


def test_lists_of_objects_are_found_in_words() -> None:
    assert parse_objects('Sure! [{"a": 1}] and more') == [{"a": 1}]
    assert parse_objects('```json\n{"plans": [{"plan": "x"}]}\n```') == [{"plan": "x"}]
    assert parse_objects('{"do": "prune", "id": 1}') == [{"do": "prune", "id": 1}]
    assert parse_objects("x[0] = {1} no list") is None and parse_objects("") is None
    assert parse_objects('[1, 2] then [{"a": 2}]') == [{"a": 2}]
    assert parse_objects("[" * 100_000) is None


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["Fuse.py", "sub/a.py", "sorted_output_pass_rule_names.json"]),
        st.text(alphabet="ab`#\n /", max_size=40).map(lambda text: f"{text}\n"),
    )
)
def test_files_as_text_come_back(files: dict[str, str]) -> None:
    assert parse_files(render_files(files)) == {f"pass_dir/{path}": text for path, text in files.items()}
