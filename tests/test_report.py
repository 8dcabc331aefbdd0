"""Reports: what is refused, what is counted, and that the page is one safe, self-contained file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from data.graph import Graph
from data.task import Task
from eval_harness.errors import UserError
from eval_harness.report import build_report, write_report
from eval_harness.report_row import ReportRow, TrajectoryCounts, eager_row, load_row, unsubmitted_verdict
from eval_harness.report_text import render_report
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation
from trajectories.pages.charts import bar_chart, line_chart
from trajectories.pages.report_page import render_report_page, write_report_page

HOSTILE = "</pre></td><script>alert('x')</script><img src=http://example.org/x>"


def task_verdict(task_id: str, *graphs: GraphVerdict, **fields: Any) -> Verdict:
    scores = score_verdict(graphs)
    fields = {"task_hash": f"hash of {task_id}", "protocol": "strict", "device": "cpu"} | fields
    return Verdict(
        candidate_hash="ab",
        task_id=task_id,
        complete=scores.as_score is not None,
        as_score=scores.as_score,
        as_covered=scores.as_covered,
        es=scores.es,
        graphs=list(graphs),
        **fields,
    )


def correct(speedup: float) -> GraphVerdict:
    return GraphVerdict(
        graph="g", graph_hash="0", outcome=Outcome.CORRECT, first_correct_t=-6, speedup=speedup, coverage=1.0
    )


def failed(outcome: Outcome = Outcome.RUNTIME_ERROR, message: str = "IndexError") -> GraphVerdict:
    return GraphVerdict(graph="g", graph_hash="0", outcome=outcome, message=message)


def row(name: str, *verdicts: Verdict, **fields: Any) -> ReportRow:
    return ReportRow(name=name, verdicts={verdict.task_id: verdict for verdict in verdicts}, **fields)


@pytest.fixture
def rows() -> list[ReportRow]:
    os_import = Violation(rule="source.import", layer="source", message="import os")
    broken = GraphVerdict(graph="g", graph_hash="0", outcome=Outcome.VIOLATION, violations=[os_import])
    teacher = row(
        "Teacher",
        task_verdict("a", correct(2.0), correct(1.1)),
        task_verdict("b", failed(message=HOSTILE), correct(0.9)),
        attempts=4,
        totals={"output_tokens": 1234},
        feedback_scores={"a": 2.0},
        as_by_turn=[0.1, 0.4, 0.7],
    )
    student = row(HOSTILE, task_verdict("a", broken, broken), task_verdict("b", failed(), failed()), attempts=2)
    return [eager_row(teacher.verdicts), teacher, student]


def test_table_columns(rows: list[ReportRow]) -> None:
    report = build_report(rows)
    eager, teacher, student = (entry["summary"] for entry in report["rows"])
    assert (eager["as_score"], eager["fast"]["1"], eager["sample_success"], eager["g_mean"]) == (1.0, 1.0, 1.0, 1.0)
    assert eager["as_covered"] is None
    assert teacher["fast"] == {"1": 0.5, "1.2": 0.25, "1.5": 0.25, "2": 0.25}
    assert (teacher["sample_success"], teacher["subgraph_success"]) == (0.5, 0.75)
    assert student["violations_by_rule"] == {"source.import": 1}
    assert student["outcomes"] == {"VIOLATION": 2, "RUNTIME_ERROR": 2}
    fresh = score_verdict([correct(2.0), correct(1.1)]).as_score
    assert report["rows"][1]["fresh_over_feedback"] == pytest.approx((fresh or 0) / 2.0)
    cell = report["tasks"][1]["rows"]["Teacher"]
    assert (cell["num_correct"], cell["num_graphs"], cell["reason"]) == (1, 2, HOSTILE)


def test_the_text_table_holds_every_row(rows: list[ReportRow]) -> None:
    report = build_report(
        rows, trajectories=TrajectoryCounts(kept=3, dropped={"not correct": 2}), loss_curve=[{"step": 1, "loss": 2.5}]
    )
    text = render_report(report)
    line = next(line for line in text.splitlines() if line.startswith("Teacher"))
    assert line.split()[1:4] == ["50.0", "50.0", "75.0"]
    assert "trajectories: 3 kept, 2 dropped (2 not correct)" in text and "loss: 2.5000 at step 1" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": "reward"}, "different protocols (reward, strict)"),
        ({"device": "cuda:0"}, "different devices (cpu; cuda)"),
        ({"machine": {"processor": "Other"}}, "different devices"),
        ({"task_hash": "changed"}, "differ in their task set, first in 'a'"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(changes: dict[str, Any], words: str) -> None:
    rows = [row("one", task_verdict("a", correct(1.0))), row("two", task_verdict("a", correct(1.0), **changes))]
    with pytest.raises(UserError, match=re.escape(words)):
        build_report(rows)
    assert words in build_report(rows, allow_mixed=True)["warnings"][0]


def test_another_task_set_is_refused() -> None:
    rows = [row("one", task_verdict("a", correct(1.0))), row("two", task_verdict("b", correct(1.0)))]
    with pytest.raises(UserError, match="task set"):
        build_report(rows)
    report = build_report(rows, allow_mixed=True)
    assert report["tasks"][0]["rows"] == {"one": report["tasks"][0]["rows"]["one"], "two": None}
    assert "not evaluated" in render_report_page(report)


def test_names_and_emptiness_are_refused() -> None:
    with pytest.raises(UserError, match="no rows"):
        build_report([])
    one = row("one", task_verdict("a", correct(1.0)))
    with pytest.raises(UserError, match="two rows are named 'one'"):
        build_report([one, one])
    with pytest.raises(ValueError, match="is of task 'a'"):
        ReportRow(name="x", verdicts={"b": one.verdicts["a"]})


def test_an_unstable_task_leaves_its_row_without_a_score_and_says_so() -> None:
    unstable = GraphVerdict(graph="g", graph_hash="0", outcome=Outcome.UNSTABLE)
    report = build_report([row("one", task_verdict("a", correct(1.0)), task_verdict("b", unstable))])
    assert report["rows"][0]["summary"]["as_score"] is None
    assert report["warnings"] == ["row 'one' has no AS: 1 task(s) unstable, first 'b'"]
    assert "no AS" in render_report_page(report)


def test_a_shared_gpu_is_a_warning() -> None:
    verdict = task_verdict("a", correct(1.0), machine={"gpu_warnings": ["an MPS daemon runs: stop it"]})
    assert build_report([row("one", verdict)])["warnings"] == ["an MPS daemon runs: stop it"]


def test_missing_confinement_is_a_warning() -> None:
    verdict = task_verdict("a", correct(1.0), confinement={"network": "unshare: EPERM", "pid": "on"})
    assert build_report([row("one", verdict)])["warnings"] == ["confinement layer network was not on: unshare: EPERM"]


def test_an_attempt_without_a_candidate_counts_as_no_match() -> None:
    source = "import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self):\n        return ()\n"
    graph = Graph("graphs/a", {"graph_net.json": "{}", "model.py": source})
    verdict = unsubmitted_verdict(Task("t", (graph,)), protocol="strict", device="cpu")
    assert verdict.as_score == pytest.approx(0.1) and verdict.graphs[0].graph_hash == graph.content_hash
    passnet = unsubmitted_verdict(Task("t", (graph,)), protocol="passnet", device="cpu")
    assert passnet.as_score == pytest.approx(0.110706, abs=5e-7)  # scoring: paper calls it a runtime error


def test_report_json_is_strict_and_whole(rows: list[ReportRow], tmp_path: Path) -> None:
    report = build_report(rows, run={"lr": float("nan"), "out": tmp_path}, loss_curve=[{"step": 1, "loss": 2.0}, {}])
    path = write_report(report, tmp_path / "deep")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(path.read_text(), parse_constant=refuse) == report
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]


@pytest.mark.parametrize("shape", ["row", "verdict", "list"])
def test_rows_are_read_from_what_runs_write(shape: str, rows: list[ReportRow], tmp_path: Path) -> None:
    verdicts = list(rows[1].verdicts.values())
    path = tmp_path / "teacher.json"
    path.write_text(
        {
            "row": rows[1].model_dump_json(),
            "verdict": verdicts[0].model_dump_json(),
            "list": json.dumps([verdict.model_dump(mode="json") for verdict in verdicts]),
        }[shape]
    )
    loaded = load_row(path, name="T")
    assert loaded.name == "T" and loaded.verdicts["a"] == verdicts[0]
    assert len(loaded.verdicts) == (1 if shape == "verdict" else 2)


@pytest.mark.parametrize("content", [None, "{", '{"a": 1}', "[3]"])
def test_a_file_without_verdicts_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_row(path)


VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks nesting and collects what the page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"


def test_the_page_is_self_contained_safe_and_well_formed(rows: list[ReportRow], tmp_path: Path) -> None:
    report = build_report(
        rows,
        title=HOSTILE,
        trajectories=TrajectoryCounts(kept=3, dropped={HOSTILE: 2}),
        loss_curve=[{"step": step, "loss": 3 / step} for step in range(1, 30)],
        run={"note": HOSTILE},
    )
    text = write_report_page(report, tmp_path).read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert not {tag for tag, _ in page.seen} & {"img", "link", "iframe", "object", "embed", "base"}
    assert [attrs for tag, attrs in page.seen if tag == "script"] == [{"type": "application/json", "id": "data"}, {}]
    assert not [attrs for _, attrs in page.seen for name in attrs if name in ("src", "style") or name.startswith("on")]
    assert all((attrs.get("href") or "#").startswith("#") for _, attrs in page.seen)
    assert "url(" not in text and "@import" not in text
    assert text.count("&lt;script&gt;") >= 6 and text.count("<script") == 2
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.seen
    assert "prefers-color-scheme: dark" in text
    headers = [attrs for tag, attrs in page.seen if tag == "th"]
    assert headers and all(attrs.get("scope") in ("row", "col") for attrs in headers)
    charts = [attrs for tag, attrs in page.seen if tag == "svg" and attrs.get("class") == "chart"]
    assert len(charts) == 4 and all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)
    policy = next(attrs for tag, attrs in page.seen if attrs.get("http-equiv") == "Content-Security-Policy")["content"]
    for tag in ("script", "style"):  # the page runs what its policy names, and nothing else
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in (policy or "")
    assert (policy or "").startswith("default-src 'none';")


def test_the_page_shows_the_numbers_of_the_report(rows: list[ReportRow]) -> None:
    report = build_report(rows)
    text = render_report_page(json.loads(json.dumps(report)))
    teacher = report["rows"][1]["summary"]
    line = next(line for line in re.findall(r"<tr.*?</tr>", text, re.DOTALL) if '<th scope="row">Teacher' in line)
    shown = [re.sub("<[^>]*>", "", re.sub("<small>.*?</small>", "", cell)) for cell in re.findall("<td.*?</td>", line)]
    assert shown[:5] == ["50.0", "50.0", "75.0", f"{teacher['g_mean']:.3f}", f"{teacher['as_score']:.3f}"]


def test_charts_are_well_formed_and_hold_their_points() -> None:
    bars = ElementTree.fromstring(bar_chart({"a": 1.0, "<b>": 0.5, "none": None}, label="x & y"))
    widths = [float(rect.attrib["width"]) for rect in bars.findall("rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01) and widths[2] == 0
    lines = line_chart({"a": [(-10, 0.1), (4, 1.0)]}, label="l", x_label="t", y_label="ES")
    points = ElementTree.fromstring(lines).findall("polyline")[0].attrib["points"].split()
    (x_first, y_first), (x_last, y_last) = (tuple(map(float, point.split(","))) for point in points)
    assert x_first < x_last and y_first > y_last
    assert line_chart({"a": []}, label="l", x_label="t", y_label="y") == ""
    ElementTree.fromstring(line_chart({"a": [(1, 0.0)]}, label="l", x_label="t", y_label="y"))
