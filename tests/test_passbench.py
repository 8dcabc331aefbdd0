"""Graph folders, task folders, Parquet files and references: what is read is what was written, faults are named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from data.graph import Graph, MalformedGraphError
from data.passbench import (
    MalformedTaskError,
    load_graph,
    load_task,
    load_tasks,
    task_id_of,
    write_graph,
    write_parquet,
    write_task,
)
from data.task import Task

MODEL = """import torch

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1):
        tmp_0 = in_0 + in_1
        tmp_1 = torch.relu(tmp_0)
        tmp_0 = None
        return (tmp_1,)"""
META = """class Program_weight_tensor_meta_L_in_0_:
\tname = "in_0"
\toriginal_name = "L_in_0_"
\tshape = [4, 8]
\tdtype = "torch.float32"
\tdevice = "cuda:0"
\tmean = 0.100
\tstd = 1.000


class Program_weight_tensor_meta_L_in_1_:
\tname = "in_1"
\tshape = [8]
\tdtype = "torch.float32"
\tdevice = "cuda:0"
\tmean = 0.000
\tstd = float("nan")
"""
NET = '{\n    "framework": "torch",\n    "dynamic": false,\n    "some_unknown_key": [1, 2]\n}'


def make_graph(name: str = "graphs/add_relu", model: str = MODEL, **files: str) -> Graph:
    texts = {"model.py": model, "weight_meta.py": META, "input_meta.py": "", "graph_net.json": NET}
    texts["graph_hash.txt"] = hashlib.sha256(model.encode()).hexdigest()
    return Graph(name, {**texts, **files})


def write_files(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def test_graph_folder_round_trip_keeps_every_byte(tmp_path: Path) -> None:
    files = {
        "model.py": MODEL.replace("\n", "\r\n").encode(),  # a checkout with other newlines stays as it is
        "weight_meta.py": META.encode() + b"\n\n# \xc3\xa9nd\n",
        "input_meta.py": b"",
        "graph_net.json": NET.encode(),
        "input_tensor_constraints.py": b"\n",
    }
    graph = load_graph(write_files(tmp_path / "one", files))
    write_graph(graph, tmp_path / "two")
    assert {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()} == files
    assert "graph_hash.txt" not in graph.files  # missing optional files stay missing
    assert graph.net["some_unknown_key"] == [1, 2]


def test_task_folder_round_trip(tmp_path: Path) -> None:
    graphs = (make_graph(), make_graph("graphs/second", MODEL.replace("relu", "tanh")))
    task = Task("add_act", graphs, split="eval", uids=("b", "a"), facts={"title": "add, then an activation"})
    write_task(task, tmp_path / "task")
    again = load_task(tmp_path / "task")
    assert again == task
    assert (tmp_path / "task" / "pass_dir").is_dir()


def test_upstream_folder_without_our_file_is_named_by_its_uids_or_its_name(tmp_path: Path) -> None:
    write_graph(make_graph(), tmp_path / "folder/g/one")
    (tmp_path / "folder/graph_list.txt").write_text("\n  g/one  \n\n")
    assert load_task(tmp_path / "folder").task_id == "folder"
    (tmp_path / "folder/sample_uids.txt").write_text("zeta\nalpha\n")
    expected = hashlib.sha256(b"alpha\nzeta").hexdigest()
    assert task_id_of(["zeta", "alpha"]) == expected
    assert load_task(tmp_path / "folder").task_id == expected


def test_graph_paths_go_through_links(tmp_path: Path) -> None:
    write_graph(make_graph(), tmp_path / "graphs/one")
    (tmp_path / "tasks/linked").mkdir(parents=True)
    (tmp_path / "tasks/linked/graphs").symlink_to("../../graphs")
    (tmp_path / "tasks/linked/graph_list.txt").write_text("graphs/one\n")
    # git without symlinks leaves the target as the text of a file
    write_files(tmp_path / "tasks/textual", {"graphs": b"../../graphs", "graph_list.txt": b"graphs/one\n"})
    (tmp_path / "tasks/upward").mkdir()
    (tmp_path / "tasks/upward/graph_list.txt").write_text("../../graphs/one")
    tasks = load_tasks(tmp_path / "tasks")
    assert [task.task_id for task in tasks] == ["linked", "textual", "upward"]
    assert len({task.content_hash for task in tasks}) == 1


def test_parquet_round_trip_is_deterministic_and_keeps_missing_files_missing(tmp_path: Path) -> None:
    bare = Graph(
        "graphs/bare", {k: v for k, v in make_graph().files.items() if not k.startswith(("input_", "graph_h"))}
    )
    tasks = [Task("first", (make_graph(),), split="train", facts={"title": "t"}), Task("second", (bare,), split="eval")]
    write_parquet(tasks, tmp_path / "a.parquet")
    write_parquet(tasks, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert load_tasks(tmp_path / "a.parquet") == tasks
    assert load_tasks(f"{tmp_path}/a.parquet:eval") == tasks[1:]
    assert load_task(f"{tmp_path}/a.parquet:train/first") == tasks[0]
    assert load_task(f"{tmp_path}/a.parquet/second") == tasks[1]


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        ("", "names 2 tasks"),
        ("/frist", "did you mean first"),
        (":evil", "did you mean eval"),
        (":eval/first", "it is in split 'train'"),
    ],
)
def test_a_reference_that_is_wrong_is_answered_with_the_nearest(tmp_path: Path, suffix: str, words: str) -> None:
    write_parquet(
        [Task("first", (make_graph(),), "train"), Task("second", (make_graph(),), "eval")], tmp_path / "a.parquet"
    )
    with pytest.raises(MalformedTaskError) as caught:
        load_task(f"{tmp_path}/a.parquet{suffix}")
    assert words in str(caught.value)
    assert "a.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_name_and_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(MalformedTaskError, match="did you mean mini"):
        load_task("minni")
    with pytest.raises(MalformedTaskError, match="no such file"):
        load_task(tmp_path / "none.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 this is not it")
    with pytest.raises(MalformedTaskError, match=r"torn\.parquet: not a file of tasks"):
        load_task(tmp_path / "torn.parquet")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model.py": None}, "model.py: missing"),
        ({"graph_net.json": b"{"}, "graph_net.json: not JSON"),
        ({"graph_net.json": json.dumps({"framework": "paddle"}).encode()}, "PyTorch graphs only"),
        ({"weight_meta.py": None}, "weight_meta.py: missing"),
        ({"weight_meta.py": META.replace('"in_0"', "open('x')").encode()}, "weight_meta.py:2"),
        ({"model.py": b"class GraphModule(:"}, "model.py:1"),
        ({"model.py": b"\xff\xfe"}, "not UTF-8"),
    ],
)
def test_malformed_graph_folder_is_named(tmp_path: Path, changed: dict[str, bytes | None], words: str) -> None:
    write_graph(make_graph(), tmp_path / "bad")
    for name, content in changed.items():
        (tmp_path / "bad" / name).unlink()
        if content is not None:
            (tmp_path / "bad" / name).write_bytes(content)
    with pytest.raises(MalformedGraphError) as caught:
        load_graph(tmp_path / "bad")
    assert words in str(caught.value)
    assert str(tmp_path / "bad") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_malformed_task_folder_is_named(tmp_path: Path) -> None:
    write_graph(make_graph(), tmp_path / "task/g")
    with pytest.raises(MalformedTaskError, match=r"graph_list\.txt: missing"):
        load_task(tmp_path / "task")
    with pytest.raises(MalformedTaskError, match="a graph, not a task"):
        load_task(tmp_path / "task/g")
    for text, words in {
        "": "empty",
        "h\n": "missing, but",
        "/etc\n": "absolute",
        "g\ng\n": "names a graph twice",
    }.items():
        (tmp_path / "task/graph_list.txt").write_text(text)
        with pytest.raises(MalformedTaskError, match=words):
            load_task(tmp_path / "task")


def test_a_task_is_not_written_outside_its_folder(tmp_path: Path) -> None:
    with pytest.raises(MalformedTaskError, match="lie outside"):
        write_task(Task("bad", (make_graph("../elsewhere"),)), tmp_path / "task")
    assert not (tmp_path / "elsewhere").exists()


def test_bundled_graphs_round_trip(tmp_path: Path) -> None:
    tasks = load_tasks("mini")
    assert len(tasks) >= 18
    assert sum(len(task.graphs) for task in tasks) >= 56
    for task in tasks:
        assert {"title", "origin", "kind"} <= set(task.facts)
        write_task(task, tmp_path / task.task_id)
        assert load_task(tmp_path / task.task_id) == task
        for graph in task.graphs:
            assert graph.files["graph_hash.txt"] == graph.graph_hash
            folder = tmp_path / task.task_id / graph.name
            assert {path.name: path.read_bytes().decode() for path in folder.iterdir()} == dict(graph.files)
