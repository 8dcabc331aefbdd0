"""Whose failure it was: unclear kills are tried again, eager alone is the control. The processes here are stand-ins;
real ones are in test_faults.py and test_faults_gpu.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eval_harness.errors import JudgeError, ReferenceFailedError
from eval_harness.judge import blame
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.workers import WorkerFailure
from eval_harness.verdict import Outcome
from tests.helpers import add_relu_mul

GRAPH = add_relu_mul()


class Stages:
    """Fails as told, once a call; then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """eager_alone: what eager does once the candidate is gone; None: it works."""
    bench = SimpleNamespace(trace=lambda graph: None)
    made = SimpleNamespace(is_baseline=False, dropped=0, eager_alone=None, bench=bench)

    def drop_candidate() -> None:
        made.dropped += 1

    def load_eager(*_: object) -> None:
        assert made.dropped, "the control needs the candidate gone"
        if made.eager_alone is not None:
            raise made.eager_alone

    made.drop_candidate = drop_candidate
    monkeypatch.setattr(blame, "load_eager", load_eager)
    monkeypatch.setattr(blame, "reference_metas", lambda *_: None)
    return made


def killed() -> GraphFailure:
    return GraphFailure.of_worker(WorkerFailure("killed", "the process was ended by SIGKILL"), "running")


def eager_fails(kind: str) -> ReferenceFailedError:
    return ReferenceFailedError(f"the graph fails in eager ({kind})", kind)


def test_a_plain_failure_is_not_tried_again(session: Any) -> None:
    stages = Stages(GraphFailure(Outcome.RUNTIME_ERROR, "ValueError"))
    with pytest.raises(GraphFailure, match="ValueError"):
        blame.run_fairly(session, GRAPH, stages)
    assert stages.calls == 1


def test_one_kill_that_was_not_ours_is_forgiven_and_the_second_counts(session: Any) -> None:
    once = Stages(killed())
    blame.run_fairly(session, GRAPH, once)
    assert once.calls == 2 and session.dropped == 1
    with pytest.raises(GraphFailure, match="SIGKILL") as raised:
        blame.run_fairly(session, GRAPH, Stages(killed(), killed()))
    assert raised.value.outcome is Outcome.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("oom", Outcome.OUT_OF_MEMORY), ("timeout", Outcome.TIMEOUT), ("runtime", Outcome.RUNTIME_ERROR)],
)
def test_eager_that_fails_only_beside_the_candidate_is_its_fault(session: Any, kind: str, outcome: Outcome) -> None:
    blame.run_fairly(session, GRAPH, Stages(eager_fails(kind)))
    with pytest.raises(GraphFailure, match="works alone") as raised:
        blame.run_fairly(session, GRAPH, Stages(eager_fails(kind), eager_fails(kind)))
    assert raised.value.outcome is outcome


def test_eager_that_fails_alone_is_nobodys_score(session: Any) -> None:
    session.eager_alone = eager_fails("oom")
    stages = Stages(eager_fails("oom"))
    with pytest.raises(ReferenceFailedError):
        blame.run_fairly(session, GRAPH, stages)
    assert stages.calls == 1


def test_a_failure_that_is_no_workers_is_the_tasks(session: Any) -> None:
    with pytest.raises(ReferenceFailedError, match="not a tensor"):
        blame.run_fairly(session, GRAPH, Stages(ReferenceFailedError("output 0 is not a tensor")))
    assert session.dropped == 0


def test_a_reference_that_is_killed_twice_is_ours(session: Any) -> None:
    with pytest.raises(JudgeError, match="killed twice"):
        blame.run_fairly(session, GRAPH, Stages(eager_fails("killed"), eager_fails("killed")))


def test_failures_between_the_stages_requests_go_to_the_side_that_failed(session: Any) -> None:
    with pytest.raises(GraphFailure):
        blame.run_fairly(session, GRAPH, Stages(WorkerFailure("died", "gone", "candidate")))
    session.eager_alone = eager_fails("died")
    with pytest.raises(ReferenceFailedError):
        blame.run_fairly(session, GRAPH, Stages(WorkerFailure("died", "gone", "reference")))
