"""The report's page in a real Chromium, opened from disk: it sorts, filters, links, prints, and asks for nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_harness.report import build_report
from eval_harness.report_row import ReportRow
from eval_harness.verdict import Outcome, Violation
from scripts.report_inputs import read_inputs
from tests.report_runs import write_runs
from tests.viewer_records import make_verdict
from trajectories.pages.report_details import ReportSources
from trajectories.pages.report_page import write_report_page
from trajectories.pages.viewer import build_viewer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

BAD = "<script>window.ran=1</script><img src=x onerror='window.ran=2'></script><svg onload=window.ran=3>\"'`${1}&amp;"
ODD = "\u202edetrever\u2066 \u2028\u2029 \x00\x1b[31m \U0001f600"


class Tab:
    """One page, with everything that it asked for or complained about."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page, self.path = page, path
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.path.as_uri()}{address}")

    def column(self, table: str, title: str) -> list[str]:
        """The cells in sight, without what is small under them."""
        return self.page.evaluate(
            """([id, title]) => {
              const table = document.getElementById(id);
              const index = [...table.tHead.rows[0].cells].findIndex(cell => cell.innerText.trim() === title);
              const rows = [...table.tBodies[0].rows].filter(row => !row.hidden && row.cells.length > 1);
              return rows.map(row => row.cells[index].innerText.split('\\n')[0].trim());
            }""",
            [f"{table}-table", title],
        )

    def address(self) -> str:
        return self.page.evaluate("decodeURIComponent(location.hash.replaceAll('+', ' '))")

    def is_in_sight(self, selector: str) -> bool:
        return self.page.evaluate(
            """selector => {
              const box = document.querySelector(selector).getBoundingClientRect();
              return box.top < innerHeight && box.bottom > 0;
            }""",
            selector,
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    runs = write_runs(root)
    inputs = read_inputs([str(run) for run in runs.values()])
    viewer = build_viewer(list(inputs.collections.values()), root / "attempts").page
    report = build_report(inputs.rows, title="Two runs", loss_curve=[{"step": n, "loss": 3 / n} for n in range(1, 9)])
    return write_report_page(report, root, ReportSources(inputs.rows, inputs.collections, viewer))


@pytest.fixture
def tab(browser: Any, page_path: Path) -> Iterator[Tab]:
    """Fails the test that leaves a complaint, or that reads anything but the page itself."""
    yield from open_tab(browser, page_path)


def open_tab(browser: Any, path: Path, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    context.set_default_timeout(10_000)
    tab = Tab(context.new_page(), path)
    yield tab
    context.close()
    assert tab.complaints == []
    own = path.parent.as_uri()
    assert [url for url in tab.asked if url != "about:blank" and not url.startswith(own)] == []


def test_the_first_screen_says_what_came_out(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    tab.open()
    assert tab.page.inner_text(".sentence").startswith("strong gets every graph right on 6 of 6 tasks")
    for selector in ("#scores-table", ".plots .plot:nth-child(1) svg", ".plots .plot:nth-child(3) svg"):
        assert tab.is_in_sight(selector)
    assert tab.asked == [tab.path.as_uri()]
    assert tab.column("scores", "row") == ["weak", "strong", "Eager"]


def test_tables_sort_both_ways_with_what_is_missing_last(tab: Tab) -> None:
    tab.open()
    for table, title in (("scores", "AS"), ("tasks", "AS"), ("graphs", "speedup"), ("attempts", "turns")):
        for direction, falling in (("descending", True), ("ascending", False)):
            tab.page.click(f"#{table}-table th button:text-is('{title}')")
            cells = tab.column(table, title)
            known = [float(cell.rstrip("x")) for cell in cells if cell != "-"]
            assert known == sorted(known, reverse=falling) and len(set(known)) > 1
            assert all(cell == "-" for cell in cells[len(known) :])
            assert tab.page.get_attribute(f"#{table}-table th[aria-sort]", "aria-sort") == direction
    tab.page.click("#tasks-table th button:text-is('task')")
    assert tab.column("tasks", "task") == sorted(tab.column("tasks", "task"))


def test_filters_and_the_address_that_keeps_them(tab: Tab) -> None:
    tab.open()
    assert len(tab.column("tasks", "row")) == 18
    tab.page.select_option("form[data-for=tasks-table] [name=row]", "weak")
    tab.page.select_option("form[data-for=tasks-table] [name=rules]", "some")
    assert tab.column("tasks", "task") == ["task_1", "task_5"]
    assert tab.address() == "#table=tasks&row=weak&rules=some"
    tab.page.reload()
    assert tab.column("tasks", "task") == ["task_1", "task_5"]
    assert tab.page.input_value("form[data-for=tasks-table] [name=row]") == "weak"
    tab.page.click("form[data-for=tasks-table] button")
    assert len(tab.column("tasks", "row")) == 18
    tab.page.fill("form[data-for=graphs-table] [name=faster]", "2")
    speeds = tab.column("graphs", "speedup")
    assert speeds and all(float(cell.rstrip("x")) >= 2 for cell in speeds)
    tab.page.fill("form[data-for=graphs-table] [name=faster]", "")
    tab.page.fill("form[data-for=graphs-table] [name=q]", "DIFFERS by")  # what the harness said is searched too
    assert set(tab.column("graphs", "outcome")) == {"WRONG_VALUES", "NO_MATCH", "TIMEOUT", "VIOLATION"}


def test_every_number_leads_to_what_it_is_made_of(tab: Tab) -> None:
    tab.open()
    tab.page.click("#scores-table tr:has-text('weak') td:nth-child(4) a")
    assert set(tab.column("graphs", "outcome")) == {"CORRECT"} and set(tab.column("graphs", "row")) == {"weak"}
    assert tab.is_in_sight("#graphs h2")
    shares = len(tab.column("graphs", "row")) / 18
    assert tab.column("scores", "subgraph CR %")[0] == f"{100 * shares:.1f}"
    tab.page.click("#graphs-table .opener >> nth=0")
    assert "matched tmp_0" in tab.page.inner_text("#graphs-table .told pre")
    tab.page.click("#graphs-table .told a:text-is('attempts')")
    assert tab.column("attempts", "task") == tab.column("graphs", "task")[:1] and tab.is_in_sight("#attempts h2")
    tab.page.click("#attempts-table a:text-is('code')")
    opened = "details.candidate[open]"
    assert "def replacement_func" in tab.page.inner_text(opened) and tab.is_in_sight(opened)
    tab.page.evaluate("document.querySelector('details.candidate[open]').open = false; scrollTo(0, 0)")
    tab.page.evaluate("document.querySelector('#attempts-table a[href^=\"#code\"]').click()")  # the same address again
    assert tab.is_in_sight(opened)
    tab.page.click("#rules-table td a >> nth=0")
    assert tab.column("tasks", "task") == ["task_1", "task_5"]
    tab.page.click("form[data-for=attempts-table] button")
    tab.page.click("#attempts-table tr:has-text('task_2') a:text-is('conversation') >> nth=0")
    tab.page.wait_for_selector("#attempt h1")  # the viewer, at that attempt
    assert "task_2" in tab.page.inner_text("#attempt h1")


def test_plots_answer_the_pointer_the_keys_and_the_legend(tab: Tab, page_path: Path) -> None:
    tab.open()
    plot = tab.page.locator("figure.plot").first
    box = plot.locator("svg.chart").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = plot.locator(".tip").inner_text()
    assert all(name in text for name in ("weak", "strong", "Eager"))
    level = text.split("\n")[0].removeprefix("tolerance level t ")
    report = build_report(read_inputs([str(page_path.parent / name) for name in ("weak", "strong")]).rows)
    assert f"{report['rows'][1]['summary']['es'][level]:.3f}" in text
    plot.locator(".legend button:has-text('weak')").click()
    assert plot.locator(".series.off").count() == 1
    plot.focus()
    tab.page.keyboard.press("ArrowRight")
    text = plot.locator(".tip").inner_text()
    assert "tolerance level t -10" in text and "weak" not in text
    tab.page.keyboard.press("ArrowRight")
    assert "tolerance level t -9" in plot.locator(".tip").inner_text()


def test_keys_narrow_screens_dark_and_paper(browser: Any, page_path: Path) -> None:
    papers = {}
    for scheme in ("light", "dark"):
        for tab in open_tab(browser, page_path, color_scheme=scheme, viewport={"width": 390, "height": 800}):
            tab.open()
            colour = "getComputedStyle(document.body).backgroundColor"
            papers[scheme] = tab.page.evaluate(colour)
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
            tab.page.keyboard.press("t")
            assert tab.page.evaluate(colour) != papers[scheme]
            tab.page.reload()
            assert tab.page.evaluate(colour) != papers[scheme]
            tab.page.keyboard.press("j")
            assert tab.page.evaluate("document.activeElement.id") == "changes"
            tab.page.keyboard.press("/")
            tab.page.keyboard.type("task_3")
            assert set(tab.column("tasks", "task")) == {"task_3"} and tab.is_in_sight("#tasks h3")
            tab.page.keyboard.press("Escape")
            assert len(tab.column("tasks", "task")) == 18
            tab.page.keyboard.press("?")
            assert tab.page.is_visible("#keys")
            tab.page.click("#keys button")
            tab.page.emulate_media(media="print")
            tab.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            assert tab.page.evaluate(colour) == "rgb(255, 255, 255)"
            assert tab.page.evaluate("[...document.querySelectorAll('main details')].every(each => each.open)")
            assert not tab.page.is_visible(".filters >> nth=0") and not tab.page.is_visible(".bar-top nav")
            tab.page.set_viewport_size({"width": 1047, "height": 720})  # A4 across, within its margins
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1047
    assert papers["light"] == "rgb(255, 255, 255)" and papers["dark"] != papers["light"]


def hostile(row: ReportRow, name: str) -> ReportRow:
    """The row with markup and odd characters wherever a model, a task or a user can put a text."""
    bad = BAD + ODD
    violation = Violation(rule=bad, layer="source", file=bad, line=1, message=bad)
    verdicts = {}
    for index, verdict in enumerate(row.verdicts.values()):
        task = f"{bad}{index}"
        graphs = [g.model_copy(update={"graph": bad, "message": bad, "match_report": bad}) for g in verdict.graphs]
        graphs[-1] = graphs[-1].model_copy(update={"violations": [violation]})
        changes = {"task_id": task, "graphs": graphs, "candidate_output": bad, "machine": {bad: bad, "gpu": bad}}
        verdicts[task] = verdict.model_copy(update=changes)
    changes = {"name": name, "verdicts": verdicts, "note": bad, "totals": {bad: 1.0}, "settings": {bad: [bad]}}
    return row.model_copy(update=changes)


def test_nothing_that_anyone_wrote_runs_or_becomes_markup(browser: Any, tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs<b>'\"&")
    inputs = read_inputs([str(run) for run in runs.values()], with_baselines=False)
    rows = [hostile(row, f"{BAD}{ODD}{index}") for index, row in enumerate(inputs.rows)]
    collections = dict(zip([row.name for row in rows], inputs.collections.values(), strict=True))
    for folder in collections.values():
        path = next((folder / "trajectories").glob("*.json"))
        record = json.loads(path.read_text())
        verdict = make_verdict(BAD, Outcome.VIOLATION, message=BAD).model_dump(mode="json")
        record |= {"task_id": BAD + ODD, "trajectory_id": BAD + ODD, "policy": {"model": BAD}, "error": BAD}
        record["evaluations"] = [{"turn": 1, "verdict": verdict, "files": {f"{BAD}.py": BAD + ODD, ODD: BAD}}]
        path.write_text(json.dumps(record | {"best_evaluation": 0, "final_verdict": verdict}))
        (folder / "trajectories" / "<img src=x onerror=alert(1)>.json").write_text(BAD)
    viewer = build_viewer(list(collections.values()), tmp_path / "view<'\"&").page
    report = build_report(rows, title=BAD, run={BAD: BAD}, allow_mixed=True)
    report["warnings"] = [BAD + ODD]
    path = write_report_page(report, tmp_path, ReportSources(rows, collections, viewer))
    count = """() => {
      const all = [...document.querySelectorAll('*')];
      const handlers = all.filter(each => each.getAttributeNames().some(name => name.startsWith('on')));
      return [window.ran === undefined, document.querySelectorAll('img, iframe, svg[onload]').length, handlers.length,
              document.scripts.length];
    }"""
    for tab in open_tab(browser, path, viewport={"width": 1300, "height": 800}):
        tab.open()
        assert tab.page.evaluate(count) == [True, 0, 0, 2]
        tab.page.keyboard.press("e")
        for name in ("graphs", "attempts", "tasks"):
            tab.page.select_option(f"form[data-for={name}-table] [name=row]", index=1)
            assert tab.column(name, "row") and len(set(tab.column(name, "row"))) == 1
        tab.page.evaluate("document.querySelectorAll('.opener').forEach(each => each.click())")
        tab.page.click("#scores-table td a >> nth=1")
        assert tab.page.evaluate(count) == [True, 0, 0, 2]
        shown = tab.page.inner_text("main")
        assert BAD in shown and "[U+202E]detrever" in shown and "\u202e" not in shown and "\x1b" not in shown
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_script_that_slipped_in_would_not_run(tab: Tab, page_path: Path, tmp_path: Path) -> None:
    """The page's policy, should an escape ever be missing: tried on a page that has one on purpose."""
    text = page_path.read_text().replace("<main>", "<main><script>window.ran=1</script><img src=http://127.0.0.1:9/x>")
    tab.path = tmp_path / "page.html"
    tab.path.write_text(text)
    tab.open()
    assert tab.page.evaluate("window.ran === undefined")
    assert len(tab.complaints) == 2 and all("Content Security Policy" in each for each in tab.complaints)
    tab.complaints.clear()
    tab.asked.clear()


@pytest.mark.slow
def test_twenty_thousand_graphs_stay_quick(browser: Any, page_path: Path, tmp_path: Path) -> None:
    text = page_path.read_text()
    head, tail = text.split('id="data">', 1)
    data, rest = tail.split("</script>", 1)
    content = json.loads(data)
    content["graphs"] = [line | {"task": f"{line['task']}_{n}"} for n in range(400) for line in content["graphs"]]
    path = tmp_path / "many.html"
    path.write_text(f'{head}id="data">{json.dumps(content).replace("<", chr(92) + "u003c")}</script>{rest}')
    for tab in open_tab(browser, path):
        tab.open()
        assert "21,600 of 21,600" in tab.page.inner_text("form[data-for=graphs-table]")
        assert len(tab.column("graphs", "row")) == 200  # the others come when they are asked for
        spent = tab.page.evaluate(
            """() => {
              const begin = performance.now();
              for (const state of [{ sort: '-speedup' }, { q: 'task_3_1' }, { row: 'weak', outcome: 'CORRECT' }])
                page.tables.get('graphs').apply(state);
              return (performance.now() - begin) / 3;
            }"""
        )
        assert spent < 1500, spent  # about 60 ms on an idle core
