"""The evolutionary search: translation, generations, contexts, verifiers, limits, resuming, what is recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.search_policy import RequestPolicy, writes
from trajectories.agents import Agent, AttemptSetup, make_agent, named_agent, policy_settings
from trajectories.agents.archive import Archive, archive_of, choose_context
from trajectories.agents.search_attempt import messages_as_sent
from trajectories.limits import AgentLimits
from trajectories.policies.scripted import call_message
from trajectories.record import Message, StopReason, Trajectory
from trajectories.rollout import RolloutHooks
from trajectories.selection import refusal
from trajectories.selection_config import SelectionConfig

SMALL = {"kind": "evolve", "generations": 2, "num_proposals": 3, "num_evaluated": 2, "recommendations": ["wide loads"]}


def run(settings: dict[str, Any], *policies: RequestPolicy, **kwargs: Any) -> Trajectory:
    """One attempt; further keywords are limits, but for hooks, earlier, evaluator and setup."""
    given = {name: kwargs.pop(name, None) for name in ("hooks", "earlier", "evaluator", "setup")}
    agent = make_agent(settings, given["setup"])
    return agent.run(
        make_task(), policies, given["evaluator"] or CannedEvaluator(), AgentLimits(**kwargs),
        seed=3, attempt_index=0, hooks=given["hooks"], earlier=given["earlier"],
    )  # fmt: skip


def rising(before: int, request: str) -> Message:
    return writes(f"as={1.5 + before / 10}")


def model(**kinds: Any) -> RequestPolicy:
    return RequestPolicy({"translate": lambda before, request: writes("as=1.2"), "improve": rising, **kinds})


def test_generations_keep_everything_in_the_archive_and_show_what_is_correct_slowest_first() -> None:
    policy = model()
    trajectory = run(SMALL, policy)
    assert trajectory.stop_reason is StopReason.SUBMITTED and trajectory.agent == "evolve"
    entries = archive_of(trajectory)
    assert [entry.generation for entry in entries] == [0, 1, 1, 1, 2, 2, 2]
    assert [entry.stage for entry in entries] == ["", "", "", "ranked", "", "", "ranked"]
    assert len(trajectory.evaluations) == 5 and trajectory.num_turns == 7
    assert entries[3].files and not entries[1].files  # files of a judged candidate stand with its evaluation
    assert all(entry.recommendation == "wide loads" for entry in entries[1:])
    last = policy.requests("improve")[-1]
    assert [last.index(f"## Candidate {number}") for number in (0, 1, 2)] == sorted(
        last.index(f"## Candidate {number}") for number in (0, 1, 2)
    )
    assert "## Candidate 3" not in last and "Try this: wide loads" in last and "holds candidate 2" in last
    assert trajectory.best_evaluation == 4 and trajectory.final_verdict is not None
    assert trajectory.usage.cost_usd == pytest.approx(0.07)


def test_a_translation_that_fails_is_told_what_was_wrong_in_a_model_s_words() -> None:
    tries = ["nothing", "nothing 2", "as=1.4"]
    policy = model(
        translate=lambda before, request: writes(tries[before]),
        summarise=lambda before, request: f"Summary {before}: mend the pattern.",
    )
    trajectory = run({**SMALL, "generations": 0}, policy)
    first, second, third = policy.requests("translate")
    assert "is empty" in first and "Summary" not in first
    assert "Summary 0: mend the pattern." in second and "holds candidate 0" in second
    assert "Summary 1" in third and len(policy.requests("summarise")) == 2
    assert [entry.parents for entry in archive_of(trajectory)] == [[], [0], [1]]
    plain = model(translate=lambda before, request: writes(tries[before]))
    run({**SMALL, "generations": 0, "summarise_errors": False}, plain)
    assert "next:" in plain.requests("translate")[1]  # the evaluator's own words


def test_rounds_of_translation_end_and_generations_go_on_with_the_failures() -> None:
    policy = model(
        translate=lambda before, request: writes(f"nothing {before}"),
        improve=lambda before, request: writes(f"nothing else {before}"),
    )
    settings = {**SMALL, "translation_rounds": 2, "summarise_errors": False, "num_failures": 2}
    trajectory = run(settings, policy)
    assert len(policy.requests("translate")) == 2 and len(policy.requests("improve")) == 6
    assert "Failed lately:\n- 0: " in policy.requests("improve")[0]
    assert trajectory.best_evaluation is None or trajectory.stop_reason is StopReason.SUBMITTED


def test_verifiers_rank_proposals_and_reject_none() -> None:
    """Their votes decide which two of three are judged; a vote that cannot be read is half of one."""

    def verdict(before: int, request: str) -> str:
        return "VERDICT: fail" if "as=1.5" in request else "It looks right.\nVERDICT: **PASS**"

    policy = model(
        improve=lambda before, request: writes(f"as={1.5 + before}"),
        verify_compilation=verdict, verify_numerics=lambda before, request: "I cannot say", verify_memory=verdict,
    )  # fmt: skip
    trajectory = run({**SMALL, "generations": 1, "verifier": {"num_votes": 2}}, policy)
    entries = archive_of(trajectory)
    assert entries[1].votes == {"compilation": 0.0, "memory": 0.0, "numerics": 0.5}
    assert entries[2].votes == {"compilation": 1.0, "memory": 1.0, "numerics": 0.5}
    assert entries[1].stage == "ranked" and entries[1].rejected == "place 3 of 3"
    assert len(policy.requests("verify_memory")) == 6 and len(trajectory.evaluations) == 3
    fewer = run({**SMALL, "generations": 1, "num_proposals": 2, "verifier": {}}, model())
    assert all(not entry.votes for entry in archive_of(fewer))  # as many as are judged: nothing to choose


def test_what_cannot_pass_costs_no_evaluation_and_is_told() -> None:
    answers = [
        writes("as=1.3\nimport os\nos.system('x')"),
        writes("as=1.2"),  # as the translation
        writes("as=1.6\ndef broken(:"),
    ]
    policy = model(improve=lambda before, request: answers[before % 3] if before < 3 else rising(before, request))
    trajectory = run({**SMALL, "num_evaluated": 3}, policy)
    entries = archive_of(trajectory)
    assert [entry.stage for entry in entries[1:4]] == ["source", "duplicate", "malformed"]
    assert "candidate 0" in entries[2].rejected and len(trajectory.evaluations) == 4
    assert "Failed lately:" in policy.requests("improve")[3]


def test_every_member_of_an_ensemble_has_its_own_settings() -> None:
    agent = make_agent({"preset": "robust_kbench"})
    settings = policy_settings(agent, {"kind": "openai", "model": "m", "temperature": 0.3})
    assert [each["temperature"] for each in settings] == [0.0, 0.5, 0.75, 1.0]
    assert {each["kind"] for each in settings} == {"openai"} and isinstance(agent, Agent)
    other = make_agent({"kind": "evolve", "ensemble": [{}, {"kind": "scripted", "answers": []}]})
    assert policy_settings(other, {"kind": "openai", "model": "m"}) == [
        {"kind": "openai", "model": "m"}, {"kind": "scripted", "answers": []}
    ]  # fmt: skip
    assert policy_settings(make_agent({}), {"kind": "expert"}) == [{"kind": "expert"}]
    one, two = model(), model()
    trajectory = run({**SMALL, "generations": 4, "ensemble": [{}, {}]}, one, two)
    assert one.requests("improve") and two.requests("improve")
    assert {entry.member for entry in archive_of(trajectory)} == {0, 1} and len(trajectory.policy["ensemble"]) == 1


def test_the_presets_are_there_and_a_wrong_one_is_one_line() -> None:
    assert make_agent({"preset": "robust_kbench", "generations": 3}).describe()["generations"] == 3
    settings = make_agent({"preset": "robust_kbench"}).describe()
    assert (settings["generations"], settings["num_proposals"], settings["num_evaluated"]) == (10, 8, 4)
    assert (settings["context"], settings["context_size"], settings["translation_rounds"]) == (
        "slowest_to_fastest", 5, 10
    )  # fmt: skip
    assert make_agent({"preset": "bievolve_evolve"}).describe()["context"] == "recent_elite"
    with pytest.raises(UserError, match=r"agent\.preset: 'robust' is unknown; choose one of bievolve_evolve"):
        make_agent({"preset": "robust"})
    assert named_agent("evolve", {"kind": "iterative"}) == {"kind": "evolve"}
    assert named_agent("evolve", {"kind": "evolve", "generations": 2})["generations"] == 2
    assert named_agent("robust_kbench", {}) == {"preset": "robust_kbench"}


def archive_with(*scores: float) -> Archive:
    evaluator = CannedEvaluator()
    policy = model(
        translate=lambda before, request: writes(f"as={scores[0]}"),
        improve=lambda before, request: writes(f"as={scores[before + 1]}"),
    )
    settings = {**SMALL, "generations": len(scores) - 1, "num_proposals": 1, "num_evaluated": 1}
    trajectory = run(settings, policy, evaluator=evaluator)
    archive = Archive(trajectory)
    archive.entries = archive_of(trajectory)
    return archive


def test_contexts() -> None:
    archive = archive_with(1.5, 1.1, 1.9, 1.3, 1.7, 1.2)
    rng = random.Random(0)

    def ids(*args: Any, **kwargs: Any) -> list[int]:
        return [entry.id for entry in choose_context(archive, *args, rng, **kwargs)]

    assert ids("slowest_to_fastest", 3) == [0, 4, 2]
    assert ids("best", 3) == [2]
    assert ids("recent_elite", 4, num_recent=2) == [5, 0, 4, 2]
    assert ids("recent_elite", 1, num_recent=2) == [5, 4] and ids("recent_elite", 2, num_recent=0) == [4, 2]
    chosen = ids("random", 4)
    assert len(chosen) == 4 and [archive.score(archive.entries[i]) for i in chosen] == sorted(
        archive.score(archive.entries[i]) for i in chosen
    )
    assert ids("random", 10) == [1, 5, 3, 0, 4, 2]


def test_long_candidates_are_left_out_of_a_request_the_slowest_first() -> None:
    policy = model(improve=lambda before, request: writes(f"as={1.5 + before / 10}\n" + "# long\n" * 300))
    run({**SMALL, "generations": 3, "num_proposals": 1, "max_context_chars": 4000}, policy)
    last = policy.requests("improve")[-1]
    assert "## Candidate 2," in last and "## Candidate 1," not in last


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_turns": 4}, StopReason.TURN_LIMIT),
        ({"max_evaluations": 2}, StopReason.EVALUATION_LIMIT),
        ({"max_cost_usd": 0.03}, StopReason.COST_LIMIT),
        ({"max_total_tokens": 300}, StopReason.TOKEN_LIMIT),
    ],
)
def test_limits_end_a_search_and_the_best_is_still_evaluated_afresh(limits: dict[str, Any], reason: StopReason) -> None:
    trajectory = run(SMALL, model(), **limits)
    assert trajectory.stop_reason is reason and trajectory.final_verdict is not None
    if "max_evaluations" in limits:
        assert len(trajectory.evaluations) == 2
        assert [entry.stage for entry in archive_of(trajectory)] == ["", "", "budget", "ranked"]


def test_proposals_that_were_written_before_a_limit_are_still_judged() -> None:
    trajectory = run(SMALL, model(), max_turns=3)
    assert trajectory.stop_reason is StopReason.TURN_LIMIT and len(trajectory.evaluations) == 3
    spent = iter([None, None, None, StopReason.BUDGET_LIMIT])
    later = run(SMALL, model(), hooks=RolloutHooks(before_answer=lambda: next(spent)))
    assert later.stop_reason is StopReason.BUDGET_LIMIT and len(later.evaluations) == 1


def test_answers_that_write_nothing_end_the_attempt_as_a_conversation_would() -> None:
    policy = model(improve=lambda before, request: "I would rather not.")
    trajectory = run({**SMALL, "generations": 9}, policy, max_malformed_in_a_row=4)
    assert trajectory.stop_reason is StopReason.SUBMITTED and len(policy.requests("improve")) == 4
    unreadable = call_message(("file_editor", "{"))
    policy = model(improve=lambda before, request: unreadable)
    trajectory = run({**SMALL, "generations": 9}, policy, max_malformed_in_a_row=4)
    assert trajectory.stop_reason is StopReason.FORMAT_ERROR and len(policy.requests("improve")) == 4


def test_files_in_the_text_of_an_answer_are_taken_too() -> None:
    text = (
        "Here:\n### pass_dir/Mark.py\n```python\n# as=1.9\n```\n"
        '### `pass_dir/sorted_output_pass_rule_names.json`\n````json\n["Mark"]\n````\n'
    )
    policy = model(translate=lambda before, request: text)
    trajectory = run({**SMALL, "generations": 0}, policy)
    assert set(trajectory.evaluations[0].files) == {"Mark.py", "sorted_output_pass_rule_names.json"}


@pytest.mark.parametrize("stop_after", range(1, 8))
def test_an_interrupted_search_goes_on_with_what_is_recorded(stop_after: int) -> None:
    whole = run(SMALL, model())
    states: list[Trajectory] = []
    run(SMALL, model(), hooks=RolloutHooks(keep=lambda t: states.append(t.model_copy(deep=True))))
    earlier = next(state for state in states if state.num_turns == stop_after)
    policy, evaluator = model(), CannedEvaluator()
    offset = sum(entry.generation > 0 for entry in archive_of(whole)[:stop_after])
    policy.kinds = {**policy.kinds, "improve": lambda before, request: rising(before + offset, request)}
    again = run(SMALL, policy, earlier=earlier, evaluator=evaluator)
    assert len(policy.shown) == 7 - stop_after
    assert [m.content for m in again.messages] == [m.content for m in whole.messages]
    assert archive_of(again) == archive_of(whole) and again.stop_reason is StopReason.SUBMITTED
    known = len(earlier.evaluations)
    assert len(evaluator.submitted) == len(whole.evaluations) - known + 1  # and the final one
    assert again.usage.cost_usd == pytest.approx(whole.usage.cost_usd)


def test_the_messages_of_a_turn_can_be_shown_as_they_were_sent() -> None:
    policy = model()
    trajectory = run(SMALL, policy)
    for turn, (_, messages) in enumerate(policy.shown, start=1):
        assert messages_as_sent(trajectory, turn) == messages
        assert [message.role for message in messages] == ["system", "user"]
    assert refusal(trajectory, SelectionConfig()) == "a search, no conversation: dataset build --kind candidates"


def test_the_static_batch_invariance_gate_rejects_before_anything_runs() -> None:
    split = (
        "as=1.6\nimport torch\nimport triton\nimport triton.language as tl\n"
        "@triton.jit\ndef _kernel(x, out, rows, SPLIT: tl.constexpr):\n"
        "    acc = 0.0\n    for k in range(SPLIT):\n        acc += tl.load(x + k)\n    tl.store(out, acc)\n"
        "def go(x):\n    out = torch.empty_like(x)\n    split = 4 if x.shape[0] < 8 else 16\n"
        "    _kernel[(x.shape[0],)](x, out, x.shape[0], SPLIT=split)\n    return out\n"
    )
    policy = model(improve=lambda before, request: writes(split) if before == 0 else rising(before, request))
    protocol = load_protocol("reward", batch_invariance="enforce")
    enforced = run(SMALL, policy, setup=AttemptSetup(protocol))
    entry = archive_of(enforced)[1]
    assert entry.stage == "batch_invariance" and "split" in entry.rejected.lower()
    assert entry.rejected[:40] in policy.requests("improve")[1]
    vanilla = run(
        SMALL, model(improve=lambda before, request: writes(split) if before == 0 else rising(before, request))
    )
    assert archive_of(vanilla)[1].stage != "batch_invariance"
