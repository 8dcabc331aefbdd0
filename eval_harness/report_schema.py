"""The schema of report.json (version 2), a docstring under every field: what build_report makes and pages read.

`passwright report --schema` prints it as JSON Schema. Shares are in 0..1; a null figure was not measured, or has no
meaning for the row. Version 1 had neither figures, attempts, turns, submissions, groups, comparisons, curve nor
compiled; readers of version 1 find all their keys unchanged.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from eval_harness.summary import Summary

REPORT_SCHEMA_VERSION = 2


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Figure(_Part):
    """A figure over tasks."""

    value: float
    interval: tuple[float, float] | None
    """95%, by bootstrap over tasks; null for one task."""


class Change(_Part):
    """How much more the second row has of a figure."""

    change: float
    """Second over first where is_ratio (AS, covered AS, G-mean), else second minus first."""
    interval: tuple[float, float] | None
    """95%, by bootstrap over tasks, the same tasks drawn for both rows."""
    is_ratio: bool


class Comparison(_Part):
    """Two rows on the tasks that both have a score of."""

    first: str
    second: str
    num_tasks: int
    changes: dict[str, Change]
    """Figure -> change: as_score, as_covered, fast_1, sample_success, subgraph_success, g_mean."""


class Attempts(_Part):
    """Several attempts a task."""

    num_attempts: int
    """A task."""
    incomplete_tasks: list[str]
    """With an attempt whose verdict has no score; while there is one, the rest is empty."""
    pass_at_k: dict[str, float]
    """k -> unbiased share of tasks with every graph correct in one of k attempts, mean over tasks."""
    best_of_k: dict[str, float]
    """k -> AS when each task counts with the attempt of k that was shown the best score, by its fresh verdict."""
    mean: dict[str, Figure]
    """Figures of the mean attempt."""


class Turns(_Part):
    """What turns bring (PassNet, Figure 3)."""

    num_tasks: int
    """Tasks with a scored evaluation."""
    first_share: float | None
    """Mean over these tasks of AS of the first evaluation over the attempt's best (the paper: 31-51%)."""
    num_ending_well: int
    """Tasks whose best is correct in every graph."""
    pass_fail_pass: float | None
    """Share of those that were correct, then not, then correct again (the paper: 12-52%)."""
    num_evaluations: int


class Submissions(_Part):
    """Candidates that were evaluated during all attempts, and violations among them."""

    num_attempts: int
    num_attempts_with_a_submission: int
    num_submissions: int
    num_violating_submissions: int
    violating_submissions: float | None
    """Share of submissions that broke a rule (the paper, of frontier models: 29-50%)."""
    num_violating_attempts: int
    violating_attempts: float | None
    """Share of attempts with a submission in which one broke a rule."""
    by_rule: dict[str, int]
    """Rule id -> submissions that broke it."""


class Group(_Part):
    """The graphs of one group of a row."""

    group: str
    """"not scored" counts graphs of tasks that have no score, and has no figures."""
    num_graphs: int
    num_correct: int | None = None
    subgraph_success: float | None = None
    fast: dict[str, float] = {}
    """As in the summary."""
    g_mean: float | None = None
    as_score: float | None = None
    as_covered: float | None = None
    median_eager_us: float | None = None
    """Of a call of eager, over the graphs with a known time."""


class Row(_Part):
    """One line of the table."""

    name: str
    note: str
    attempts: int | None
    """Attempts made over all tasks; null where the row is no policy."""
    totals: dict[str, float]
    """Over all attempts: input_tokens, output_tokens, cached_tokens, turns, malformed_calls, answer_s, evaluation_s,
    wall_s, cost_usd, gpu_hours, ..."""
    summary: Summary
    """Pooled over all graphs: the paper's columns, ES_t, fast_p, outcomes, violations, batch invariance."""
    figures: dict[str, Figure]
    """The main figures with intervals; empty while a task has no score."""
    fresh_over_feedback: float | None
    """Shrinkage: geometric mean over tasks of fresh AS over the best AS shown; below 1, the feedback was lucky."""
    fresh_over_feedback_covered: float | None
    """The same of covered AS, by which the best is chosen."""
    as_by_turn: list[float]
    """AS over all tasks of the best candidate so far after turn 1, 2, ... by the verdicts shown."""
    covered_by_turn: list[float]
    several_attempts: Attempts | None
    turns: Turns | None
    submissions: Submissions | None
    groups: dict[str, list[Group]]
    """domain, kind, dtype, size, operators, overhead -> groups."""
    run: str
    """Training run of a checkpoint, or empty."""
    step: int | None
    settings: dict[str, Any]
    """What was done to get the row."""


class TaskCell(_Part):
    """One row's figures on one task."""

    as_score: float | None
    as_covered: float | None
    num_correct: int
    num_graphs: int
    g_mean: float | None
    outcomes: dict[str, int]
    violations: list[str]
    reason: str
    """Of the first graph that is not correct."""
    candidate_hash: str


class TaskLine(_Part):
    """One task."""

    task_id: str
    rows: dict[str, TaskCell | None]
    """Row -> its figures; null where it has no verdict of the task."""


class CurvePoint(_Part):
    """A checkpoint of a training run."""

    run: str
    step: int
    row: str
    figures: dict[str, Figure]


class LossPoint(_Part):
    """One logged loss."""

    step: int | float
    loss: float | None


class Compiled(_Part):
    """Rows that went through torch.compile with its guards; comparable with each other, not with the main table."""

    rows: list[Row]
    comparisons: list[Comparison]


class PaperTable(_Part):
    """Figures printed in a paper: another machine and other tasks."""

    source: str
    columns: list[str]
    rows: list[list[str | float]]
    note: str


class Report(_Part):
    """report.json."""

    schema_version: int
    title: str
    protocol: dict[str, Any]
    """Of the fresh evaluations, with all settings where a row states them."""
    device: str
    num_tasks: int
    num_graphs: int
    rows: list[Row]
    comparisons: list[Comparison]
    """Pairs of rows, with intervals."""
    compiled: Compiled | None
    curve: list[CurvePoint]
    """Checkpoints by run and step."""
    tasks: list[TaskLine]
    trajectories: dict[str, Any] | None
    """kept, dropped: reason -> number."""
    loss_curve: list[LossPoint]
    warnings: list[str]
    """What a reader must know before the numbers."""
    machine: dict[str, Any]
    versions: dict[str, str]
    run: dict[str, Any]
    """What the caller keeps beside the numbers."""
    paper: PaperTable


def json_schema() -> dict[str, Any]:
    """report.json as JSON Schema."""
    return Report.model_json_schema()
