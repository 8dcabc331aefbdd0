"""run_rollouts with scripted students and a canned evaluator: what reaches the trainer, and what ends an attempt."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from eval_harness.errors import HarnessError, UserError
from tests.canned_evaluator import CannedEvaluator
from tests.rollout_helpers import (
    EVALUATE,
    answer_ids,
    attempt,
    build_rollout_tokenizer,
    create,
    environments,
    requests,
    scripted,
)
from training.chat_tokens import tokenize_conversation
from training.generation import Generated, ScriptedEngine
from training.rollout_records import measure_times
from training.rollouts import RolloutHooks, RolloutLimits, run_rollouts
from trajectories.policies.scripted import call_message
from trajectories.record import StopReason
from trajectories.store import TrajectoryStore
from trajectories.tools import TOOLS


@pytest.fixture(scope="module")
def tokenizer():
    return build_rollout_tokenizer()


def _run(tokenizer, scripts, *, evaluator=None, limits=None, engine=None, hooks=None, store=None, **agent_limits):
    engine = engine or ScriptedEngine(scripted(tokenizer, scripts))
    rollouts = run_rollouts(
        requests(list(scripts)),
        engine,
        environments(evaluator or CannedEvaluator(), **agent_limits),
        limits,
        tokenizer=tokenizer,
        hooks=hooks,
        store=store,
    )
    for rollout in rollouts:
        tokens = rollout.tokens
        assert len(tokens.completion_ids) == len(tokens.env_mask) == len(tokens.logprobs)
        assert sum(tokens.env_mask) == tokens.num_generated == sum(end - start for start, end in tokens.turns)
        assert len(tokens.turns) == rollout.num_turns
        assert tokens.completion_ids == [] or tokens.turns[-1][1] == len(tokens.completion_ids)
    return rollouts


def test_uneven_turns_give_each_its_own_tokens_trajectory_and_verdicts(tokenizer, tmp_path):
    store = TrajectoryStore(tmp_path / "rollouts")
    store.open_for_writing({"run": 1})
    scripts = {
        "a": [*attempt("as=1.5", "as=1.2", "wrong"), "Done."],
        "b": ["I give up."],
        "c": [*attempt("violation"), "Done."],
    }
    finished = []
    hooks = RolloutHooks(finished=lambda rollout: finished.append(rollout.request.key))
    engine = ScriptedEngine(scripted(tokenizer, scripts), tokens_per_step=8)
    a, b, c = _run(tokenizer, scripts, engine=engine, hooks=hooks, store=store)
    assert [rollout.request.key for rollout in (a, b, c)] == ["a", "b", "c"] and sorted(finished) == ["a", "b", "c"]
    assert [rollout.num_turns for rollout in (a, b, c)] == [4, 1, 2]
    assert [rollout.stop_reason for rollout in (a, b, c)] == [StopReason.SUBMITTED] * 3
    assert not any(rollout.infrastructure_failure for rollout in (a, b, c))
    assert [(turn, verdict.as_score) for turn, verdict in a.verdicts] == [(1, 1.5), (2, 1.2), (3, 0.147207)]
    assert {turn: str(v.graphs[0].outcome) for turn, v in c.verdict_by_turn.items()} == {1: "VIOLATION"}
    assert b.verdicts == []
    for rollout in (a, b, c):
        stored = store.load(rollout.request.key)
        assert stored == rollout.trajectory and stored.stop_reason is StopReason.SUBMITTED
        assert stored.policy == {"kind": "scripted"} and stored.agent_state["group"] == "group"
        # what was generated token by token is the conversation as training would render it
        messages = [message.to_openai() for message in stored.messages]
        whole = tokenize_conversation(tokenizer.tokenizer, messages, TOOLS)
        ids = rollout.tokens.next_prompt()
        assert whole.input_ids[: len(ids)] == ids
        assert whole.loss_mask[len(rollout.tokens.prompt_ids) : len(ids)] == rollout.tokens.env_mask
        assert stored.usage.output_tokens == rollout.tokens.num_generated
    assert a.trajectory.best_evaluation == 0 and a.trajectory.prompt_version
    # each turn was asked with all that came before, unchanged
    asked = [list(request.prompt_ids) for request in engine.requests if request.key == "a"]
    first = len(a.tokens.prompt_ids)
    assert [len(prompt) for prompt in asked] == [first + start for start, _ in a.tokens.turns]
    assert all(a.tokens.next_prompt()[: len(prompt)] == prompt for prompt in asked)
    assert len({request.seed for request in engine.requests}) == len(engine.requests)
    end = tokenizer.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert {request.stop_token_ids for request in engine.requests} == {(end,)}


def test_a_cut_answer_is_told_and_its_end_is_not_trained(tokenizer):
    long = "word " * 200
    (rollout,) = _run(tokenizer, {"a": [long, "Done."]}, limits=RolloutLimits(max_new_tokens=50))
    (first, second), tokens = rollout.tokens.turns, rollout.tokens
    assert first == (0, 50) and rollout.trajectory.messages[2].finish_reason == "length"
    assert "cut off" in rollout.trajectory.messages[3].content
    after = tokenizer.tokenizer.decode(tokens.completion_ids[50 : second[0]])
    assert after.startswith("<|im_end|>\n<|im_start|>user\nYour answer was cut off")
    assert set(tokens.env_mask[50 : second[0]]) == {0} and set(tokens.env_mask[second[0] :]) == {1}


def test_the_completion_never_exceeds_its_budget(tokenizer):
    script = attempt(*(f"as=1.{index}" for index in range(9)))
    whole = _run(tokenizer, {"a": script})[0]
    needed = len(whole.tokens.completion_ids)
    assert whole.stop_reason is StopReason.SUBMITTED
    for budget in (1, 40, needed // 3, needed // 2, needed - 1, needed):
        limits = RolloutLimits(max_completion_tokens=budget, min_new_tokens=1)
        rollout = _run(tokenizer, {"a": script}, limits=limits)[0]
        assert len(rollout.tokens.completion_ids) <= budget
        assert rollout.tokens.completion_ids == whole.tokens.completion_ids[: len(rollout.tokens.completion_ids)]
        assert not rollout.infrastructure_failure
        if budget < needed:
            assert rollout.stop_reason is StopReason.CONTEXT_LIMIT
        # a whole answer within the budget is executed, though no further one fits
        num_whole = sum(end <= budget for _, end in whole.tokens.turns[: len(script)])
        assert len(rollout.verdicts) == num_whole


def test_the_engines_length_limits_too(tokenizer):
    script = {"a": attempt(*(f"as=1.{index}" for index in range(9)))}
    prompt = len(_run(tokenizer, script)[0].tokens.prompt_ids)
    engine = ScriptedEngine(scripted(tokenizer, script), max_model_len=prompt + 700)
    rollout = _run(tokenizer, script, engine=engine)[0]
    assert rollout.stop_reason is StopReason.CONTEXT_LIMIT and 1 < rollout.num_turns < 9
    assert all(len(request.prompt_ids) + request.max_new_tokens <= prompt + 700 for request in engine.requests)
    assert all(request.max_new_tokens >= 64 for request in engine.requests)


def test_a_prompt_that_does_not_fit_is_our_failure(tokenizer):
    engine = ScriptedEngine(scripted(tokenizer, {"a": []}), max_model_len=100)
    (rollout,) = _run(tokenizer, {"a": []}, engine=engine)
    assert rollout.infrastructure_failure and rollout.stop_reason is StopReason.CONTEXT_LIMIT
    assert "takes 100" in rollout.trajectory.error and engine.requests == [] and rollout.tokens.completion_ids == []


def test_malformed_calls_are_answered_and_end_the_attempt_after_the_limit(tokenizer):
    broken = '<tool_call>\n{"name": "file_editor", "arguments": {oops}}\n</tool_call>'
    scripts = {"a": [broken, *attempt("as=1.5")], "b": [broken] * 9}
    mended, stubborn = _run(tokenizer, scripts, max_malformed_in_a_row=3)
    assert (mended.stop_reason, mended.num_malformed) == (StopReason.SUBMITTED, 1) and len(mended.verdicts) == 1
    assert "malformed call" in mended.trajectory.messages[3].content
    assert (stubborn.stop_reason, stubborn.num_malformed) == (StopReason.FORMAT_ERROR, 3)
    assert stubborn.num_turns == 3 and not stubborn.infrastructure_failure


def test_an_evaluation_that_fails_by_our_fault_ends_one_rollout_and_no_other(tokenizer):
    scripts = {"a": attempt("as=1.5", "harness-error"), "b": attempt("as=1.5", "unstable")}
    failed, unstable = _run(tokenizer, scripts)
    assert failed.infrastructure_failure and failed.stop_reason is StopReason.HARNESS_ERROR
    assert failed.trajectory.error == "JudgeError: the judge died"
    assert failed.num_turns == 2 and [verdict.as_score for _, verdict in failed.verdicts] == [1.5]
    assert not unstable.infrastructure_failure and [v.complete for _, v in unstable.verdicts] == [True, False]


def test_an_engine_that_fails_on_one_request_ends_one_rollout(tokenizer):
    class Failing(ScriptedEngine):
        def step(self):
            return [Generated(g.key, [], [], "error", "HTTP 500") if g.key == "a" else g for g in super().step()]

    scripts = {"a": attempt("as=1.5"), "b": attempt("as=1.5")}
    failed, fine = _run(tokenizer, scripts, engine=Failing(scripted(tokenizer, scripts)))
    assert failed.infrastructure_failure and failed.stop_reason is StopReason.POLICY_ERROR
    assert failed.trajectory.error == "HTTP 500" and failed.tokens.completion_ids == []
    assert fine.stop_reason is StopReason.SUBMITTED


def test_single_turn_writes_all_files_at_once_and_is_judged_unasked(tokenizer):
    rules = create('["Fuse"]', "pass_dir/sorted_output_pass_rule_names.json")
    scripts = {
        "asks": [call_message(rules, create("# as=1.5\n"), EVALUATE)],
        "forgets": [call_message(rules, create("# as=1.4\n"))],
        "nothing": ["I cannot."],
    }
    evaluator = CannedEvaluator()
    asks, forgets, nothing = _run(
        tokenizer, scripts, evaluator=evaluator, limits=RolloutLimits(evaluate_at_end=True), max_turns=1
    )
    assert [verdict.as_score for _, verdict in asks.verdicts] == [1.5]
    assert [(turn, verdict.as_score) for turn, verdict in forgets.verdicts] == [(1, 1.4)]
    assert nothing.verdicts == [] and len(evaluator.submitted) == 2
    assert asks.stop_reason is forgets.stop_reason is StopReason.TURN_LIMIT


class _HangingEvaluator:
    """Never answers; its futures can be cancelled."""

    device = "cpu"

    def __init__(self) -> None:
        self.futures: list[Future] = []

    def submit(self, candidate, task, *, protocol, seed=None):
        self.futures.append(Future())
        return self.futures[-1]

    def close(self) -> None:
        pass


def test_a_hanging_evaluator_is_bounded_by_the_wall_limit(tokenizer):
    scripts = {"waits": attempt("as=1.5"), "slow": ["word " * 2000], "done": ["Done."]}
    engine = ScriptedEngine(scripted(tokenizer, scripts), tokens_per_step=1, step_s=0.001)
    evaluator = _HangingEvaluator()
    began = time.monotonic()
    waits, slow, done = _run(
        tokenizer, scripts, engine=engine, evaluator=evaluator, limits=RolloutLimits(wall_limit_s=1.0)
    )
    assert time.monotonic() - began < 30
    assert waits.infrastructure_failure and waits.stop_reason is StopReason.HARNESS_ERROR
    assert "wall_limit_s" in waits.trajectory.error and waits.num_turns == 1
    assert slow.stop_reason is StopReason.TIME_LIMIT and not slow.infrastructure_failure
    assert done.stop_reason is StopReason.SUBMITTED
    assert all(future.cancelled() for future in evaluator.futures)


def test_a_run_that_is_stopped_keeps_what_was_done(tokenizer):
    stopped = threading.Event()
    scripts = {"a": ["Done."], "b": ["word " * 5000]}
    engine = ScriptedEngine(scripted(tokenizer, scripts), tokens_per_step=8, step_s=0.001)
    hooks = RolloutHooks(finished=lambda rollout: stopped.set(), cancelled=stopped.is_set)
    a, b = _run(tokenizer, scripts, engine=engine, hooks=hooks)
    assert a.stop_reason is StopReason.SUBMITTED and not a.infrastructure_failure
    assert b.infrastructure_failure and "stopped" in b.trajectory.error


def test_a_full_disk_ends_all_with_its_error(tokenizer):
    class FullStore(TrajectoryStore):
        def write(self, trajectory):
            raise UserError("no space left")

    scripts = {"a": ["Done."], "b": attempt("as=1.5")}
    with pytest.raises(UserError, match="no space left"):
        _run(tokenizer, scripts, store=FullStore("unused"))


def test_evaluations_run_in_parallel_and_while_others_generate(tokenizer):
    """Eight rollouts of two turns; 0.3 s an evaluation, eight at a time; generation of about 0.8 s beside it."""

    class Parallel(CannedEvaluator):
        def submit(self, candidate, task, *, protocol, seed=None):
            return CannedEvaluator(delay_s=0.3).submit(candidate, task, protocol=protocol, seed=seed)

    keys = [f"k{index}" for index in range(8)]
    scripts = {key: attempt(f"as=1.{index}", f"as=1.{index}5") for index, key in enumerate(keys)}
    times = []
    engine = ScriptedEngine(scripted(tokenizer, scripts), tokens_per_step=4, step_s=0.004, max_rows=3)
    _run(tokenizer, scripts, engine=engine, evaluator=Parallel(), hooks=RolloutHooks(timed=times.append))
    (time_spent,) = times
    assert time_spent.wall_s < 16 * 0.3  # what the evaluations alone take one after another
    assert time_spent.overlap_s > 0.2 * min(time_spent.generation_s, time_spent.evaluation_s)
    total = time_spent.generation_s + time_spent.evaluation_s - time_spent.overlap_s + time_spent.idle_s
    assert total == pytest.approx(time_spent.wall_s)


def test_times_count_each_moment_once():
    times = measure_times(0.0, 10.0, [(1, 3), (2, 4), (8, 9)], [(3, 6), (3.5, 8.5)])
    assert (times.wall_s, times.generation_s, times.evaluation_s) == (10.0, 4.0, 5.5)
    assert (times.overlap_s, times.idle_s) == (1.5, 2.0)


def test_keys_must_differ_and_errors_of_ours_go_through(tokenizer):
    engine = ScriptedEngine(scripted(tokenizer, {"a": []}))
    with pytest.raises(ValueError, match="one key"):
        run_rollouts(requests(["a", "a"]), engine, environments(CannedEvaluator()), tokenizer=tokenizer)

    def broken(request):
        raise HarnessError("no workspace")

    with pytest.raises(HarnessError, match="no workspace"):
        run_rollouts(requests(["a"]), engine, broken, tokenizer=tokenizer)


def test_answer_ids_end_the_turn(tokenizer):
    assert answer_ids(tokenizer, "x")[-1:] == tokenizer.end_of_turn_ids
