"""What is behind a report's numbers: graphs, attempts and code, as plain data and candidates for its page.

All of it comes from verdicts and trajectory records; every text is made visible here and escaped by the page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eval_harness.errors import UserError
from eval_harness.report_facts import GraphFacts
from eval_harness.report_groups import GROUPINGS, Member
from eval_harness.report_row import ReportRow
from eval_harness.summary import has_no_batch, is_batch_variant
from eval_harness.verdict import GraphVerdict, Verdict
from trajectories.pages.attempt_entry import attempt_entry, deciding_verdict
from trajectories.pages.code import shortened, visible
from trajectories.pages.viewer import load_checked, name_collections
from trajectories.record import Trajectory
from trajectories.selection_config import SelectionConfig
from trajectories.store import TRAJECTORIES_DIR

MAX_CODE_CHARS = 2_000_000
"""Of code within a page; candidates beyond are counted, and found in the viewer."""
MAX_MESSAGE_CHARS = 4_000
_ATTEMPT_FIELDS = (
    *("attempt", "outcome", "outcomes", "as_score", "as_covered", "shown_covered", "rules", "num_turns"),
    *("num_evaluations", "num_tokens", "cost_usd", "duration_s", "stop"),
)


@dataclass(frozen=True)
class ReportSources:
    """Where a page finds what is behind the numbers; without any, it has the numbers alone."""

    rows: Sequence[ReportRow] = ()
    """The report's rows with their verdicts: the table of graphs."""
    collections: Mapping[str, Path] = field(default_factory=dict)
    """Row -> the collection of its attempts: the table of attempts, and the code."""
    viewer: Path | None = None
    """index.html of a viewer of these collections, in the order given, each once."""


@dataclass(frozen=True)
class CandidateCode:
    """One candidate's files."""

    key: str
    """Of its anchor: letters and digits."""
    where: list[str]
    """"row, task, attempt" of each attempt that ended with it."""
    files: dict[str, str]


@dataclass
class PageDetails:
    """What the page shows."""

    data: dict[str, Any]
    """For the page's script, see assets/report/."""
    candidates: list[CandidateCode] = field(default_factory=list)
    num_left_out: int = 0
    """Candidates whose code did not fit."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""


def page_details(report: Mapping[str, Any], sources: ReportSources, page_dir: Path | None = None) -> PageDetails:
    """Read the sources. page_dir: the page's folder, which the address of the viewer is relative to."""
    names = {row["name"] for row in report["rows"]}
    details = PageDetails({"groupings": list(GROUPINGS), "graphs": [], "attempts": [], "texts": []})
    texts = _Texts(details.data["texts"])
    times = _eager_times(sources.rows)
    for row in sources.rows:
        if row.name in names:
            details.data["graphs"] += _graph_lines(row, texts, times)
    collections = {}
    for name, root in sources.collections.items():
        if name in names and (root / TRAJECTORIES_DIR).is_dir():
            collections[name] = root
        elif name in names:
            details.notes.append(visible(f"{root}: no {TRAJECTORIES_DIR}/ in it"))
    _add_attempts(details, collections, sources, page_dir)
    details.data["codes"] = [candidate.key for candidate in details.candidates]
    return details


def candidate_key(candidate_hash: str) -> str:
    """Name of a candidate within the page: the start of its hash, plain characters only."""
    return "".join(character for character in candidate_hash[:16] if character.isalnum() and character.isascii())


