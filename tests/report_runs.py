"""Two evaluations with verdicts, attempts and a baseline, for the tests of the report's page. Not a test."""

from __future__ import annotations

from pathlib import Path

from eval_harness.report_facts import ShownEvaluation
from eval_harness.report_row import ReportRow, eager_row
from eval_harness.scores import score_verdict
from eval_harness.verdict import Outcome, Verdict
from tests.viewer_records import make_trajectory, make_verdict, write_collection
from trajectories.record import StopReason, Trajectory

TASKS = [f"task_{index}" for index in range(6)]
_ENDS = {
    "weak": [
        Outcome.WRONG_VALUES,
        Outcome.VIOLATION,
        Outcome.CORRECT,
        Outcome.NO_MATCH,
        Outcome.TIMEOUT,
        Outcome.VIOLATION,
    ],
    "strong": [Outcome.CORRECT] * 6,
}


def make_rows() -> list[ReportRow]:
    """A weak run and a strong one, on six tasks of three graphs."""
    return [_row(name, _attempts(name)) for name in _ENDS]


def write_runs(root: Path) -> dict[str, Path]:
    """The folders that two evaluations leave: row.json, collection/, and in the last one eager.json."""
    folders = {}
    for name in _ENDS:
        attempts = _attempts(name)
        folder = folders[name] = root / name
        write_collection(folder / "collection", attempts)
        row = _row(name, attempts)
        (folder / "row.json").write_text(row.model_dump_json())
        (folder / "eager.json").write_text(eager_row(row.verdicts).model_dump_json())
    return folders


def scored(verdict: Verdict) -> Verdict:
    """With the scores that its graphs have."""
    scores = score_verdict(verdict.graphs)
    return verdict.model_copy(update={"as_score": scores.as_score, "as_covered": scores.as_covered, "es": scores.es})


def _attempts(name: str) -> list[Trajectory]:
    attempts = []
    for index, (task, ends) in enumerate(zip(TASKS, _ENDS[name], strict=True)):
        attempt = make_trajectory(task, 0, num_turns=8 + index)
        message = "" if ends is Outcome.CORRECT else "values: tmp_1 differs by 0.21 at [3, 17]"
        final = make_verdict(task, ends, speedup=1.1 + 0.2 * index, message=message, protocol="strict")
        attempt.final_verdict = scored(final.model_copy(update={"candidate_hash": f"{name}{index}".ljust(64, "0")}))
        attempt.stop_reason = StopReason.SUBMITTED
        attempts.append(attempt)
    return attempts


def _row(name: str, attempts: list[Trajectory]) -> ReportRow:
    return ReportRow(
        name=name,
        verdicts={each.task_id: each.final_verdict for each in attempts if each.final_verdict},
        attempts=len(attempts),
        totals={"turns": sum(each.num_turns for each in attempts), "cost_usd": 0.5},
        as_by_turn=[0.1, 0.3, 0.3, 0.6] if name == "weak" else [0.1, 0.5, 1.1],
        shown={each.task_id: [[ShownEvaluation.of(e.turn, e.verdict) for e in each.evaluations]] for each in attempts},
    )
