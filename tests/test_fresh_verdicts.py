"""The number that leaves an attempt comes from one fresh strict evaluation; by how much it falls short is recorded."""

from __future__ import annotations

import pytest

from eval_harness.cached_evaluator import CachedEvaluator
from eval_harness.verdict_cache import VerdictCache
from tests.canned_evaluator import CannedEvaluator, canned_verdict, make_task, pass_files
from trajectories.environment import PassEnvironment
from trajectories.policies.scripted import ScriptedPolicy, call_message
from trajectories.record import Message
from trajectories.rollout import run_rollout
from trajectories.selection import SelectionConfig, select_trajectories


class Recording(CannedEvaluator):
    """Keeps protocol and seed of every request."""

    def __init__(self):
        super().__init__()
        self.seeds = []

    def submit(self, candidate, task, *, protocol, seed=None):
        self.seeds.append((protocol.name, seed))
        return super().submit(candidate, task, protocol=protocol, seed=seed)


def attempt(evaluator, mark="as=2.0"):
    answers = [
        call_message(("file_editor", {"command": "create", "path": f"pass_dir/{path}", "file_text": text}))
        for path, text in pass_files(mark).items()
    ]
    answers += [call_message(("pass_evaluator", {})), Message(role="assistant", content="Done.")]
    return run_rollout(ScriptedPolicy(answers), PassEnvironment(make_task("t"), evaluator))


def test_the_final_evaluation_has_a_secret_seed_of_its_own():
    evaluator = Recording()
    attempt(evaluator)
    attempt(evaluator)
    assert [seed for protocol, seed in evaluator.seeds if protocol == "reward"] == [None, None]
    final = [seed for protocol, seed in evaluator.seeds if protocol == "strict"]
    assert len(set(final)) == 2 and None not in final


def test_a_cache_serves_feedback_and_never_the_final_verdict(tmp_path):
    evaluator = Recording()
    cached = CachedEvaluator(evaluator, VerdictCache(tmp_path), machine={})
    first, second = attempt(cached), attempt(cached)
    assert [protocol for protocol, _ in evaluator.seeds] == ["reward", "strict", "strict"]
    assert second.evaluations[0].verdict.from_cache and not second.final_verdict.from_cache
    assert first.final_verdict == second.final_verdict


def test_the_shrinkage_is_final_over_shown():
    trajectory = attempt(CannedEvaluator())
    assert trajectory.shrinkage == trajectory.shrinkage_covered == 1.0
    trajectory.final_verdict = canned_verdict("# as=1.5 # covered=0.5", make_task("t"))
    assert trajectory.shrinkage == 0.75 and trajectory.shrinkage_covered == 0.25
    trajectory.final_verdict = canned_verdict("# unstable", make_task("t"))
    assert trajectory.shrinkage is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"from_cache": True}, "not a fresh evaluation"),
        ({"disabled_layers": ["source"]}, r"integrity layers switched off (source)"),
        ({"seeds": {"master": 7}}, "not a fresh evaluation"),
    ],
)
def test_selection_takes_fresh_verdicts_of_all_layers_only(change, reason):
    trajectory = attempt(CannedEvaluator())
    trajectory.evaluations[0].verdict.seeds = {"master": 7}
    trajectory.final_verdict = trajectory.final_verdict.model_copy(update={"seeds": {"master": 8}} | change)
    (refused,) = select_trajectories([trajectory], SelectionConfig()).refused
    assert reason in refused
    if "disabled_layers" in change:
        assert select_trajectories([trajectory], SelectionConfig(preset="paper")).refused
