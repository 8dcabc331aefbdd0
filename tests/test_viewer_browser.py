"""The viewer in a real Chromium, opened from disk: nothing is fetched or fails, nothing that a model wrote runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_harness.verdict import Violation
from tests.test_agent_evolve import SMALL
from tests.test_agent_evolve import model as evolve_model
from tests.test_agent_evolve import run as run_evolve
from tests.test_agent_ksearch import model as ksearch_model
from tests.test_agent_ksearch import run as run_ksearch
from tests.viewer_records import make_trajectory, make_verdict, write_collection
from trajectories.pages.viewer import build_viewer
from trajectories.record import Message, ToolCall, Trajectory
from trajectories.store import TrajectoryStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

BAD = "<script>window.ran=1</script><img src=x onerror='window.ran=2'></script><svg onload=window.ran=3>\"'`${1}&amp;"
ODD = "\u202edetrever\u2066 \ud83d \u2028\u2029 \x00\x1b[31m \U0001f600 e\u0301 \ufeff"
HUGE_LINE = "x = 1;" * 60_000


class Tab:
    """One page, with everything that it asked for or complained about.

    Tests wait with `expect` and `wait_for_selector`: a predicate given to `wait_for_function` is evaluated by the page
    at every poll after its first, which the page's own content security policy forbids.
    """

    def __init__(self, page: Any, root: Path) -> None:
        self.page, self.root = page, root
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{(self.root / 'index.html').as_uri()}{address}")

    def rows(self) -> list[str]:
        """Task and number of the rows in the document."""
        return self.page.eval_on_selector_all(
            "#rows tr[data-index]", "rows => rows.map(row => row.cells[0].innerText + ' ' + row.cells[1].innerText)"
        )

    def column(self, name: str) -> list[str]:
        return self.page.evaluate(
            """name => {
              const index = [...document.querySelectorAll('#rows thead th')].findIndex(th => th.dataset.name === name);
              return [...document.querySelectorAll('#rows tr[data-index]')].map(row => row.cells[index].innerText);
            }""",
            name,
        )

    def shown(self) -> int:
        return int(self.page.inner_text("#shown").split()[0].replace(",", ""))

    def address(self) -> str:
        return self.page.evaluate("decodeURIComponent(location.hash)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("viewer")
    attempts = [
        make_trajectory(f"task_{task:02d}", attempt, num_turns=9 + task) for task in range(12) for attempt in (0, 1)
    ]
    build_viewer([write_collection(root / "mine", attempts)], root / "out")
    return root / "out"


@pytest.fixture
def tab(browser: Any, built: Path) -> Iterator[Tab]:
    """Fails the test that leaves a complaint, or that reads anything but the folder's own files."""
    yield from open_tab(browser, built)


