"""The report's page without a browser: what its sentence claims, what is behind its numbers, what the verb takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import UserError
from eval_harness.report import build_report
from eval_harness.report_facts import GraphFacts
from eval_harness.report_row import ReportRow, eager_row
from scripts.cli import main
from scripts.report_inputs import read_inputs
from tests.report_runs import TASKS, make_rows, write_runs
from trajectories.pages import report_details
from trajectories.pages.report_details import ReportSources, candidate_key, page_details
from trajectories.pages.report_page import render_report_page, write_report_page
from trajectories.pages.report_plots import Series, change_bar, plot
from trajectories.pages.report_sentence import subject_of, verdict_sentence


def report_of(rows: list[ReportRow]) -> dict[str, Any]:
    return json.loads(json.dumps(build_report(rows)))


def test_the_sentence_is_of_the_last_run_and_claims_no_more_than_the_intervals() -> None:
    weak, strong = make_rows()
    report = report_of([weak, strong, eager_row(strong.verdicts)])
    assert subject_of(report)["name"] == "strong"
    sentence = verdict_sentence(report)
    assert sentence.startswith("strong gets every graph right on 6 of 6 tasks") and "better than eager" in sentence
    assert re.search(r"times weak's \(\d+\.\d\d to \d+\.\d\d\)", sentence)
    back = verdict_sentence(report_of([strong, weak]))  # the pair is in the report the other way round
    assert "worse than eager" in back and "broke an integrity rule" in back
    ratio = [float(re.findall(r"(\d+\.\d\d) times", text)[0]) for text in (sentence, back)]
    assert ratio[0] > 1 > ratio[1]
    same = verdict_sentence(report_of([strong, strong.model_copy(update={"name": "again"})]))
    assert "1.00 times strong's (1.00 to 1.00, may be chance)" in same


def test_a_row_without_a_score_is_said_to_have_none() -> None:
    weak, strong = make_rows()
    first = TASKS[0]
    unstable = strong.verdicts[first].model_dump() | {"complete": False, "as_score": None, "as_covered": None}
    unstable["graphs"][0] |= {"outcome": "UNSTABLE", "speedup": None, "speedup_interval": None}
    row = ReportRow.model_validate(strong.model_dump() | {"verdicts": strong.verdicts | {first: unstable}})
    report = report_of([weak, row])
    assert verdict_sentence(report).endswith("has no AS, since 1 task could not be measured.")
    assert "could not be measured" in render_report_page(report, ReportSources([weak, row]))


def test_a_page_has_every_graph_attempt_and_code(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    inputs = read_inputs([str(run) for run in runs.values()])
    report = report_of(inputs.rows)
    details = page_details(
        report, ReportSources(inputs.rows, inputs.collections, tmp_path / "v" / "index.html"), tmp_path
    )
    graphs, attempts = details.data["graphs"], details.data["attempts"]
    assert len(graphs) == sum(len(v.graphs) for row in inputs.rows for v in row.verdicts.values())
    assert {line["row"] for line in attempts} == set(inputs.collections) and len(attempts) == 12
    known = {candidate.key for candidate in details.candidates}
    assert known and {line["code"] for line in attempts if "code" in line} == known == set(details.data["codes"])
    assert all(line["address"].startswith("v/index.html#attempt=") for line in attempts)
    told = {details.data["texts"][line["told"]] for line in graphs if line["outcome"] == "WRONG_VALUES"}
    assert any("differs by 0.21" in text for text in told)
    facts = {
        g.graph_hash: GraphFacts(dtype="float16")
        for row in inputs.rows
        for v in row.verdicts.values()
        for g in v.graphs
    }
    rows = [row.model_copy(update={"graph_facts": facts}) for row in inputs.rows]
    grouped = page_details(report, ReportSources(rows)).data
    assert {line["groups"][grouped["groupings"].index("dtype")] for line in grouped["graphs"]} == {"float16"}


def test_code_beyond_the_room_of_a_page_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write_runs(tmp_path)
    inputs = read_inputs([str(runs["strong"])])
    sources = ReportSources(inputs.rows, inputs.collections)
    whole = page_details(report_of(inputs.rows), sources)
    sizes = sorted(sum(map(len, candidate.files.values())) for candidate in whole.candidates)
    monkeypatch.setattr(report_details, "MAX_CODE_CHARS", sizes[0])
    less = page_details(report_of(inputs.rows), sources)
    assert len(less.candidates) + less.num_left_out == len(whole.candidates) and less.num_left_out > 0
    page = render_report_page(report_of(inputs.rows), sources)
    assert f"{less.num_left_out} more did not fit" in page
    missing = next(each.key for each in whole.candidates if each.key not in less.data["codes"])
    assert f'href="#code-{missing}"' not in page  # no link leads nowhere


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    inputs = read_inputs([str(runs["strong"])])
    (inputs.collections["strong"] / "trajectories" / "broken.json").write_text("{")
    page = render_report_page(report_of(inputs.rows), ReportSources(inputs.rows, inputs.collections))
    assert "not read:" in page and "broken.json" in page
    gone = render_report_page(report_of(inputs.rows), ReportSources(inputs.rows, {"strong": tmp_path / "none"}))
    assert "no trajectories/ in it" in gone


def test_every_link_of_a_page_leads_somewhere(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    inputs = read_inputs([str(run) for run in runs.values()])
    page = render_report_page(report_of(inputs.rows), ReportSources(inputs.rows, inputs.collections))
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    assert len(ids) == len(re.findall(r'\bid="', page))
    links = {link.replace("&amp;", "&") for link in re.findall(r'href="#([^"]*)"', page)}
    for link in links:
        table = re.match(r"table=(\w+)", link)
        assert (f"{table[1]}-table" if table else link) in ids, link
    assert any(link.startswith("table=graphs&row=strong&outcome=CORRECT") for link in links)


def test_reports_of_version_1_still_make_a_page(tmp_path: Path) -> None:
    report = report_of(make_rows())
    for key in ("comparisons", "compiled", "curve"):
        del report[key]
    for row in report["rows"]:
        for key in ("figures", "several_attempts", "turns", "submissions", "groups", "fresh_over_feedback_covered"):
            del row[key]
        for key in ("settings", "run", "step", "covered_by_turn"):
            del row[key]
        for key in ("num_batch_not_applicable", "batch_invariance_rate"):
            del row["summary"][key]
    for task in report["tasks"]:
        for cell in task["rows"].values():
            del cell["candidate_hash"]
    report["schema_version"] = 1
    text = write_report_page(report, tmp_path / "new").read_text()
    assert "strong gets every graph right on 6 of 6 tasks" in text and "without an interval" in text


def test_plots_hold_the_values_they_show() -> None:
    text = plot(
        [Series("<a>", [(1, 0.5), (2, 1.5)], 0, [None, (1.0, 2.0)]), Series("empty", [], 1)],
        label="a & b", x_label="step", y_label="AS", reference=1.0,
    )  # fmt: skip
    assert 'data-x="2" data-y="1.500 (1.000 to 2.000)"' in text and "&lt;a&gt;" in text and "empty" not in text
    (low, high) = (float(y) for y in re.findall(r'class="dot" cx="[^"]*" cy="([^"]*)"', text))
    assert low > high  # downwards in SVG
    assert plot([], label="", x_label="", y_label="") == ""
    widths = []
    for interval in ((1.5, 3.0), (0.3, 0.8), (0.9, 1.2), None):
        bar = change_bar({"change": 1.0, "interval": interval, "is_ratio": True})
        widths.append(re.findall('class="change (better|worse|unsure)"', bar)[0])
    assert widths == ["better", "worse", "unsure", "unsure"]


def test_names_of_candidates_are_plain() -> None:
    assert candidate_key('ab<c>\u00e9"d' + "0" * 40) == "abcd" + "0" * 8


def test_the_verb_takes_folders_files_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(tmp_path)
    out = tmp_path / "out" / "two.html"
    given = [str(runs["weak"]), f"mine={runs['strong']}", f"collected={runs['strong'] / 'collection'}"]
    assert main(["report", *given, "--out", str(out), "--view", str(tmp_path / "view")]) == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["two.html", "two.json", "two.md"]
    report = json.loads(out.with_suffix(".json").read_text())
    assert [row["name"] for row in report["rows"]] == ["weak", "mine", "collected", "Eager"]
    mine, collected = (row["summary"] for row in report["rows"][1:3])
    assert collected["as_score"] == pytest.approx(mine["as_score"])
    assert "../view/index.html#attempt=" in out.read_text() and (tmp_path / "view" / "index.html").exists()
    assert main(["report", str(runs["weak"] / "row.json"), "--out", str(tmp_path / "folder")]) == 0
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"report.html", "report.json", "report.md"}
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give at least one run"),
        (["{tmp}"], "neither row.json nor trajectories/ in it"),
        (["{tmp}/none.json"], "none.json: No such file"),
        (["{weak}/row.json", "--view", "{tmp}/view"], "--view: no run has attempts"),
        (["{weak}", "--out", "{weak}/row.json"], "is a file; give a folder, or a name that ends in .html"),
    ],
)
def test_the_verb_says_what_is_wrong(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = write_runs(tmp_path / "runs")
    kept = (runs["weak"] / "row.json").read_text()
    given = [each.format(tmp=tmp_path, weak=runs["weak"]) for each in arguments]
    assert main(["report", *given]) == 2
    assert words in capsys.readouterr().err
    assert (runs["weak"] / "row.json").read_text() == kept


def test_baselines_of_a_folder_come_once_and_may_be_left_out(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    given = [str(run) for run in runs.values()]
    assert [row.name for row in read_inputs(given).rows] == ["weak", "strong", "Eager"]
    assert [row.name for row in read_inputs(given, with_baselines=False).rows] == ["weak", "strong"]
    named = [*given, f"my eager={runs['weak'] / 'eager.json'}", f"other={runs['strong'] / 'eager.json'}"]
    assert [row.name for row in read_inputs(named).rows] == ["weak", "strong", "my eager", "other"]


def test_the_folder_of_a_run_gives_a_row_a_checkpoint(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    for step, run in ((1000, runs["strong"]), (200, runs["weak"])):
        run.rename(folder / f"step-{step}")
    inputs = read_inputs([f"x={folder}"], with_baselines=False)
    assert [row.name for row in inputs.rows] == ["x-200", "x-1000"] and set(inputs.collections) == {"x-200", "x-1000"}
    assert [row.name for row in read_inputs([str(folder)], with_baselines=False).rows] == ["weak", "strong"]


def test_a_collection_that_still_runs_is_refused(tmp_path: Path) -> None:
    runs = write_runs(tmp_path)
    path = next((runs["weak"] / "collection" / "trajectories").glob("*__000.json"))
    record = json.loads(path.read_text()) | {"stop_reason": None}
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="has not ended"):
        read_inputs([str(runs["weak"] / "collection")])
