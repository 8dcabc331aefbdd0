"""DifficultyPools: which tasks the next groups are run on. Plain data; the same on every rank, and in the checkpoint.

A group teaches by the spread of its rewards. A task whose recent groups had some is *live*; without, it is *hard* or
*solved* by their mean; before its first group it is *fresh*. Each pool has its share of the draws, so that hard and
solved tasks are looked at again, seldom. A draw follows from seed, step and rank alone, given the same state.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eval_harness.errors import UserError

STATE_VERSION = 1


class Pool(StrEnum):
    """Where a task is."""

    FRESH = "fresh"
    LIVE = "live"
    HARD = "hard"
    SOLVED = "solved"


class PoolConfig(BaseModel):
    """How tasks are chosen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shares: dict[Pool, float] = {Pool.FRESH: 0.3, Pool.LIVE: 0.5, Pool.HARD: 0.15, Pool.SOLVED: 0.05}
    """Share of the draws by pool; an empty pool's goes to the others in proportion. Equal tasks: `uniform`."""
    uniform: bool = False
    """True: every task is as likely as any other, whatever its pool."""
    min_spread: float = Field(default=0.02, ge=0)
    """Standard deviation of a group's rewards from which it teaches; below, rewards differ by noise or by form only."""
    window: int = Field(default=2, ge=1)
    """Recent groups of a task that are looked at: one of them with spread keeps it live."""
    solved_reward: float = 0.9
    """Mean reward of groups without spread from which a task is solved and not hard."""

    @model_validator(mode="after")
    def _some_share_everywhere(self) -> PoolConfig:
        missing = [pool.value for pool in Pool if self.shares.get(pool, 0.0) <= 0]
        if missing:
            raise ValueError(f"shares: {', '.join(missing)} must be above 0, or its tasks would never be drawn again")
        return self


@dataclass(frozen=True)
class GroupResult:
    """The rewards of one group."""

    task_id: str
    step: int
    rewards: tuple[float | None, ...]
    """None: a failure of ours."""

    @property
    def scored(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    @property
    def is_dead(self) -> bool:
        """No signal: fewer than two rewards, or all of them equal."""
        return len(self.scored) < 2 or len(set(self.scored)) == 1

    @property
    def spread(self) -> float:
        """Standard deviation of the rewards there are (of the group itself, not an estimate); 0 for none."""
        if len(self.scored) < 2:
            return 0.0
        mean = self.mean
        return (sum((reward - mean) ** 2 for reward in self.scored) / len(self.scored)) ** 0.5

    @property
    def mean(self) -> float:
        """Of the rewards there are; 0 for none."""
        return sum(self.scored) / len(self.scored) if self.scored else 0.0


class DifficultyPools:
    """The tasks of a run and what their groups showed."""

    def __init__(self, task_ids: Sequence[str], config: PoolConfig | None = None, *, seed: int = 0) -> None:
        """Raises UserError for no tasks or a task named twice."""
        if not task_ids:
            raise UserError("tasks: no training tasks; name some under tasks")
        doubled = [task_id for task_id, count in Counter(task_ids).items() if count > 1]
        if doubled:
            raise UserError(f"tasks: {doubled[0]} is there twice; name each training task once")
        self.config = config or PoolConfig()
        self.seed = seed
        self._groups: dict[str, list[tuple[int, float, float]]] = {task_id: [] for task_id in task_ids}
        """Task -> its last groups as (step, mean, spread)."""
        self._num_groups: dict[str, int] = dict.fromkeys(task_ids, 0)

    def stream(self, *, step: int, rank: int = 0, world_size: int = 1) -> Iterator[str]:
        """Tasks for one rank's groups of one step, without end: the first ones, then those for resampled groups.

        No task comes twice, on this rank or another, before all tasks had their turn.
        """
        for position, task_id in enumerate(self._order(step)):
            if position % world_size == rank:
                yield task_id

    def draw(self, count: int, *, step: int, rank: int = 0, world_size: int = 1) -> list[str]:
        """The first tasks of the stream."""
        stream = self.stream(step=step, rank=rank, world_size=world_size)
        return [next(stream) for _ in range(count)]

    def update(self, results: Iterable[GroupResult]) -> None:
        """Note the groups of a step, of all ranks, in any order. Groups with fewer than two rewards say nothing."""
        ordered = sorted(results, key=lambda each: (each.step, each.task_id, each.mean, each.spread))
        for result in ordered:
            if result.task_id not in self._groups:
                raise KeyError(f"task {result.task_id} is none of this run's")
        for result in ordered:
            if len(result.scored) < 2:
                continue
            kept = [*self._groups[result.task_id], (result.step, result.mean, result.spread)]
            self._groups[result.task_id] = kept[-self.config.window :]
            self._num_groups[result.task_id] += 1

    def pool_of(self, task_id: str) -> Pool:
        groups = self._groups[task_id]
        if not groups:
            return Pool.FRESH
        if any(spread >= self.config.min_spread for _, _, spread in groups):
            return Pool.LIVE
        mean = sum(mean for _, mean, _ in groups) / len(groups)
        return Pool.SOLVED if mean >= self.config.solved_reward else Pool.HARD

    def counts(self) -> dict[str, int]:
        """Tasks by pool, every pool named."""
        counts = {pool.value: 0 for pool in Pool}
        for task_id in self._groups:
            counts[self.pool_of(task_id).value] += 1
        return counts

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON: what load_state_dict takes."""
        tasks = {
            task_id: {"num_groups": self._num_groups[task_id], "groups": [list(group) for group in groups]}
            for task_id, groups in self._groups.items()
            if groups
        }
        return {"version": STATE_VERSION, "seed": self.seed, "tasks": tasks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. Raises UserError for another version, seed or set of tasks; then nothing changes."""
        if state.get("version") != STATE_VERSION:
            raise UserError(
                f"pools of the checkpoint: version {state.get('version')}, this program reads {STATE_VERSION}"
            )
        if state["seed"] != self.seed:
            raise UserError(f"pools of the checkpoint: seed {state['seed']}, this run has {self.seed}; set it back")
        unknown = sorted(set(state["tasks"]) - set(self._groups))
        if unknown:
            raise UserError(f"pools of the checkpoint: task {unknown[0]} is none of this run's; resume with its tasks")
        for task_id in self._groups:
            saved = state["tasks"].get(task_id, {"num_groups": 0, "groups": []})
            self._num_groups[task_id] = int(saved["num_groups"])
            groups = [(int(step), float(mean), float(spread)) for step, mean, spread in saved["groups"]]
            self._groups[task_id] = groups[-self.config.window :]

    def _order(self, step: int) -> Iterator[str]:
        """All tasks in this step's order, then again in another, without end."""
        generator = random.Random(f"{self.seed}/{step}")  # a text is hashed the same way in every process
        while True:
            pools: dict[Pool, list[str]] = {pool: [] for pool in Pool}
            for task_id in sorted(self._groups):
                pools[Pool.LIVE if self.config.uniform else self.pool_of(task_id)].append(task_id)
            for tasks in pools.values():
                generator.shuffle(tasks)
            while filled := [pool for pool in Pool if pools[pool]]:
                (chosen,) = generator.choices(filled, weights=[self.config.shares[pool] for pool in filled])
                yield pools[chosen].pop()