def open_tab(browser: Any, root: Path, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    context.set_default_timeout(10_000)
    tab = Tab(context.new_page(), root)
    yield tab
    context.close()
    assert tab.complaints == []
    assert [url for url in tab.asked if url != "about:blank" and not url.startswith(root.as_uri())] == []


def test_the_list_opens_from_disk_and_is_filtered(tab: Tab, built: Path) -> None:
    tab.open()
    assert tab.shown() == 24 and tab.rows()[:3] == ["task_00 0", "task_00 1", "task_01 0"]
    tab.page.fill("[name=q]", "TASK 07")
    assert tab.rows() == ["task_07 0", "task_07 1"]
    tab.page.fill("[name=q]", "nothing like it")
    assert tab.rows() == [] and tab.page.is_visible("#nothing")
    tab.page.click("[type=reset]")
    assert tab.shown() == 24
    text = (built / "data" / "list-000.js").read_text()
    entries = json.loads(text.removeprefix("passwright.addEntries(").removesuffix(");\n"))
    for name, value, expected in [
        ("teacher", "glm-4.6", lambda entry: entry["teacher"] == "glm-4.6"),
        ("outcome", "all CORRECT", lambda entry: entry["outcome"] == "CORRECT"),
        ("violations", "some", lambda entry: entry.get("num_violations", 0) > 0),
        ("violations", "none", lambda entry: entry.get("num_violations", 0) == 0),
        ("violations", "source.call", lambda entry: "source.call" in entry.get("rules", [])),
        ("kept", "kept", lambda entry: entry.get("kept", False)),
        ("kept", "refused", lambda entry: not entry.get("kept", False)),
        ("stop", "TURN_LIMIT", lambda entry: entry["stop"] == "TURN_LIMIT"),
    ]:
        tab.page.select_option(f"[name={name}]", value=value)
        wanted = sum(map(expected, entries))
        assert 0 < wanted < 24 and tab.shown() == wanted, (name, value)
        tab.page.click("[type=reset]")
        assert tab.shown() == 24
    tab.page.fill("[name=min]", "19")
    assert {row.split()[0] for row in tab.rows()} == {"task_10", "task_11"}


def test_sorting_and_the_address_of_a_list(tab: Tab) -> None:
    tab.open()
    for name in ("as", "covered", "outcome", "teacher", "violations", "turns", "cost"):
        tab.page.click(f"th[data-name={name}] button")
        values = tab.column(name)
        if name in ("as", "covered", "turns", "cost"):
            numbers = [float(value) for value in values]
            assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) > 3, name
        elif name == "teacher":
            assert values == sorted(values)
        elif name == "outcome":
            assert values[0] == "CORRECT" and values[-1] != "CORRECT"
        assert tab.page.get_attribute(f"th[data-name={name}]", "aria-sort") is not None
    tab.page.click("th[data-name=cost] button")
    numbers = [float(value) for value in tab.column("cost")]
    assert numbers == sorted(numbers) and "sort=cost" in tab.address()
    tab.open("#teacher=glm-4.6&sort=-turns")
    assert set(tab.column("teacher")) == {"glm-4.6"} and tab.column("turns")[0] >= tab.column("turns")[-1]
    assert tab.page.input_value("[name=teacher]") == "glm-4.6"


def test_a_deep_link_opens_a_turn(tab: Tab) -> None:
    for name in ("mine/task_05__001", "task_05__001"):
        tab.open(f"#attempt={name}&turn=7")
        tab.page.wait_for_selector("#turn-7.here")
        top = tab.page.evaluate("document.getElementById('turn-7').getBoundingClientRect().top")
        assert 0 <= top < 120
        assert "task_05" in tab.page.inner_text("#attempt h1")
        assert tab.page.inner_text("[data-row=selection]").startswith(("kept", "refused"))
    prompt = "getComputedStyle(document.querySelector('.prompt > .prose')).fontFamily"
    assert "monospace" in tab.page.evaluate(prompt)  # it holds the graph's listing
    tab.page.click(".turns a[data-turn='3']")
    tab.page.wait_for_selector("#turn-3.here")
    tab.open("#attempt=of-another-page")
    assert "No attempt of-another-page" in tab.page.inner_text("#attempt")


def test_the_keyboard(tab: Tab) -> None:
    tab.open("#sort=-turns")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("task_1")
    tab.page.keyboard.press("Enter")
    assert tab.shown() == 4
    tab.page.keyboard.press("j")
    assert tab.page.inner_text("#rows tr.chosen td") == "task_11"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#attempt h1")
    assert "attempt=mine/task_11__001" in tab.address()
    tab.page.keyboard.press("j")
    tab.page.wait_for_selector("#turn-1.here")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("k")
    tab.page.wait_for_selector("#turn-2.here")
    assert tab.address().endswith("&turn=2")
    assert not tab.page.evaluate("document.querySelector('.reasoning').open")
    tab.page.keyboard.press("r")
    assert tab.page.evaluate("[...document.querySelectorAll('.reasoning')].every(each => each.open)")
    tab.page.keyboard.press("]")  # along the list as filtered and sorted
    sync_api.expect(tab.page).to_have_title(re.compile("^task_10"))
    tab.page.keyboard.press("[")
    sync_api.expect(tab.page).to_have_title(re.compile("^task_11"))
    tab.page.keyboard.press("u")
    tab.page.wait_for_selector("#list:not([hidden])")
    assert tab.shown() == 4 and tab.page.input_value("[name=q]") == "task_1"
    tab.page.keyboard.press("?")
    assert tab.page.is_visible("#keys")
    tab.page.keyboard.press("Escape")
    assert not tab.page.is_visible("#keys")


