"""The folder of the viewer: incremental, complete, with the selection's answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from eval_harness.errors import UserError
from eval_harness.verdict import Outcome
from scripts import cli
from tests.test_agent_evolve import SMALL
from tests.test_agent_evolve import model as evolve_model
from tests.test_agent_evolve import run as run_evolve
from tests.test_agent_ksearch import model as ksearch_model
from tests.test_agent_ksearch import run as run_ksearch
from tests.viewer_records import make_trajectory, make_verdict, write_collection
from trajectories.pages import sections
from trajectories.pages.code import code_block, diff_lines, highlight, plain_html, visible
from trajectories.pages.conversation import split_conversation
from trajectories.pages.prose import prose_html
from trajectories.pages.tool_calls import read_call
from trajectories.pages.verdict_card import MAX_SHOWN_GRAPHS, verdict_card
from trajectories.pages.viewer import Preset, build_viewer
from trajectories.record import Message, ToolCall, Trajectory
from trajectories.selection import SelectionConfig, select_trajectories
from trajectories.selection_choice import SAME_CONVERSATION
from trajectories.store import TrajectoryStore, load_trajectories

OUR_TAG = re.compile(r"</?(span|pre|code|div)( class=\"[a-z-]+\")?( aria-hidden=\"true\")?>")


def entries_of(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for script in sorted((out / "data").glob("*.js")):
        text = script.read_text()
        found += json.loads(text.removeprefix("passwright.addEntries(").removesuffix(");\n"))
    return found


def page_of(out: Path, entry: dict[str, Any]) -> str:
    text = (out / entry["page"]).read_text()
    script, html = json.loads(text.replace("passwright.addPage(", "[", 1).removesuffix(");\n") + "]")
    assert script == entry["page"]
    return html


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    attempts = [make_trajectory(f"task_{task}", attempt) for task in range(3) for attempt in range(2)]
    return write_collection(tmp_path / "mine", attempts)


def test_every_attempt_is_listed_with_the_figures_of_its_record(collection: Path, tmp_path: Path) -> None:
    summary = build_viewer([collection], tmp_path / "out")
    entries = {entry["attempt_id"]: entry for entry in entries_of(tmp_path / "out")}
    records = {record.trajectory_id: record for record in load_trajectories(collection)}
    assert (summary.num_attempts, summary.num_rendered, summary.unreadable) == (6, 6, [])
    assert list(entries) == sorted(records)
    for name, record in records.items():
        assert record.final_verdict is not None
        entry = entries[name]
        assert entry["as_score"] == record.final_verdict.as_score
        assert entry["num_turns"] == record.num_turns
        assert entry["teacher"] == record.policy["teacher"]
        assert sum(entry["outcomes"].values()) == len(record.final_verdict.graphs)


@pytest.mark.parametrize("preset", ["strict", "paper"])
def test_kept_and_refused_are_the_selections_answers(collection: Path, tmp_path: Path, preset: Preset) -> None:
    config = SelectionConfig(preset=preset, near_duplicates=None)
    repeated = select_trajectories(load_trajectories(collection), config).kept[0].trajectory
    again = repeated.model_copy(update={"trajectory_id": f"{repeated.trajectory_id}_again"})
    write_collection(collection, [again])
    build_viewer([collection], tmp_path / "out", preset=preset)
    entries = entries_of(tmp_path / "out")
    selection = select_trajectories(load_trajectories(collection), config)
    kept = {selected.trajectory.trajectory_id for selected in selection.kept}
    assert {entry["attempt_id"] for entry in entries if entry.get("kept")} == kept
    refused = {entry["attempt_id"]: entry["why"] for entry in entries if not entry.get("kept")}
    assert Counter(refused.values()) == selection.refused
    assert refused[again.trajectory_id] == SAME_CONVERSATION


def test_a_second_build_renders_what_has_changed_alone(collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build_viewer([collection], out)
    stamps = {path.name: path.stat().st_mtime_ns for path in (out / "attempts").iterdir()}
    assert build_viewer([collection], out).num_rendered == 0
    changed = make_trajectory("task_1", 1, num_turns=11)
    write_collection(collection, [changed, make_trajectory("task_9", 0)])
    next((collection / "trajectories").glob("task_2__000*")).unlink()
    summary = build_viewer([collection], out)
    assert (summary.num_attempts, summary.num_rendered) == (6, 2)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "attempts").iterdir()}
    assert len(after) == 6 and not any(name.startswith("task_2__000") for name in after)
    assert sum(stamps.get(name) == stamp for name, stamp in after.items()) == 4
    assert {entry["attempt_id"]: entry["num_turns"] for entry in entries_of(out)}["task_1__001"] == 11
    # another selection is another page
    assert build_viewer([collection], out, preset="paper").num_rendered == 6


def test_an_interrupted_build_goes_on(collection: Path, tmp_path: Path) -> None:
    def stop_after_four(entries: Any, total: int) -> Any:
        for number, entry in enumerate(entries, start=1):
            yield entry
            if number == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_viewer([collection], tmp_path / "out", watch=stop_after_four)
    assert build_viewer([collection], tmp_path / "out").num_rendered == 2


def test_workers_write_what_one_process_writes(collection: Path, tmp_path: Path) -> None:
    build_viewer([collection], tmp_path / "one", num_workers=1)
    build_viewer([collection], tmp_path / "two", num_workers=2)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")]
    assert len(files) > 12
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_record_that_cannot_be_read_is_listed_with_the_reason(collection: Path, tmp_path: Path) -> None:
    broken = collection / "trajectories" / "broken.json"
    broken.write_text("{")
    lost = make_trajectory("lost", 0).model_dump(mode="json") | {"best_evaluation": 99}
    (collection / "trajectories" / "lost.json").write_text(json.dumps(lost))
    summary = build_viewer([collection], tmp_path / "out")
    assert summary.num_attempts == 8 and len(summary.unreadable) == 2
    entries = {entry["attempt_id"]: entry for entry in entries_of(tmp_path / "out")}
    assert entries["broken"]["outcome"] == "UNREADABLE" and str(broken) in entries["broken"]["why"]
    assert "best_evaluation 99" in entries["lost"]["why"] and "page" not in entries["lost"]


def test_collections_of_one_name_keep_apart(tmp_path: Path) -> None:
    folders = [write_collection(tmp_path / side / "run", [make_trajectory("task", 0)]) for side in ("a", "b")]
    summary = build_viewer([*folders, folders[0]], tmp_path / "out")
    entries = entries_of(tmp_path / "out")
    assert summary.num_attempts == 2
    assert [entry["key"] for entry in entries] == ["run/task__000", "b/run/task__000"]
    assert len({entry["page"] for entry in entries}) == 2


def test_wrong_folders_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection = write_collection(tmp_path / "mine", [make_trajectory("task", 0)])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds something else"):
        build_viewer([collection], tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    assert cli.main(["view", str(tmp_path / "full"), "--out", str(tmp_path / "out")]) == 2
    assert "passwright collect" in capsys.readouterr().err
    assert cli.main(["view", str(collection), "--out", str(tmp_path / "out"), "--workers", "0"]) == 2
    capsys.readouterr()
    assert cli.main(["view", str(collection), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(tmp_path / "out" / "index.html")
    assert "1 attempts (1 rendered" in captured.err


def test_an_attempts_page_shows_conversation_diffs_verdicts_and_cost(tmp_path: Path) -> None:
    attempt = make_trajectory("task", 0)
    collection = write_collection(tmp_path / "mine", [attempt])
    build_viewer([collection], tmp_path / "out")
    html = page_of(tmp_path / "out", entries_of(tmp_path / "out")[0])
    assert [f'id="turn-{turn}"' in html for turn in range(1, 11)] == [True] * 9 + [False]
    assert html.count('<div class="verdict">') == len(attempt.evaluations) + 1
    assert '<span class="t-k">def' in html  # highlighted
    assert '<span class="remove">-mean /= d' in html and '<span class="add">+mean /= np.float32(d)' in html
    assert "Changes since the evaluation before" in html
    assert f"{attempt.usage.cost_usd:.4f} USD" in html and f"{attempt.usage.input_tokens:,}" in html
    assert str(attempt.stop_reason) in html
    assert 'class="chart"' in html and 'class="reasoning"' in html


def test_an_attempt_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    begun = Trajectory(
        trajectory_id="t", task_id="t", task_hash="0", graph_hashes={}, attempt_index=0, policy={"kind": "scripted"}
    )
    build_viewer([write_collection(tmp_path / "mine", [begun])], tmp_path / "out")
    (entry,) = entries_of(tmp_path / "out")
    assert (entry["outcome"], entry["stop"], entry["why"]) == ("NOT_EVALUATED", "RUNNING", "not finished (interrupted)")
    assert "still running" in page_of(tmp_path / "out", entry)


def test_an_agent_adds_a_section_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = make_trajectory("task", 0)
    attempt.agent, attempt.agent_state = "tree", {"nodes": ["<root>"]}
    assert "&lt;root&gt;" in sections.render_attempt(attempt, key="k")  # plain data where no section shows it
    monkeypatch.setattr(sections, "AGENTS_WITH_SECTIONS", {"tree"})
    tree = sections.Section("tree", "Tree", lambda record, link: Markup("<p>%s</p>") % record.agent_state["nodes"][0])
    monkeypatch.setattr(sections, "SECTIONS", [*sections.SECTIONS, tree])
    html = sections.render_attempt(attempt, key="k")
    assert '<section id="tree"' in html and "<p>&lt;root&gt;</p>" in html and 'id="state"' not in html


def test_a_search_shows_its_candidates_and_plans() -> None:
    evolved = run_evolve({**SMALL, "recommendations": ["<b>wide</b> loads"]}, evolve_model())
    html = sections.render_attempt(evolved, key="mine/k")
    assert '<section id="search"' in html and "7 written, 5 judged, 2 ranked" in html and 'id="state"' not in html
    assert "&lt;b&gt;wide&lt;/b&gt; loads" in html and "<b>wide" not in html
    assert 'href="#attempt=mine%2Fk&amp;turn=3"' in html and html.count("the best</span>") >= 1
    planned = run_ksearch(ksearch_model())
    html = sections.render_attempt(planned, key="k")
    assert "<h3>Plans</h3>" in html and "rows, two at a time" in html and "stagnated" in html
    planned.agent_state = {"archive": [{"id": "odd"}], "plans": 3}
    broken = sections.render_attempt(planned, key="k")
    assert '<section id="search"' not in broken and '<section id="state"' in broken


def test_each_request_of_a_search_stands_in_its_own_turn() -> None:
    evolved = run_evolve(SMALL, evolve_model())
    _, turns = split_conversation(evolved)
    assert [turn.number for turn in turns] == list(range(1, 8))
    assert all(turn.others[0].content.startswith("Request: improve") for turn in turns[1:])


def test_no_message_is_left_out_whatever_its_order() -> None:
    attempt = make_trajectory("task", 0, num_turns=5)
    messages = [
        *attempt.messages,
        Message(role="user", content="late", turn=5),
        Message(role="tool", content="orphan", tool_call_id="nobody", turn=6),
        Message(role="assistant", content="after all", turn=None),
    ]
    attempt.messages = messages
    prompt, turns = split_conversation(attempt)
    shown = [*prompt]
    for turn in turns:
        shown += [*turn.answers, *(call.reply for call in turn.calls if call.reply), *turn.others]
    assert sorted(map(id, shown)) == sorted(map(id, messages))


def test_a_verdict_of_many_graphs_is_short_in_the_conversation_and_whole_at_the_end() -> None:
    verdict = make_verdict("task", Outcome.WRONG_VALUES, num_graphs=396, message="differs")
    short = verdict_card(verdict, {}, title="Evaluation 1")
    assert short.count("<tr>") == MAX_SHOWN_GRAPHS + 2 and "and 372 CORRECT" in short
    assert short.index("WRONG_VALUES</span></td>") < short.index("CORRECT</span></td>")  # failures first
    assert verdict_card(verdict, {}, title="Final", all_graphs=True).count("<tr>") == 397


@given(st.text(alphabet=st.characters(), max_size=300))
def test_no_text_becomes_markup(text: str) -> None:
    """Whatever a model writes, the tags on the page are ours alone, and the letters are still there."""
    for html in (highlight(text, "python"), plain_html(text), prose_html(text), code_block(text, "json")):
        assert all(OUR_TAG.fullmatch(tag) for tag in re.findall(r"<[^>]*>", html))
    shown = re.sub(r"<[^>]*>", "", plain_html(text))
    assert Markup(shown).unescape() == visible(text.replace("\r\n", "\n"))
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", visible(text))


@given(st.text(max_size=200))
def test_any_arguments_of_a_call_are_shown(arguments: str) -> None:
    for name in ("file_editor", "pass_evaluator", "other"):
        view = read_call(ToolCall(id="1", name=name, arguments=arguments))
        assert view.title
        assert view.is_readable or view.blocks[0].text == arguments


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30))
def test_a_diff_says_all_that_changed(before: list[str], after: list[str]) -> None:
    lines = diff_lines("\n".join(before), "\n".join(after))
    assert bool(lines) == (before != after and "\n".join(before) != "\n".join(after))
    added = sum(line.kind == "add" for line in lines) - sum(line.kind == "remove" for line in lines)
    if lines:
        assert added == max(len(after), 1) - max(len(before), 1)


def test_a_running_attempt_is_rendered_again_when_its_journal_has_grown(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "c")
    store.open_for_writing({})
    attempt = make_trajectory("t", 0).model_copy(update={"stop_reason": None, "final_verdict": None})
    store.write(attempt)
    assert build_viewer([store.root], tmp_path / "out").num_rendered == 1
    attempt.messages.append(Message(role="user", content="one more word"))
    store.write(attempt)
    assert build_viewer([store.root], tmp_path / "out").num_rendered == 1
    assert "one more word" in page_of(tmp_path / "out", entries_of(tmp_path / "out")[0])
    assert build_viewer([store.root], tmp_path / "out").num_rendered == 0
