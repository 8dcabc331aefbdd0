"""GroupRunner: the groups of one step on one process: tasks from the pools, rollouts, rewards, dead groups run anew.

pools -> group_size attempts a task -> reward_of -> dead groups replaced by other tasks -> all ranks note all results

No trainer and no TRL: an engine comes in, scored groups and the figures of the step come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data.task import Task
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol
from training.credit import turn_advantages
from training.difficulty_pools import DifficultyPools, GroupResult
from training.generation import GenerationEngine
from training.grpo_config import GrpoRunConfig
from training.grpo_evaluator import sharing_repeats
from training.grpo_metrics import GrpoMetrics, merge_tallies
from training.lockstep import any_rank
from training.rewards import Reward, RolloutFacts, reward_of, turn_rewards
from training.rollouts import Rollout, RolloutHooks, RolloutRequest, RolloutTimes, run_rollouts
from training.template_drift import find_template_drift
from trajectories.collect_attempt import attempt_seed
from trajectories.environment import PassEnvironment
from trajectories.tools import TOOLS

if TYPE_CHECKING:
    from training.rollout_tokens import RolloutTokenizer
    from trajectories.store import TrajectoryStore

Gather = Callable[[list[Any]], list[Any]]
"""Lists of plain data of all processes, one after another; every process calls it."""


@dataclass(frozen=True)
class ScoredRollout:
    """One attempt with what it is worth."""

    rollout: Rollout
    facts: RolloutFacts
    reward: Reward


@dataclass(frozen=True)
class Group:
    """The attempts at one task that share a baseline."""

    members: list[ScoredRollout]
    result: GroupResult


@dataclass(frozen=True)
class StepGroups:
    """What one step's rollouts came to."""

    groups: list[Group]
    """Of this process, in the order in which they are trained on."""
    figures: dict[str, float]
    """Of all processes together."""
    rows: list[dict[str, Any]]
    """A line of rollouts.jsonl for each attempt of all processes, those of replaced groups too."""