def test_a_search_links_its_candidates_to_their_turns(browser: Any, tmp_path: Path) -> None:
    attempts = [run_evolve(SMALL, evolve_model()), run_ksearch(ksearch_model())]
    for number, attempt in enumerate(attempts):
        attempt.trajectory_id = attempt.task_id = f"search_{number}"
    build_viewer([write_collection(tmp_path / "mine", attempts)], tmp_path / "out")
    for tab in open_tab(browser, tmp_path / "out"):
        tab.open("#attempt=search_1")
        tab.page.wait_for_selector("#search table")
        assert "refines 0" in tab.page.inner_text("#search") and "rows, two at a time" in tab.page.inner_text("#search")
        tab.page.click("#search table a >> nth=3")
        tab.page.wait_for_selector("#turn-6.here")
        tab.open("#attempt=search_0")
        tab.page.wait_for_selector("#search table")
        assert tab.page.locator("#search tbody tr").count() == 7


def test_light_dark_narrow_and_paper(browser: Any, built: Path) -> None:
    papers = {}
    for scheme in ("light", "dark"):
        for tab in open_tab(browser, built, color_scheme=scheme, viewport={"width": 380, "height": 800}):
            tab.open("#attempt=task_03__000")
            tab.page.wait_for_selector("#attempt h1")
            papers[scheme] = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            width = tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 380, "the page itself must not scroll sideways"
            tab.page.keyboard.press("t")
            assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != papers[scheme]
            tab.page.reload()
            tab.page.wait_for_selector("#attempt h1")
            assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != papers[scheme]
            tab.page.emulate_media(media="print")
            assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            tab.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            assert tab.page.evaluate("[...document.querySelectorAll('#attempt details')].every(each => each.open)")
            assert not tab.page.is_visible("#attempt-view .bar-top")
    assert papers["light"] == "rgb(255, 255, 255)" and papers["dark"] != papers["light"]


def hostile_trajectory() -> Trajectory:
    """Every text that a model, a task or a file's name can bring, with markup, odd characters and huge lines."""
    text = f"{BAD}\n```{BAD}\n{BAD}\n```\n{ODD}\n{HUGE_LINE}"
    attempt = make_trajectory("task", 0, num_turns=6)
    attempt.trajectory_id = attempt.task_id = f"{BAD}{ODD}"
    attempt.policy = {"kind": BAD, "model": BAD, "teacher": f"{BAD}{ODD}", BAD: ODD}
    attempt.agent = attempt.protocol = attempt.device = attempt.error = attempt.prompt_version = BAD + ODD
    attempt.agent_state = {BAD: {ODD: [BAD, ODD]}}
    attempt.versions = attempt.machine = attempt.graph_hashes = {BAD: ODD}
    create = {"command": "create", "path": f"pass_dir/{BAD}{ODD}.py", "file_text": text}
    replace = {"command": "str_replace", "path": BAD, "old_str": text, "new_str": f"{text}{BAD}"}
    calls = [
        *(ToolCall(id=BAD, name=name, arguments=json.dumps(create)) for name in ("file_editor", BAD)),
        ToolCall(id=ODD, name="file_editor", arguments=json.dumps(replace)),
        ToolCall(id="3", name=BAD, arguments=text),
    ]
    attempt.messages += [
        Message(role="assistant", content=text, reasoning=text, tool_calls=calls, finish_reason=BAD, turn=7),
        Message(role="tool", content=text, tool_call_id=BAD, name=BAD, turn=7),
        Message(role=BAD, content=text, name=BAD, turn=7),
    ]
    attempt.messages[0].content = attempt.messages[1].content = text
    violation = Violation(rule=BAD, layer="source", file=f"{BAD}.py", line=1, message=BAD + ODD)
    for record in attempt.evaluations:
        record.files = {f"{BAD}.py": text, ODD: text + str(record.turn)}
        verdict = make_verdict(BAD, record.verdict.graphs[-1].outcome, message=BAD, candidate_output=text)
        verdict.violations = [violation]
        for graph in verdict.graphs:
            graph.graph, graph.match_report = BAD + ODD, text
        record.verdict = verdict
    attempt.final_verdict = attempt.evaluations[0].verdict
    attempt.best_evaluation = 0
    return attempt


