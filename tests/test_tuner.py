"""The tuner: what it changes in a pass's text, and that it works through every agent by what it is shown."""

from __future__ import annotations

import ast
import random
import re
from concurrent.futures import Future
from typing import Any

import pytest

from data.passbench import load_tasks
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from tests.canned_evaluator import CannedEvaluator, canned_verdict
from trajectories.agents import make_agent
from trajectories.agents.archive import archive_of
from trajectories.agents.plan_tree import plans_of
from trajectories.limits import AgentLimits
from trajectories.policies import make_policy
from trajectories.policies.expert_pass import plan_pass
from trajectories.policies.tuner_sites import cross, families_of, find_sites, mutate, put
from trajectories.policy import PolicyError
from trajectories.record import Trajectory

TASKS = [task for task in load_tasks("mini") if plan_pass(task.graphs, "cuda").files][:8]


def own_files(task: Task, device: str) -> dict[str, str]:
    return {path: text for path, text in plan_pass(task.graphs, device).files.items() if text is not None}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_changes_leave_python_and_can_be_changed_again(device: str) -> None:
    rng = random.Random(1)
    for task in TASKS:
        first = files = own_files(task, device)
        if not files:
            continue
        assert put(files, {site.key: site.current for site in find_sites(files)}) == files
        for _ in range(8):
            changed = mutate(files, rng, num_changes=2)
            assert changed is not None and changed != files
            for path, text in changed.items():
                if path.endswith(".py"):
                    ast.parse(text)
            assert {site.key for site in find_sites(changed)} == {site.key for site in find_sites(first)}
            mixed = cross(first, changed, rng)
            places = {site.key: {site.current} for site in find_sites(first)}
            for site in find_sites(changed):
                places[site.key].add(site.current)
            # a loop's text holds its decorator, in which another place lies
            loose = [site for site in find_sites(mixed) if site.family != "threads"]
            assert all(site.current in places[site.key] for site in loose)
            files = changed


def test_each_family_changes_its_own_places() -> None:
    cuda, cpu = own_files(TASKS[0], "cuda"), own_files(TASKS[0], "cpu")
    assert set(families_of(cuda)) <= {"tile", "warps", "cache"} and "warps" in families_of(cuda)
    assert set(families_of(cpu)) <= {"threads", "maths"}
    text = {"a.py": "    num_warps = 4\n    BLOCK = 1024 if n >= 262144 else 256\n    ROWS = max(1, 1024 // BLOCK)\n"}
    only = mutate(text, random.Random(0), families=["warps"])
    assert only is not None and only["a.py"].splitlines()[1:] == text["a.py"].splitlines()[1:]
    assert re.search(r"num_warps = (1|2|8|16)$", only["a.py"], re.M)
    loop = {
        "a.py": '@numba.njit(error_model="numpy")\ndef f(a, out):\n    for i in range(a.size):\n        out[i] = a[i]\n'
    }
    parallel = mutate(loop, random.Random(0), families=["threads"])
    assert parallel is not None and "parallel=True)\ndef f(a, out):\n    for i in numba.prange(" in parallel["a.py"]
    assert mutate(parallel, random.Random(0), families=["threads"]) == loop
    helper = {"a.py": loop["a.py"].replace('"numpy")', '"numpy", forceinline=True)')}
    assert mutate(helper, random.Random(0), families=["threads"]) is None
    assert mutate({"a.py": "x = 1\n", "b.json": "[]"}, random.Random(0)) is None


class Landscape(CannedEvaluator):
    """Speed by the text alone: 8 warps and tiles of 2048 are best, each other choice costs its distance."""

    def submit(
        self, candidate: Candidate, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        text = "\n".join(candidate.files.values())
        found = re.findall(r"num_warps = (\d+)$", text, re.M)
        speed = 2.0 - 0.1 * sum(abs(int(number).bit_length() - 4) for number in found) if found else 1.2
        tiles = re.findall(r"(?:BLOCK = |max\(1, )(\d+)(?: //|$)", text, re.M)
        speed -= 0.1 * sum(abs(int(number).bit_length() - 12) for number in tiles) / max(len(tiles), 1)
        future: Future[Verdict] = Future()
        future.set_result(canned_verdict(f"# as={max(speed, 0.2):.4f}", task, protocol.name, candidate.candidate_hash))
        self.submitted.append((task.task_id, protocol.name, text))
        return future


def run(kind: str, task: Task, evaluations: int = 12, **config: Any) -> tuple[Trajectory, Landscape]:
    evaluator = Landscape(device="cuda")
    agent = make_agent({"kind": kind, **config})
    trajectory = agent.run(
        task, [make_policy({"kind": "tuner"})], evaluator, AgentLimits(max_evaluations=evaluations, max_turns=200),
        seed=4, attempt_index=0,
    )  # fmt: skip
    return trajectory, evaluator


@pytest.mark.parametrize("kind", ["iterative", "evolve", "ksearch"])
def test_it_gets_faster_through_every_agent_and_never_writes_the_same_twice(kind: str) -> None:
    for task in TASKS[:4]:
        trajectory, evaluator = run(kind, task)
        scores = [record.verdict.as_covered or 0.0 for record in trajectory.evaluations]
        assert len(scores) == 12 and max(scores) > scores[0]
        judged = [text for _, protocol, text in evaluator.submitted if protocol == "reward"]
        assert len(set(judged)) == len(judged)
        assert trajectory.evaluations[0].files == own_files(task, "cuda")
        again, _ = run(kind, task)
        assert [record.files for record in again.evaluations] == [record.files for record in trajectory.evaluations]


def test_evolve_builds_on_what_it_is_shown_and_ksearch_on_its_plans() -> None:
    evolved, _ = run("evolve", TASKS[0], 20)
    entries = archive_of(evolved)
    assert max(entry.generation for entry in entries) >= 3
    assert any(len(entry.parents) > 1 for entry in entries)
    planned, _ = run("ksearch", TASKS[0], 20)
    plans = plans_of(planned)
    assert plans[0].text.endswith("[plain]") and any(plan.parent is not None and plan.tries for plan in plans)


def test_a_task_that_the_expert_does_not_know_is_said_in_words() -> None:
    policy = make_policy({"kind": "tuner"})
    with pytest.raises(PolicyError, match="start"):
        policy.answer([], [])
    odd = next((task for task in load_tasks("passbench_lite:eval_classical") if not own_files(task, "cuda")), None)
    if odd is None:
        pytest.skip("the expert knows every task of this set")
    for kind in ("iterative", "evolve", "ksearch"):
        trajectory, _ = run(kind, odd)
        assert not trajectory.evaluations and trajectory.stop_reason is not None
