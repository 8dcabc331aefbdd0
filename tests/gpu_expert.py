"""Runs the built-in expert on every task of `mini`: `python -m tests.gpu_expert [device] [seconds]`. Not a test."""

from __future__ import annotations

import sys
import time

from data.passbench import load_tasks
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from trajectories.environment import PassEnvironment
from trajectories.policies import make_policy
from trajectories.rollout import run_rollout


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    deadline = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 1e9)
    num_tasks = num_correct = 0
    with LocalExecutor(device) as executor:
        for task in load_tasks("mini"):
            if time.monotonic() > deadline:
                print("out of time")
                break
            start = time.monotonic()
            environment = PassEnvironment(task, executor, protocol=load_protocol("reward"))
            trajectory = run_rollout(make_policy({"kind": "expert"}), environment, attempt_index=0, seed=1)
            last = trajectory.evaluations[-1].verdict if trajectory.evaluations else None
            verdict = trajectory.final_verdict or last
            num_tasks += 1
            all_correct = verdict is not None and verdict.num_correct == len(verdict.graphs)
            num_correct += all_correct
            print(
                f"{'ok ' if all_correct else 'BAD'} {task.task_id:34} {time.monotonic() - start:5.1f} s "
                f"evaluations {len(trajectory.evaluations)} AS {verdict.as_score if verdict else 0} "
                f"{verdict.timings if verdict else ''}",
                flush=True,
            )
            for graph in verdict.graphs if verdict else []:
                print(
                    f"      {graph.outcome:14} t {graph.first_correct_t} x{graph.speedup or 0:.2f} gpu "
                    f"{graph.gpu_speedup or 0:.2f} cov {graph.coverage} {'' if all_correct else graph.message[:260]}"
                )
    print(f"{num_correct} of {num_tasks} tasks CORRECT on every graph")


if __name__ == "__main__":
    main()