def test_nothing_that_a_model_wrote_runs_or_becomes_markup(browser: Any, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "mine<b>'\"&", [make_trajectory("plain", 0)])
    record = json.dumps(hostile_trajectory().model_dump())  # half characters as escapes, as JSON may hold them
    path = TrajectoryStore(folder).path("x")
    path.with_name("a'\"<img src=x onerror=alert(1)>&#?%41.json").write_text(record)
    (path.with_name("<script>broken.json")).write_text(BAD)
    summary = build_viewer([folder], tmp_path / "out")
    assert (summary.num_attempts, len(summary.unreadable)) == (3, 1)
    for tab in open_tab(browser, tmp_path / "out"):
        tab.open()
        assert tab.shown() == 3
        count_tags = """() => {
          const all = [...document.querySelectorAll('*')];
          const handlers = all.filter(each => each.getAttributeNames().some(name => name.startsWith('on')));
          const foreign = document.querySelectorAll('img, iframe, svg[onload], script:not([src])');
          return [window.ran === undefined, foreign.length, handlers.length];
        }"""
        assert tab.page.evaluate(count_tags) == [True, 0, 0]
        keys = tab.page.evaluate("passwright.entries.filter(entry => entry.page).map(entry => entry.key)")
        (hostile,) = (key for key in keys if "window.ran=1" in key)
        tab.page.evaluate("key => { location.hash = attemptLink(passwright.find(key)); }", hostile)
        tab.page.wait_for_selector("#attempt h1")
        tab.page.keyboard.press("e")
        assert tab.page.evaluate(count_tags) == [True, 0, 0]
        shown = tab.page.inner_text("#attempt")
        assert BAD in shown  # to be read, letter by letter
        assert "[U+202E]detrever" in shown and "\u202e" not in shown and "\x1b" not in shown
        assert "more characters]" in shown
        assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.slow
def test_five_thousand_attempts_stay_quick(browser: Any, built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "out")
    text = (built / "data" / "list-000.js").read_text()
    entries = json.loads(text.removeprefix("passwright.addEntries(").removesuffix(");\n"))
    many = [
        {**entry, "key": f"{number}/{entry['key']}", "task": f"{entry['task']}_{number:03d}"}
        for number in range(209)
        for entry in entries
    ]
    (tmp_path / "out" / "data" / "list-000.js").write_text(f"passwright.addEntries({json.dumps(many)});\n")
    for tab in open_tab(browser, tmp_path / "out"):
        tab.open()
        assert tab.shown() == 5016 and len(tab.rows()) < 120  # of which only those in sight are in the document
        tab.page.evaluate("document.getElementById('rows').scrollTop = 1e9")
        tab.page.wait_for_selector("#rows tr[data-index='5015']", state="attached")
        milliseconds = tab.page.evaluate(
            """() => {
              const begin = performance.now();
              const states = [{ sort: '-as' }, { q: 'task_07' }, { sort: 'teacher', violations: 'some' }];
              for (const state of states) applyFilters(state);
              return (performance.now() - begin) / states.length;
            }"""
        )
        assert milliseconds < 500, milliseconds  # about 20 on an idle core
        assert tab.rows()