class _Texts:
    """Texts that many lines share, each once."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        text = visible(shortened(text[:MAX_MESSAGE_CHARS])) + (" [...]" if len(text) > MAX_MESSAGE_CHARS else "")
        if text not in self._index:
            self._index[text] = len(self._texts)
            self._texts.append(text)
        return self._index[text]


def _eager_times(rows: Sequence[ReportRow]) -> dict[tuple[str, str], GraphVerdict]:
    return {
        (verdict.task_id, graph.graph): graph
        for row in rows
        for verdict in row.verdicts.values()
        for graph in verdict.graphs
        if graph.reference_latency_us is not None
    }


def _graph_lines(row: ReportRow, texts: _Texts, times: Mapping[tuple[str, str], GraphVerdict]) -> list[dict[str, Any]]:
    lines = []
    for verdict in row.verdicts.values():
        for graph in verdict.graphs:
            timed = times.get((verdict.task_id, graph.graph), graph)
            known = {name: getattr(timed, name) for name in ("reference_latency_us", "reference_num_kernels")}
            member = Member(
                graph.model_copy(update=known), row.graph_facts.get(graph.graph_hash, GraphFacts()), verdict.device
            )
            groups = [group_of(member) for group_of in GROUPINGS.values()] if row.graph_facts else []
            lines.append(_without_nothing(_graph_line(row.name, verdict, graph, texts) | {"groups": groups}))
    return lines


def _graph_line(row: str, verdict: Verdict, graph: GraphVerdict, texts: _Texts) -> dict[str, Any]:
    violations = graph.violations + verdict.violations
    told = [f"{each.rule} {each.file or ''}:{each.line or ''} {each.message}" for each in violations]
    parts = [graph.message, *told, graph.match_report and f"matching: {graph.match_report}"]
    low, high = graph.speedup_interval or (None, None)
    return {
        "row": visible(row),
        "task": visible(verdict.task_id),
        "graph": visible(graph.graph),
        "outcome": graph.outcome.value,
        "speedup": _short(graph.speedup),
        "low": _short(low),
        "high": _short(high),
        "gpu": _short(graph.gpu_speedup),
        "coverage": _short(graph.coverage),
        "eager_us": _short(graph.reference_latency_us),
        "pass_us": _short(graph.latency_us),
        "first_t": graph.first_correct_t,
        "batch": _batch_word(graph),
        "unseen": ", ".join(f"{n} {what}" for what, n in Counter(each.result for each in graph.unseen or ()).items()),
        "rules": sorted({visible(each.rule) for each in violations}),
        "told": texts.add("\n".join(part for part in parts if part)),
        "code": candidate_key(verdict.candidate_hash),
    }


def _batch_word(graph: GraphVerdict) -> str:
    answer = is_batch_variant(graph)
    if answer is None:
        return "no batch" if has_no_batch(graph) else ""
    return "variant" if answer else "invariant"


def _add_attempts(
    details: PageDetails, collections: Mapping[str, Path], sources: ReportSources, page_dir: Path | None
) -> None:
    """One record at a time is in memory."""
    if not collections:
        return
    address = _viewer_address(sources.viewer, page_dir)
    names = {path.resolve(): name for name, path in name_collections(list(collections.values())).items()}
    selection = SelectionConfig(preset="strict", near_duplicates=None)
    known: dict[str, CandidateCode] = {}
    room, left_out = MAX_CODE_CHARS, set()
    for row, root in collections.items():
        for path in sorted((root / TRAJECTORIES_DIR).glob("[!.]*.json")):
            try:
                trajectory = load_checked(path)
            except UserError as error:  # a record that cannot be read must not hide the others
                details.notes.append(visible(str(error)))
                continue
            collection = names[root.resolve()]
            entry = attempt_entry(trajectory, collection=collection, page="", selection=selection)
            line = {"row": visible(row), "task": entry.task} | {name: getattr(entry, name) for name in _ATTEMPT_FIELDS}
            if address:
                line["address"] = f"{address}#attempt={quote(entry.key, safe='')}"
            key, files = _code_of(trajectory)
            if files:
                line["code"] = key
                where = f"{row}, {trajectory.task_id}, attempt {trajectory.attempt_index}"
                size = sum(map(len, files.values()))
                if key in known:
                    known[key].where.append(where)
                elif size <= room:
                    known[key] = CandidateCode(key, [where], files)
                    room -= size
                else:
                    left_out.add(key)
            details.data["attempts"].append(_without_nothing(line))
    details.candidates, details.num_left_out = list(known.values()), len(left_out)


def _code_of(trajectory: Trajectory) -> tuple[str, dict[str, str] | None]:
    verdict = deciding_verdict(trajectory)
    return candidate_key(verdict.candidate_hash) if verdict else "", trajectory.best_files


def _viewer_address(viewer: Path | None, page_dir: Path | None) -> str:
    if viewer is None:
        return ""
    if page_dir is None:
        return viewer.resolve().as_uri()
    return quote(Path(os.path.relpath(viewer.resolve(), page_dir.resolve())).as_posix())


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _without_nothing(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in line.items() if value not in (None, "", [], {}) and (value or key != "cost_usd")
    }
