"""The workspace cannot be left, and the tools answer a mistake with what was wrong."""

import json
import re

import pytest

from eval_harness.candidate import MalformedCandidateError
from tests.canned_evaluator import make_task, pass_files
from trajectories.record import ToolCall
from trajectories.tools import TOOLS, MalformedCallError, clip, edit_files, parse_arguments
from trajectories.workspace import MAX_FILE_CHARS, Workspace, WorkspaceError, clean_path


@pytest.fixture
def workspace():
    return Workspace(make_task(num_graphs=12))


def edit(workspace, command, path, **arguments):
    call = ToolCall(id="c", name="file_editor", arguments=json.dumps({"command": command, "path": path, **arguments}))
    return edit_files(workspace, parse_arguments(call))


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "pass_dir/../../x",
        "pass_dir/../graphs/0/model.py",
        "/etc/passwd",
        "~/x",
        "pass_dir/a\\b",
        "pass_dir/a\x00",
        "pass_dir/\n.py",
        "pass_dir/ä.py",
        "pass_dir/a b.py",
        "pass_dir/.hidden",
        "a" * 300,
    ],
)
def test_paths_that_leave_or_confuse_are_refused(workspace, path):
    for command, arguments in (("create", {"file_text": "x"}), ("view", {}), ("undo", {})):
        assert edit(workspace, command, path, **arguments).startswith("error: ")
    assert workspace.pass_files == {}


def test_only_pass_dir_is_writable(workspace):
    before = dict(workspace.task_files)
    for path in ("graphs/0/model.py", "graphs/99/x.py", "x.py", "pass_dir", "pass_dirx/a.py", "."):
        assert "read-only" in edit(workspace, "create", path, file_text="x")
    assert "read-only" in edit(workspace, "str_replace", "graphs/0/model.py", old_str="import torch", new_str="")
    assert dict(workspace.task_files) == before and workspace.pass_files == {}


def test_paths_have_one_spelling(workspace):
    edit(workspace, "create", "./pass_dir//Fuse.py", file_text="a")
    assert clean_path("pass_dir/./Fuse.py") == "pass_dir/Fuse.py"
    assert workspace.pass_files == {"Fuse.py": "a"}


def test_task_files_are_listed_and_read(workspace):
    listing = edit(workspace, "view", "graphs").split("\n")
    assert [line for line in listing if line.endswith("model.py")] == [f"graphs/{i}/model.py" for i in range(12)]
    assert edit(workspace, "view", "graphs/index.txt").split("\n")[11] == "12\tgraphs/11\tg11"
    assert edit(workspace, "view", "graphs/3/model.py", view_range=[1, 1]) == "1\timport torch"
    assert "layer_norm(tmp_0, (32,)" in edit(workspace, "view", "graphs/3/model.py")
    assert "graphs/0/model.py" in edit(workspace, "view", ".")
    assert edit(workspace, "view", "pass_dir") == "pass_dir is empty"


def test_edits_and_undo(workspace):
    path = "pass_dir/Fuse.py"
    assert edit(workspace, "create", path, file_text="a = 1\nb = 2\n") == f"created {path}"
    assert edit(workspace, "str_replace", path, old_str="b = 2", new_str="b = 3") == f"edited {path} at line 2"
    edit(workspace, "insert", path, insert_line=1, insert_text="mid")
    edit(workspace, "insert", path, insert_line=0, insert_text="top\n")
    edit(workspace, "insert", path, insert_line=4, insert_text="end")
    assert workspace.read(path) == "top\na = 1\nmid\nb = 3\nend"
    for _ in range(4):
        edit(workspace, "undo", path)
    assert workspace.read(path) == "a = 1\nb = 2\n"
    assert "gone" in edit(workspace, "undo", path)
    assert "no edit to undo" in edit(workspace, "undo", path)


def test_line_numbers_of_view_and_insert_agree_on_odd_separators(workspace):
    path = "pass_dir/a.py"
    edit(workspace, "create", path, file_text="a\x0cb\u2028c\nd\n")
    assert edit(workspace, "view", path).count("\n") == 1
    edit(workspace, "insert", path, insert_line=1, insert_text="x\n")
    assert workspace.read(path) == "a\x0cb\u2028c\nx\nd\n"


def test_failed_edits_change_nothing(workspace):
    path = "pass_dir/a.py"
    edit(workspace, "create", path, file_text="x x\n")
    assert "occurs 2 times, at lines 1, 1, in" in edit(workspace, "str_replace", path, old_str="x", new_str="y")
    assert "does not occur in" in edit(workspace, "str_replace", path, old_str="z", new_str="y")
    assert "line 1 is the same but for white space" in edit(workspace, "str_replace", path, old_str="  x x", new_str="")
    assert "old_str is empty" in edit(workspace, "str_replace", path, old_str="", new_str="y")
    assert "has 1 lines" in edit(workspace, "insert", path, insert_line=2, insert_text="y")
    assert "lines 1 to 1" in edit(workspace, "view", path, view_range=[2, 3])
    assert "no such file" in edit(workspace, "view", "pass_dir/b.py")
    assert "is a file" in edit(workspace, "create", "pass_dir/a.py/b.py", file_text="")
    assert workspace.read(path) == "x x\n"


