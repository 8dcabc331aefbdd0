"""run_student_evaluation: a checkpoint attempts tasks in the teacher's environment, before the teacher's judge.

student folder -> TransformersPolicy -> trajectories/collect.py (the same environment, prompts, limits and store)
    -> one fresh strict verdict an attempt -> verdicts.jsonl, row.json, summary.json

An attempt that never submitted a pass counts as NO_MATCH on every graph. An attempt that we or the machine failed
counts as nothing: the evaluation is then not finished, and the same call goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from eval_harness.errors import HarnessError
from eval_harness.executor import Evaluator
from eval_harness.executor_config import ExecutorConfig, LocalExecutorConfig
from eval_harness.report_row import ReportRow, unsubmitted_verdict
from eval_harness.summary import Summary, summarize
from eval_harness.verdict import Verdict
from training.run_folder import RunFolder, hash_files
from training.student_policy import SamplingConfig, TransformersPolicy, load_student
from trajectories.collect import CollectConfig, run_collect
from trajectories.environment import AgentLimits, best_index
from trajectories.prompts import PromptConfig
from trajectories.record import Trajectory
from trajectories.rollout import trajectory_id
from trajectories.store import TrajectoryStore, write_atomically

VERDICTS_FILE = "verdicts.jsonl"
ROW_FILE = "row.json"
COLLECTION_DIR = "collection"
POLICY_KIND = "transformers"


class StudentEvaluationConfig(BaseModel):
    """One evaluation of one checkpoint."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="student", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")
    """Also the row's name in a report."""
    student: Path
    """Checkpoint folder: weights, tokenizer, chat template."""
    tasks: list[str] = Field(min_length=1)
    """References of tasks, as in a collection's configuration."""
    max_tasks: int | None = Field(default=None, ge=1)
    num_attempts: int = Field(default=1, ge=1)
    """Attempts a task. The headline is of the first; more need a temperature above 0 to differ."""
    sampling: SamplingConfig = SamplingConfig()
    student_device: str = "cpu"
    """Where the student runs."""
    student_dtype: str | None = None
    """None: as it is stored."""
    limits: AgentLimits = AgentLimits()
    """The teacher's, for a student that learnt by heart: the prompt and each tool result state the turns left."""
    prompt: PromptConfig = PromptConfig()
    """The teacher's, for the same reason."""
    protocol: str = "reward"
    protocol_overrides: dict[str, Any] = {}
    final_protocol: str = "strict"
    final_protocol_overrides: dict[str, Any] = {}
    device: str = "cpu"
    """Where passes run."""
    executor: ExecutorConfig = LocalExecutorConfig()
    """As in a collection's configuration."""
    seed: int = 0
    num_workers: int = Field(default=1, ge=1)
    """Attempts at a time; the student answers one of them at a time."""
    out: Path | None = None
    """Default: runs/evaluate/<name>."""

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/evaluate") / self.name


class EvaluationSummary(BaseModel):
    """summary.json of a student's evaluation."""

    model_config = ConfigDict(extra="forbid")

    name: str
    student: str
    num_attempts: int
    first_attempt: Summary
    """The headline: one attempt a task, no choice among several."""
    by_attempt: list[Summary]
    """One summary for each attempt index."""
    best_of: Summary | None
    """Of each task's best attempt by its final verdict; None for one attempt. Chosen by luck too: not a headline."""
    stop_reasons: dict[str, int]
    num_submitted: int
    """Attempts with at least one evaluated pass."""
    num_malformed_calls: int
    mean_turns: float
    output_tokens: int


@dataclass(frozen=True)
class StudentEvaluation:
    """What run_student_evaluation returns."""

    trajectories: list[Trajectory]
    """By attempt index, then in the order of the tasks."""
    row: ReportRow
    """First attempts, for a report."""
    summary: EvaluationSummary


def run_student_evaluation(
    config: StudentEvaluationConfig,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    *,
    resume: bool = True,
    progress: bool = True,
) -> StudentEvaluation:
    """Evaluate, or finish an evaluation that was stopped. The evaluator stays the caller's to close.

    Raises UserError (no checkpoint, another configuration in the folder) and HarnessError (attempts that failed by our
    fault; the same call goes on with them).
    """
    tasks = list(tasks)[: config.max_tasks]
    folder = RunFolder(
        config.out_dir,
        config,
        inputs={"student": config.student},
        ignored_fields=frozenset({"out", "num_workers", "executor"}),
    )
    folder.open(resume=resume)
    collect_config = _collect_config(config)
    collected = run_collect(
        collect_config, tasks, evaluator, factories={POLICY_KIND: _policy_factory(config)}, progress=progress
    )
    if not collected.is_complete:
        raise HarnessError(
            f"{config.out_dir}: {collected.num_planned - collected.num_finished} of {collected.num_planned} attempts "
            f"did not finish ({collected.stop_reasons}); the same command goes on with them"
        )
    store = TrajectoryStore(collect_config.root)
    attempts = [[_load(store, task, index) for task in tasks] for index in range(config.num_attempts)]
    evaluation = _assess(config, tasks, attempts)
    final = [_final_verdict(config, task, item) for row in attempts for task, item in zip(tasks, row, strict=True)]
    lines = [verdict.model_dump_json() for verdict in final]
    write_atomically(config.out_dir / VERDICTS_FILE, "\n".join(lines) + "\n")
    write_atomically(config.out_dir / ROW_FILE, evaluation.row.model_dump_json(indent=1) + "\n")
    folder.write_summary(evaluation.summary.model_dump(mode="json"))
    return evaluation