class GroupRunner:
    """Makes groups for one process. All processes call `run` together."""

    def __init__(
        self,
        config: GrpoRunConfig,
        tasks: Mapping[str, Task],
        pools: DifficultyPools,
        *,
        evaluator: Evaluator,
        protocol: EvaluationProtocol,
        tokenizer: RolloutTokenizer,
        store: TrajectoryStore | None,
        gather: Gather,
        rank: int = 0,
        num_processes: int = 1,
        num_places: int | None = None,
    ) -> None:
        """tasks: those of the pools, by id. num_places: judges of the whole run, for the evaluator's utilisation."""
        self._config, self._tasks, self._pools = config, tasks, pools
        self._evaluator, self._protocol, self._tokenizer, self._store = evaluator, protocol, tokenizer, store
        self._gather, self._rank, self._num_processes, self._num_places = gather, rank, num_processes, num_places

    def run(self, engine: GenerationEngine, num_groups: int, *, step: int) -> StepGroups:
        """So many groups for this process, from the weights of `step`. Raises UserError (a full disk), HarnessError."""
        with sharing_repeats(self._evaluator, is_on=self._config.evaluator.share_repeats) as judged_by:
            return self._run(engine, judged_by, num_groups, step)

    def _run(self, engine: GenerationEngine, evaluator: Evaluator, num_groups: int, step: int) -> StepGroups:
        metrics = GrpoMetrics()
        stream = self._pools.stream(step=step, rank=self._rank, world_size=self._num_processes)
        names = [f"step{step:05d}.{self._rank}.{slot}" for slot in range(num_groups)]
        groups = self._run_groups(engine, evaluator, {name: next(stream) for name in names}, step, metrics)
        all_groups = list(groups)
        for lot in range(1, self._config.max_resamples + 1):
            dead = [slot for slot, group in enumerate(groups) if group.result.is_dead]
            if not (any_rank([bool(dead)], engine.process_group)[0] if engine.is_collective else dead):
                break
            wanted = {f"{names[slot]}.again{lot}": next(stream) for slot in dead}
            anew = self._run_groups(engine, evaluator, wanted, step, metrics)
            all_groups += anew
            for slot, group in zip(dead, anew, strict=True):
                metrics.add_group(groups[slot].result, is_resampled=True)
                groups[slot] = group
        for group in groups:
            metrics.add_group(group.result)
        self._check_template(groups, metrics)
        results: list[GroupResult] = self._gather([group.result for group in all_groups])
        self._pools.update(results)
        rows = self._gather([_row(step, member) for group in all_groups for member in group.members])
        figures = merge_tallies(self._gather([metrics.tally()]), num_judges=self._num_places)
        figures |= {f"pools/{name}": float(count) for name, count in self._pools.counts().items()}
        return StepGroups(groups, figures, rows)

    def _run_groups(
        self,
        engine: GenerationEngine,
        evaluator: Evaluator,
        wanted: Mapping[str, str],
        step: int,
        metrics: GrpoMetrics,
    ) -> list[Group]:
        """wanted: name of the group -> its task."""
        requests = [
            RolloutRequest(
                self._tasks[task_id],
                f"{name}.{index:02d}-{task_id}",
                name,
                index,
                attempt_seed(self._config.seed, name, index),
            )
            for name, task_id in wanted.items()
            for index in range(self._config.group_size)
        ]
        rollouts = run_rollouts(
            requests,
            engine,
            lambda request: self._environment(request, evaluator),
            self._config.rollout,
            tokenizer=self._tokenizer,
            store=self._store,
            hooks=RolloutHooks(timed=lambda times: _add_times(metrics, times)),
        )
        scored = [self._score(rollout, metrics) for rollout in rollouts]
        groups = []
        for position, task_id in enumerate(wanted.values()):
            members = scored[position * self._config.group_size : (position + 1) * self._config.group_size]
            rewards = tuple(member.reward.total for member in members)
            groups.append(Group(members, GroupResult(task_id, step, rewards)))
        return groups

    def _environment(self, request: RolloutRequest, evaluator: Evaluator) -> PassEnvironment:
        return PassEnvironment(
            request.task,
            evaluator,
            protocol=self._protocol,
            limits=self._config.limits,
            prompt=self._config.prompt,
        )

    def _score(self, rollout: Rollout, metrics: GrpoMetrics) -> ScoredRollout:
        facts = facts_of(rollout)
        reward = reward_of(facts, self._config.reward)
        metrics.add_rollout(facts, reward)
        return ScoredRollout(rollout, facts, reward)

    def _check_template(self, groups: Sequence[Group], metrics: GrpoMetrics) -> None:
        """One rollout a step: whether its ids still spell what the template writes."""
        longest = max((member.rollout for group in groups for member in group.members), key=_num_turns, default=None)
        if longest is None or not longest.tokens.turns:
            return
        drift = find_template_drift(
            longest.tokens,
            longest.trajectory.messages,
            TOOLS,
            self._tokenizer.tokenizer,
            chat_template=self._tokenizer.tokenizer.chat_template,
        )
        metrics.add_template_check(drift is not None)


def facts_of(rollout: Rollout) -> RolloutFacts:
    """What a reward is made from."""
    return RolloutFacts(
        verdicts=rollout.verdicts,
        num_turns=rollout.num_turns,
        num_malformed=rollout.num_malformed,
        num_completion_tokens=rollout.tokens.num_generated,
        infrastructure_failure=rollout.infrastructure_failure,
        stop_reason=rollout.stop_reason,
    )


def advantages_by_turn(group: Group, config: GrpoRunConfig) -> list[list[float]]:
    """For each member the advantage of each of its turns; [] where it has no reward or no turn."""
    rewards = [
        turn_rewards(member.facts, config.reward) if member.rollout.tokens.turns else None for member in group.members
    ]
    return turn_advantages(rewards, config.credit)


def _add_times(metrics: GrpoMetrics, times: RolloutTimes) -> None:
    metrics.add_seconds(
        rollout_s=times.wall_s,
        generation_s=times.generation_s,
        evaluation_s=times.evaluation_s,
        overlap_s=times.overlap_s,
        idle_s=times.idle_s,
    )


def _num_turns(rollout: Rollout) -> int:
    return rollout.num_turns


def _row(step: int, member: ScoredRollout) -> dict[str, Any]:
    rollout, reward = member.rollout, member.reward
    return {
        "step": step,
        "trajectory_id": rollout.request.key,
        "group": rollout.request.group,
        "task_id": rollout.request.task.task_id,
        "reward": reward.total,
        "parts": reward.parts,
        "is_floored": reward.is_floored,
        "stop_reason": str(rollout.stop_reason),
        "num_turns": rollout.num_turns,
        "num_evaluations": len(rollout.verdicts),
        "num_generated_tokens": rollout.tokens.num_generated,
        "generation_s": round(rollout.generation_s, 3),
        "evaluation_s": round(rollout.evaluation_s, 3),
        "error": rollout.trajectory.error,
    }
