"""ReportRow: a named line of a report's table, and the rows and verdicts that no evaluation makes. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data.task import Task
from eval_harness.errors import UserError
from eval_harness.presets import PRESETS
from eval_harness.report_facts import GraphFacts, ShownEvaluation
from eval_harness.scores import Scoring, score_verdict
from eval_harness.verdict import TOLERANCE_LEVELS, GraphVerdict, Outcome, Verdict


class ReportRow(BaseModel):
    """A named line of the table: eager, inductor, teacher, student before SFT, student after SFT."""

    model_config = ConfigDict(extra="forbid")

    name: str
    verdicts: dict[str, Verdict]
    """task_id -> one fresh verdict of the best candidate; unsubmitted_verdict() where there was none."""
    attempts: int | None = None
    """Attempts made over all tasks; None where the row is no policy."""
    totals: dict[str, float] = {}
    """Sums over the attempts: tokens, cost_usd, wall_s, ..."""
    feedback_scores: dict[str, float] = {}
    """task_id -> the best AS seen during the attempt, to report by how much the fresh evaluation is lower."""
    as_by_turn: list[float] = []
    """AS of the best candidate so far after turn 1, 2, ... (PassNet, Figure 3)."""
    note: str = ""
    feedback_covered: dict[str, float] = {}
    """task_id -> the best covered AS seen during the attempt, by which its best pass was chosen."""
    covered_by_turn: list[float] = []
    """Covered AS after turn 1, 2, ..."""
    protocol_settings: dict[str, Any] = {}
    """The whole protocol of the verdicts: rows are compared only if these agree, where both say them."""
    attempt_verdicts: dict[str, list[Verdict]] = {}
    """task_id -> the fresh verdict of each attempt, where there were several."""
    shown: dict[str, list[list[ShownEvaluation]]] = {}
    """task_id -> for each attempt, the evaluations that the policy was shown."""
    graph_facts: dict[str, GraphFacts] = {}
    """Graph hash -> what the report groups by."""
    run: str = ""
    """The training run that a checkpoint is of; rows of one run make a curve."""
    step: int | None = None
    """Its optimizer step."""
    settings: dict[str, Any] = {}
    """What was done to get the row: student, sampling, server, limits; for a reader."""

    @model_validator(mode="after")
    def _keys_are_task_ids(self) -> ReportRow:
        if not self.verdicts:
            raise ValueError(f"row {self.name!r} has no verdicts")
        for task_id, verdict in self.verdicts.items():
            if task_id != verdict.task_id:
                raise ValueError(f"row {self.name!r}: the verdict under {task_id!r} is of task {verdict.task_id!r}")
        return self


class TrajectoryCounts(BaseModel):
    """What became of the collected trajectories."""

    model_config = ConfigDict(extra="forbid")

    kept: int = Field(ge=0)
    dropped: dict[str, int] = {}
    """Reason -> number."""


def unsubmitted_verdict(task: Task, *, protocol: str, device: str, like: Verdict | None = None) -> Verdict:
    """The verdict of an attempt that submitted no candidate: nothing matched, so that it counts against the row.

    like: another verdict of the run, whose machine and versions are taken over.
    """
    message = "nothing was submitted"
    graphs = [
        GraphVerdict(graph=graph.name, graph_hash=graph.content_hash, outcome=Outcome.NO_MATCH, message=message)
        for graph in task.graphs
    ]
    return _with_scores(
        Verdict(
            candidate_hash="",
            task_id=task.task_id,
            task_hash=task.content_hash,
            protocol=protocol,
            device=device,
            complete=True,
            graphs=graphs,
            machine=like.machine if like else {},
            versions=like.versions if like else {},
        )
    )


def eager_row(verdicts: Mapping[str, Verdict]) -> ReportRow:
    """The row that everything is measured against: 1 by definition on the tasks of another row's verdicts."""
    rows = {}
    for task_id, verdict in verdicts.items():
        graphs = [
            GraphVerdict(
                graph=graph.graph,
                graph_hash=graph.graph_hash,
                outcome=Outcome.CORRECT,
                first_correct_t=TOLERANCE_LEVELS[0],
                speedup=1.0,
                latency_us=graph.reference_latency_us,
                reference_latency_us=graph.reference_latency_us,
            )
            for graph in verdict.graphs
        ]
        update = {"candidate_hash": "eager", "graphs": graphs, "violations": [], "complete": True, "confinement": {}}
        rows[task_id] = _with_scores(verdict.model_copy(update=update | {"candidate_output": "", "seeds": {}}))
    return ReportRow(name="Eager", verdicts=rows, note="the reference: 1 by definition")


def load_row(path: Path, name: str | None = None) -> ReportRow:
    """A row from a JSON file: a ReportRow, one Verdict, or a list of Verdicts. Raises UserError naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "verdicts" in content:
            row = ReportRow.model_validate(content)
            return row.model_copy(update={"name": name}) if name else row
        verdicts = [Verdict.model_validate(item) for item in (content if isinstance(content, list) else [content])]
        return ReportRow(name=name or path.stem, verdicts={verdict.task_id: verdict for verdict in verdicts})
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a file of verdicts") from None
    except ValueError as error:
        raise UserError(f"{path}: no verdict record ({str(error).splitlines()[0]}); give what evaluate wrote") from None


def protocol_scoring(protocol: str) -> tuple[Scoring, float]:
    """Scoring and slowdown exponent of a named protocol; the defaults for an unknown one."""
    preset = PRESETS.get(protocol)
    return (preset.scoring, preset.slowdown_exponent) if preset else ("passwright", 0.0)


def _with_scores(verdict: Verdict) -> Verdict:
    scores = score_verdict(verdict.graphs, *protocol_scoring(verdict.protocol))
    return verdict.model_copy(update={"as_score": scores.as_score, "as_covered": scores.as_covered, "es": scores.es})