def _collect_config(config: StudentEvaluationConfig) -> CollectConfig:
    return CollectConfig(
        name=config.name,
        tasks=config.tasks,
        num_attempts=config.num_attempts,
        policy={
            "kind": POLICY_KIND,
            # the weights, not only their place: a retrained student in the same folder is another policy
            "student_hash": hash_files(config.student),
            "sampling": config.sampling.model_dump(),
        },
        limits=config.limits,
        prompt=config.prompt,
        protocol=config.protocol,
        protocol_overrides=config.protocol_overrides,
        final_protocol=config.final_protocol,
        final_protocol_overrides=config.final_protocol_overrides,
        device=config.device,
        seed=config.seed,
        num_workers=config.num_workers,
        out_dir=config.out_dir / COLLECTION_DIR,
    )


def _policy_factory(config: StudentEvaluationConfig):
    """Loads the checkpoint once; each attempt gets a policy of its own on it."""
    student = load_student(config.student, device=config.student_device, dtype=config.student_dtype)
    return lambda settings: TransformersPolicy(student, config.sampling)


def _load(store: TrajectoryStore, task: Task, attempt_index: int) -> Trajectory:
    trajectory = store.load(trajectory_id(task.task_id, attempt_index))
    if trajectory is None:
        raise HarnessError(f"{store.root}: the trajectory of task {task.task_id}, attempt {attempt_index} is gone")
    return trajectory


def _final_verdict(config: StudentEvaluationConfig, task: Task, trajectory: Trajectory) -> Verdict:
    if trajectory.final_verdict is not None:
        return trajectory.final_verdict
    return unsubmitted_verdict(task, protocol=config.final_protocol, device=config.device)


def _assess(
    config: StudentEvaluationConfig, tasks: Sequence[Task], attempts: Sequence[Sequence[Trajectory]]
) -> StudentEvaluation:
    verdicts = [
        {task.task_id: _final_verdict(config, task, trajectory) for task, trajectory in zip(tasks, row, strict=True)}
        for row in attempts
    ]
    summaries = [summarize(by_task.values()) for by_task in verdicts]
    flat = [trajectory for row in attempts for trajectory in row]
    stop_reasons: dict[str, int] = {}
    for trajectory in flat:
        reason = str(trajectory.stop_reason)
        stop_reasons[reason] = stop_reasons.get(reason, 0) + 1
    summary = EvaluationSummary(
        name=config.name,
        student=str(config.student),
        num_attempts=config.num_attempts,
        first_attempt=summaries[0],
        by_attempt=summaries,
        best_of=summarize(_best_by_task(verdicts)) if len(verdicts) > 1 else None,
        stop_reasons=dict(sorted(stop_reasons.items())),
        num_submitted=sum(bool(trajectory.evaluations) for trajectory in flat),
        num_malformed_calls=sum(trajectory.num_malformed_calls for trajectory in flat),
        mean_turns=sum(trajectory.num_turns for trajectory in flat) / len(flat),
        output_tokens=sum(trajectory.usage.output_tokens for trajectory in flat),
    )
    row = ReportRow(
        name=config.name,
        verdicts=verdicts[0],
        feedback_scores=_feedback_scores(attempts[0]),
        as_by_turn=as_by_turn(tasks, attempts[0], protocol=config.protocol, device=config.device),
    )
    return StudentEvaluation(flat, row, summary)


def _best_by_task(verdicts: Sequence[Mapping[str, Verdict]]) -> list[Verdict]:
    best = []
    for task_id in verdicts[0]:
        candidates = [by_task[task_id] for by_task in verdicts]
        index = best_index(candidates)
        best.append(candidates[0 if index is None else index])
    return best


def _feedback_scores(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    scores = {}
    for trajectory in trajectories:
        if trajectory.best_evaluation is not None:
            score = trajectory.evaluations[trajectory.best_evaluation].verdict.as_score
            if score is not None:
                scores[trajectory.task_id] = score
    return scores


def as_by_turn(
    tasks: Sequence[Task], trajectories: Sequence[Trajectory], *, protocol: str, device: str
) -> list[float]:
    """AS over all tasks of the best pass seen up to turn 1, 2, ... (PassNet, Figure 3), by the feedback's verdicts."""
    scores: list[float] = []
    for turn in range(1, max((trajectory.num_turns for trajectory in trajectories), default=0) + 1):
        best: list[Verdict] = []
        for task, trajectory in zip(tasks, trajectories, strict=True):
            seen = [record.verdict for record in trajectory.evaluations if record.turn <= turn]
            index = best_index(seen)
            nothing = unsubmitted_verdict(task, protocol=protocol, device=device)
            best.append(nothing if index is None else seen[index])
        scores.append(summarize(best).as_score or 0.0)
    return scores
