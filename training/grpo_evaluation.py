"""The student as it stands, on held-out tasks (and on some it trains on): the same environment before the same judge.

Tasks are dealt to the processes; each attempt's best pass gets one fresh evaluation, whose score is the figure. An
attempt that never submitted a pass counts as NO_MATCH; one that we failed counts as nothing and is counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.executor import Evaluator
from eval_harness.presets import load_protocol
from eval_harness.report_row import unsubmitted_verdict
from eval_harness.summary import summarize
from eval_harness.verdict import Verdict
from training.generation import GenerationEngine
from training.grpo_config import GrpoRunConfig
from training.grpo_evaluator import sharing_repeats
from training.grpo_groups import Gather, facts_of
from training.rewards import reward_of
from training.rollouts import Rollout, RolloutRequest, run_rollouts
from trajectories.collect_attempt import attempt_seed
from trajectories.environment import AttemptCancelledError, PassEnvironment, evaluate_with_retries

if TYPE_CHECKING:
    from training.rollout_tokens import RolloutTokenizer
    from trajectories.store import TrajectoryStore

logger = logging.getLogger(__name__)

HELD_OUT, TRAIN_TASKS = "held_out", "train_tasks"


class StudentCheck:
    """Evaluates the student on sets of tasks. All processes call `run` together."""

    def __init__(
        self,
        config: GrpoRunConfig,
        sets: Mapping[str, Sequence[Task]],
        *,
        evaluator: Evaluator,
        tokenizer: RolloutTokenizer,
        store: TrajectoryStore | None,
        gather: Gather,
        rank: int = 0,
        num_processes: int = 1,
    ) -> None:
        """sets: name -> tasks; empty ones are left out."""
        self._config, self._sets = config, {name: tasks for name, tasks in sets.items() if tasks}
        self._evaluator, self._tokenizer, self._store = evaluator, tokenizer, store
        self._gather, self._rank, self._num_processes = gather, rank, num_processes

    @property
    def is_empty(self) -> bool:
        return not self._sets

    def run(self, engine: GenerationEngine, *, step: int) -> dict[str, float]:
        """Figures by set, the same on every process: `held_out/as_covered` and so on."""
        started = time.monotonic()
        requests = [
            RolloutRequest(
                task,
                f"step{step:05d}.{name}.{index}-{task.task_id}",
                name,
                index,
                attempt_seed(self._config.seed, f"{name} {task.task_id}", index),
            )
            for name, tasks in self._sets.items()
            for task in tasks
            for index in range(self._config.evaluation.num_attempts)
        ]
        mine = requests[self._rank :: self._num_processes]
        with sharing_repeats(self._evaluator, is_on=self._config.evaluator.share_repeats) as judged_by:
            rollouts = run_rollouts(
                mine,
                engine,
                lambda request: self._environment(request, judged_by),
                self._config.rollout,
                tokenizer=self._tokenizer,
                store=self._store,
            )
        with ThreadPoolExecutor(max_workers=max(1, min(len(rollouts), self._config.rollout.num_threads))) as threads:
            rows = self._gather(list(threads.map(self._row, rollouts)))
        figures: dict[str, float] = {}
        for name in self._sets:
            figures |= _figures(name, [row for row in rows if row["set"] == name])
        return figures | {"seconds/check": time.monotonic() - started}

    def _environment(self, request: RolloutRequest, evaluator: Evaluator) -> PassEnvironment:
        config = self._config
        return PassEnvironment(
            request.task,
            evaluator,
            protocol=config.evaluator.load_protocol(),
            limits=config.limits,
            prompt=config.prompt,
        )

    def _row(self, rollout: Rollout) -> dict[str, Any]:
        """Plain data of one attempt."""
        verdict = None if rollout.infrastructure_failure else self._final_verdict(rollout)
        return {
            "set": rollout.request.group,
            "reward": reward_of(facts_of(rollout), self._config.reward).total,
            "verdict": verdict and verdict.model_dump(mode="json"),
            "is_submitted": bool(rollout.verdicts),
            "num_turns": rollout.num_turns,
        }

    def _final_verdict(self, rollout: Rollout) -> Verdict | None:
        """The verdict that counts; None: we failed, or it came back unstable."""
        settings, trajectory = self._config.evaluation, rollout.trajectory
        name = settings.final_protocol or self._config.evaluator.protocol
        best = trajectory.best_evaluation
        if best is None:
            if any(not verdict.complete for _, verdict in rollout.verdicts):
                return None
            return unsubmitted_verdict(rollout.request.task, protocol=name, device=self._evaluator.device)
        if settings.final_protocol is None:
            return trajectory.evaluations[best].verdict
        limit_s = self._config.rollout.wall_limit_s
        deadline = None if limit_s is None else time.monotonic() + limit_s
        try:
            verdict = evaluate_with_retries(
                self._evaluator,
                Candidate(trajectory.evaluations[best].files),
                rollout.request.task,
                protocol=load_protocol(name, **settings.final_protocol_overrides),
                max_retries=self._config.limits.max_harness_retries,
                cancelled=lambda: deadline is not None and time.monotonic() > deadline,
                is_fresh=True,
            )
        except (HarnessError, AttemptCancelledError) as error:
            logger.warning("%s: no final verdict (%s)", rollout.request.key, error or "no answer in time")
            return None
        trajectory.final_verdict = verdict
        if self._store is not None:
            self._store.write(trajectory)
        return verdict if verdict.complete else None


def _figures(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    verdicts = [Verdict.model_validate(row["verdict"]) for row in rows if row["verdict"] is not None]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    figures: dict[str, float] = {
        f"{name}/num_attempts": float(len(rows)),
        f"{name}/num_unknown": float(len(rows) - len(verdicts)),
    }
    if rows:
        figures[f"{name}/evaluated_share"] = sum(row["is_submitted"] for row in rows) / len(rows)
        figures[f"{name}/turns"] = sum(row["num_turns"] for row in rows) / len(rows)
    if rewards:
        figures[f"{name}/reward"] = sum(rewards) / len(rewards)
    if verdicts:
        summary = summarize(verdicts)
        found = {
            "as": summary.as_score,
            "as_covered": summary.as_covered,
            "solved_share": summary.sample_success,
            "correct_share": summary.subgraph_success,
            "g_mean": summary.g_mean,
            "coverage": summary.mean_coverage,
            "violating_share": summary.num_violating_tasks / len(verdicts),
        }
        figures |= {f"{name}/{key}": float(value) for key, value in found.items() if value is not None}
    return figures
