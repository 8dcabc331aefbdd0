"""`passwright show`: attempts, collections and verdicts at a terminal, and what a model wrote there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from eval_harness.verdict import Outcome
from scripts import cli
from tests.viewer_records import make_trajectory, make_verdict, write_collection
from trajectories.pages.terminal import CLIPPED_CHARS, AttemptText, make_console
from trajectories.record import Message, ToolCall


def show(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = cli.main(["show", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_collection(Path("runs/collect/mine"), [make_trajectory("task", index) for index in range(3)])


def test_an_attempt_is_found_by_id_by_folder_and_by_file(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [
        show(capsys, "task__001"),
        show(capsys, "task__001", "--dir", collection),
        show(capsys, collection / "trajectories" / "task__001.json"),
    ]
    assert {status for status, _, _ in shown} == {0} and len({out for _, out, _ in shown}) == 1
    out = shown[0][1]
    assert out.startswith("trajectory task__001\n")
    assert [f"--- turn {turn} " in out for turn in range(1, 11)] == [True] * 9 + [False]
    assert "-> file_editor: create pass_dir/Fuse.py\n" in out and "def pattern(in_0, in_1):" in out
    assert "-mean /= d\n+mean /= np.float32(d)  # try 4\n" in out  # the edit
    assert "-        mean /= d\n" in out  # and what it changed since the evaluation before
    assert "evaluation 1" in out and "final verdict" in out and "95% interval" in out
    assert "\x1b" not in out  # no terminal, no colours


def test_one_turn(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = show(capsys, "task__000", "--turn", "4")
    assert "--- turn 4" in out and "--- turn 3" not in out and "final verdict" not in out
    status, out, err = show(capsys, "task__000", "--turn", "40")
    assert (status, out) == (2, "") and "--turn 40" in err and "1 to 9" in err


def test_a_collection_is_a_table(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = show(capsys, collection)
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == [
        "attempt",
        *(f"task__00{n}" for n in "012"),
    ]


def test_the_figures_of_a_collection_are_whole_where_names_are_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trajectory = make_trajectory("a_task_with_a_name_as_long_as_those_of_the_bundled_set", 0)
    _, out, _ = show(capsys, write_collection(tmp_path / "c", [trajectory]))
    lines = out.splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 120
    assert "".join(lines[0].split()) == "attemptteacheroutcomeAScoveredturnsUSDstoppedbyselection"
    verdict = trajectory.final_verdict
    assert verdict is not None and lines[1].count(f" {verdict.as_score:.3f} ") >= 1
    assert show(capsys, write_collection(tmp_path / "d", [make_trajectory("t" * 35, 0)]))[1].count(f"{'t' * 35}__000 ")
    assert f" {trajectory.usage.cost_usd:.4f} " in lines[1] and f" {trajectory.stop_reason} " in lines[1]


def test_an_id_that_is_not_there_or_there_twice(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = show(capsys, "task__01", "--dir", collection)
    assert status == 2 and "not among the 3 attempts" in err and "task__001" in err
    status, _, err = show(capsys, "task__001", "--dir", "nowhere")
    assert status == 2 and "--dir nowhere" in err
    write_collection(Path("runs/collect/other"), [make_trajectory("task", 1)])
    status, _, err = show(capsys, "task__001")
    assert status == 2 and "2 collections" in err and "--dir" in err
    assert show(capsys, "task__001", "--dir", "runs/collect/other")[0] == 0


def test_a_verdict_has_no_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(make_verdict("task", Outcome.WRONG_VALUES, message="differs").model_dump_json())
    status, out, _ = show(capsys, path)
    assert status == 0 and "WRONG_VALUES" in out
    assert show(capsys, path, "--turn", "1")[0] == 2
    path.write_text(json.dumps({"trajectory_id": "t"}))
    status, _, err = show(capsys, path)
    assert status == 2 and str(path) in err


def text_of(attempt: AttemptText, *, color: str = "never") -> str:
    file = io.StringIO()
    console = make_console(file, color=color)
    for part in attempt.whole():
        console.print(part)
    return file.getvalue()


def test_what_a_model_wrote_does_not_reach_the_terminal_as_it_is() -> None:
    attempt = make_trajectory("task", 0)
    bad = "\x1b[2J\x1b]0;title\x07 [red]no markup[/red] :smile: \u202e \ud83d \r over"
    attempt.policy["teacher"] = attempt.trajectory_id = attempt.error = bad
    call = ToolCall(id="1", name=bad, arguments=json.dumps({bad: bad}))
    attempt.messages.append(Message(role="assistant", content=bad, reasoning=bad, tool_calls=[call], turn=99))
    for color in ("never", "always"):
        shown = text_of(AttemptText(attempt, color=color == "always"), color=color)
        assert "\x1b[2J" not in shown and "\x1b]0" not in shown and "\u202e" not in shown and "\r" not in shown
        assert "[red]no markup[/red] :smile: [U+202E] \ufffd" in shown
        shown.encode()


def test_long_texts_are_clipped_unless_asked_for_and_lines_stay_whole() -> None:
    attempt = make_trajectory("task", 0)
    attempt.messages[1].content = "y" * (CLIPPED_CHARS + 10)
    assert "[10 more characters; --full shows them]" in text_of(AttemptText(attempt))
    assert "y" * (CLIPPED_CHARS + 10) + "\n" in text_of(AttemptText(attempt, full=True))


def test_colours_are_there_when_asked_for(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = show(capsys, "task__000", "--color", "always")
    assert "\x1b[" in out
    plain = show(capsys, "task__000", "--color", "never")[1]
    assert "\x1b" not in plain