def test_sizes_are_limited(workspace):
    assert "a file may hold" in edit(workspace, "create", "pass_dir/a.py", file_text="x" * (MAX_FILE_CHARS + 1))
    for i in range(64):
        workspace.write(f"pass_dir/f{i}.py", "")
    with pytest.raises(WorkspaceError, match="64 files"):
        workspace.write("pass_dir/one_more.py", "")
    for i in range(10):
        workspace.write(f"pass_dir/f{i}.py", "x" * MAX_FILE_CHARS)
    with pytest.raises(WorkspaceError, match="would hold more"):
        workspace.write("pass_dir/f10.py", "x")
    with pytest.raises(WorkspaceError, match="UTF-8"):
        workspace.write("pass_dir/f11.py", "\ud800")


def test_replies_are_clipped_with_a_hint(workspace):
    edit(workspace, "create", "pass_dir/long.py", file_text="line of text\n" * 2000)
    reply = edit(workspace, "view", "pass_dir/long.py")
    assert len(reply) <= 4000 and "view_range" in reply.split("\n")[-1]
    assert clip("short", 100, "x") == "short"
    assert len(clip("x" * 500, 60, "a hint that is itself longer than the limit that was asked for")) <= 60


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("file_edit", "{}", "no tool 'file_edit'; did you mean 'file_editor'"),
        ("str_replace", "{}", "write file_editor {"),
        ("browser", "{}", "the tools are file_editor and pass_evaluator"),
        ("file_editor", '{"command": "view"', "not JSON"),
        ("file_editor", "[1]", "must be a JSON object"),
        ("file_editor", '{"command": "delete", "path": "x"}', "choose one of"),
        ("file_editor", '{"command": ["view"], "path": "x"}', "choose one of"),
        ("file_editor", '{"command": "replace", "path": "x"}', "did you mean 'str_replace'"),
        ("file_editor", '{"command": "create", "path": "pass_dir/x"}', "'file_text' is missing; write {"),
        ("file_editor", '{"command": "view"}', "'path' is missing"),
        ("file_editor", '{"command": "view", "path": "x", "mode": 1}', "unknown argument 'mode'; write {"),
        ("file_editor", '{"command": "view", "path": "x", "old_str": "y"}', "does not belong"),
        ("file_editor", '{"command": "str_replace", "path": "x", "old_string": "y"}', "did you mean 'old_str'"),
        ("file_editor", '{"command": "insert", "path": "x"}', "'insert_line' and 'insert_text' are missing"),
        ("file_editor", '{"command": "create", "path": "x", "file_text": "a\nb"}', "write a new line in a string as"),
        ("file_editor", '{"command": "create", "path": "x", "file_text": "abc', "ends too early"),
        ("file_editor", "{'command': 'view'}", "double quotes"),
        ("file_editor", '{"command": "view", "path": "x"}{}', "one call holds one object"),
        ("file_editor", '{"command": "view", "path": 3}', "must be a string, not the number 3"),
        (
            "file_editor",
            '{"command": "view", "path": "x", "view_range": [1, true]}',
            "must be a list of integers, not the list [1, True]",
        ),
        ("file_editor", '{"command": "insert", "path": "x", "insert_line": ' + "9" * 5000 + "}", "not JSON"),
        ("pass_evaluator", '{"path": "x"}', "takes no arguments"),
    ],
)
def test_malformed_calls_say_what_was_wrong(name, arguments, fault):
    with pytest.raises(MalformedCallError, match=re.escape(fault)):
        parse_arguments(ToolCall(id="c", name=name, arguments=arguments))


def test_nulls_and_empty_arguments_stand_for_not_given():
    assert parse_arguments(ToolCall(id="c", name="pass_evaluator", arguments="")) == {}
    call = ToolCall(id="c", name="file_editor", arguments='{"command": "view", "path": "x", "view_range": null}')
    assert parse_arguments(call) == {"command": "view", "path": "x"}


def test_freeze_is_a_candidate_or_says_what_is_missing(workspace):
    with pytest.raises(MalformedCandidateError, match="missing"):
        workspace.freeze()
    for path, text in pass_files("as=1").items():
        workspace.write(f"pass_dir/{path}", text)
    frozen = workspace.freeze()
    workspace.write("pass_dir/Fuse.py", "changed")
    assert frozen.files["Fuse.py"] == "# as=1\n"


def test_schemas_are_small_and_valid():
    names = [tool["function"]["name"] for tool in TOOLS]
    assert names == ["file_editor", "pass_evaluator"]
    assert len(json.dumps(TOOLS)) < 1300
