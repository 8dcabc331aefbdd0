"""The attempts of an evaluation: the student served while any is missing, each attempt stored, the shard's share taken.

ServeConfig -> open_student -> run_collect -> trajectories with complete fresh verdicts.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.executor import Evaluator
from eval_harness.verdict import Verdict
from training.evaluate_config import COLLECTION_DIR, StudentEvaluationConfig
from training.fresh_verdicts import FreshVerdicts
from training.run_folder import hash_files
from training.serve_config import EndpointServeConfig, TransformersServeConfig, VllmServeConfig
from training.served_student import AnyServeConfig, choose_kind, open_student
from training.student_service import StudentService
from training.student_source import StudentSource
from trajectories.collect import CollectConfig, run_collect
from trajectories.collect_index import load_rows
from trajectories.collect_meters import MeteredEvaluator
from trajectories.collect_summary import CollectSummary
from trajectories.plan import Shard, order_tasks
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.record import Trajectory
from trajectories.rollout import trajectory_id
from trajectories.store import TrajectoryStore
from trajectories.store_files import append_synced

logger = logging.getLogger(__name__)

SERVING_FILE = "serving.jsonl"
LOCAL_KIND, SERVED_KIND = "transformers", "served"
NUM_SERVED_WORKERS = 32


def make_attempts(
    config: StudentEvaluationConfig,
    source: StudentSource,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    fresh: FreshVerdicts,
    *,
    shard: Shard | None = None,
    progress: bool = True,
    say: Callable[[str], None] = logger.info,
    judge_device: str | None = None,
) -> list[list[Trajectory]]:
    """By attempt index, in the order of the shard's tasks; those that are there already are not made again.

    tasks: all of them, also for a shard. Raises UserError, and HarnessError for attempts that failed by our fault.
    """
    out_dir = config.out_dir_of(shard)
    collect_config = _collect_config(config, source, out_dir)
    mine = tasks_of(config, tasks, shard)
    collected = _collect(
        config,
        collect_config,
        source,
        tasks,
        mine,
        evaluator,
        shard,
        judge_device or config.device,
        progress=progress,
        say=say,
    )
    if not collected.is_complete:
        raise HarnessError(
            f"{out_dir}: {collected.num_planned - collected.num_finished} of {collected.num_planned} attempts "
            f"did not finish ({collected.stop_reasons}); the same command goes on with them"
        )
    store = TrajectoryStore(collect_config.root)
    attempts = [[_load(store, task, index) for task in mine] for index in range(config.num_attempts)]
    return _settle_unstable(mine, attempts, fresh)


def tasks_of(config: StudentEvaluationConfig, tasks: Sequence[Task], shard: Shard | None) -> list[Task]:
    """The tasks that a shard attempts, in the order of all of them."""
    if shard is None:
        return list(tasks)
    chosen = {task.task_id for task in order_tasks(tasks, seed=config.seed, shard=shard)}
    return [task for task in tasks if task.task_id in chosen]


def _collect(
    config: StudentEvaluationConfig,
    collect_config: CollectConfig,
    source: StudentSource,
    tasks: Sequence[Task],
    mine: Sequence[Task],
    evaluator: Evaluator,
    shard: Shard | None,
    device: str,
    *,
    progress: bool,
    say: Callable[[str], None],
) -> CollectSummary:
    """Make the attempts that are not made; the student is served only if there are any."""
    kind = collect_config.policy["kind"]

    def collect(factory: Callable[[Mapping[str, Any]], Any], judge: Evaluator) -> CollectSummary:
        return run_collect(
            collect_config, tasks, judge, factories={kind: factory}, progress=progress, shard=shard
        )  # fmt: skip

    if _is_collected(collect_config, mine):
        return collect(
            lambda settings: ScriptedPolicy([]), evaluator
        )  # asked for nothing; checks the folder's identity
    metered = MeteredEvaluator(evaluator, None)
    out_dir = config.out_dir_of(shard)
    started = time.monotonic()
    service = None
    try:
        with open_student(
            config.server, source, config.sampling, name=config.name, out_dir=out_dir, device=device,
            is_local_evaluator=config.executor.kind == "local", student_device=config.student_device,
            student_dtype=config.student_dtype, seed=config.seed, cost=config.cost,
            num_under_way=lambda: metered.gauge.num_under_way, say=say,
        ) as service:  # fmt: skip
            try:
                return collect(service.make_policy, metered)
            except (HarnessError, KeyboardInterrupt) as error:
                if (cause := service.explain(error)) is error:
                    raise
                raise cause from error
    finally:  # after the student is gone: until then a pause may be under way, which is not counted yet
        if service is not None:
            _note_session(out_dir, service, time.monotonic() - started)


def _note_session(out_dir: Path, service: StudentService, up_s: float) -> None:
    """A line a run that served the student; of a run that was killed there is none."""
    session = {"kind": service.kind, "up_s": round(up_s, 1), "num_gpus": service.num_gpus} | service.description
    if service.counts is not None:
        session["turns"] = {key: round(value, 2) for key, value in vars(service.counts).items()}
    append_synced(out_dir / SERVING_FILE, json.dumps(session) + "\n")


def _is_collected(collect_config: CollectConfig, tasks: Sequence[Task]) -> bool:
    store = TrajectoryStore(collect_config.root)
    if not store.root.is_dir():
        return False
    finished = {row.trajectory_id for row in load_rows(store) if row.is_finished}
    wanted = {trajectory_id(task.task_id, index) for task in tasks for index in range(collect_config.num_attempts)}
    return wanted <= finished


def _collect_config(config: StudentEvaluationConfig, source: StudentSource, out_dir: Path) -> CollectConfig:
    server = choose_kind(config.server, config.device)
    is_local = isinstance(server, TransformersServeConfig)
    # the weights, not only their place: a retrained student in the same folder is another policy
    policy: dict[str, Any] = {
        "kind": LOCAL_KIND if is_local else SERVED_KIND,
        "student_hash": hash_files(source.folder) if source.folder is not None else source.name,
        "sampling": config.sampling.model_dump(),
    }
    if not is_local:
        policy |= {"model": source.model, "serving": _what_decides_answers(server)}
    return CollectConfig(
        name=config.name,
        tasks=config.tasks,
        num_attempts=config.num_attempts,
        policy=policy,
        limits=config.limits,
        prompt=config.prompt,
        protocol=config.protocol,
        protocol_overrides=config.protocol_overrides,
        final_protocol=config.final_protocol,
        final_protocol_overrides=config.final_protocol_overrides,
        device=config.device,
        seed=config.seed,
        num_workers=config.num_workers or (1 if is_local else NUM_SERVED_WORKERS),
        out_dir=out_dir / COLLECTION_DIR,
    )


def _what_decides_answers(server: AnyServeConfig) -> dict[str, Any]:
    if isinstance(server, VllmServeConfig):
        names = ("kind", "dtype", "batch_invariant", "chat_template", "tool_call_parser", "reasoning_parser")
        return {name: getattr(server, name) for name in (*names, "max_model_len", "extra_args")}
    assert isinstance(server, EndpointServeConfig)
    return {"kind": server.kind, "model": server.model}


def _load(store: TrajectoryStore, task: Task, attempt_index: int) -> Trajectory:
    trajectory = store.load(trajectory_id(task.task_id, attempt_index))
    if trajectory is None:
        raise HarnessError(f"{store.root}: the trajectory of task {task.task_id}, attempt {attempt_index} is gone")
    return trajectory


def _settle_unstable(
    tasks: Sequence[Task], attempts: Sequence[Sequence[Trajectory]], fresh: FreshVerdicts
) -> list[list[Trajectory]]:
    """The attempts, their UNSTABLE final verdicts replaced by further fresh ones: one of them would cost the row AS."""
    requests = [
        (trajectory.trajectory_id, Candidate(trajectory.best_files), task)
        for row in attempts
        for task, trajectory in zip(tasks, row, strict=True)
        if trajectory.final_verdict is not None and not trajectory.final_verdict.complete and trajectory.best_files
    ]
    again: dict[str, Verdict] = fresh.evaluate(requests) if requests else {}
    return [
        [
            each.model_copy(update={"final_verdict": again[each.trajectory_id]})
            if each.trajectory_id in again
            else each
            for each in row
        ]
        for row in attempts
    ]
