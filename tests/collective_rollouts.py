"""One rank of test_rollouts_collective.py: rollouts in lock-step with another rank. Not a test.

Its engine meets the other rank's in every step, as a model with sharded weights does: a step that one rank takes alone
would never end.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from eval_harness.errors import HarnessError, UserError
from tests.canned_evaluator import CannedEvaluator
from tests.rollout_helpers import attempt, build_rollout_tokenizer, environments, requests, scripted
from training.generation import Generated, ScriptedEngine
from training.rollouts import RolloutLimits, run_rollouts
from trajectories.store import TrajectoryStore


class MeetingEngine(ScriptedEngine):
    """A collective engine."""

    num_calls = 0

    def step(self) -> list[Generated]:
        dist.all_reduce(torch.ones(1))
        self.num_calls += 1
        return super().step()


class FullStore(TrajectoryStore):
    def write(self, trajectory):
        raise UserError("no space left")


def run(rank: int, scripts, *, store=None, wall_limit_s: float = 60.0, delay_s: float = 0.02) -> dict:
    tokenizer = build_rollout_tokenizer()
    engine = MeetingEngine(scripted(tokenizer, scripts), is_collective=True, tokens_per_step=32)
    try:
        rollouts = run_rollouts(
            requests(list(scripts)),
            engine,
            environments(CannedEvaluator(delay_s=delay_s)),
            RolloutLimits(wall_limit_s=wall_limit_s),
            tokenizer=tokenizer,
            store=store,
        )
    except (HarnessError, UserError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "calls": engine.num_calls,
        "dummies": engine.num_dummy_steps,
        "turns": [rollout.num_turns for rollout in rollouts],
        "stops": [str(rollout.stop_reason) for rollout in rollouts],
    }


def main(rank: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=200)
    )
    long = {f"a{index}": attempt(*(f"as=1.{turn}" for turn in range(3 + index))) for index in range(3)}
    short = {"b": ["Done."]}
    results = {
        "uneven": run(rank, long if rank == 0 else short),
        "none at all on one": run(rank, {} if rank == 0 else short),
        "error": run(rank, long if rank == 0 else short, store=FullStore("unused") if rank == 1 else None),
        "after an error": run(rank, short),
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]), Path(sys.argv[1]))
