"""Importing tasks: which ones, in which split, pinned by hash; what is refused leaves nothing behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.graph import MalformedGraphError
from data.passbench import MalformedTaskError, load_task, load_tasks, write_graph, write_parquet
from data.task_import import ImportConfig, import_tasks
from data.task_pins import load_pins
from tests.upstream_tree import list_of, make_graph, rows_of, write_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Path, dict[str, Path]]:
    return tmp_path / "net", write_checkout(tmp_path / "net")


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of these tests."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home/passwright/tasks"


def config(source: Path, **values: Any) -> ImportConfig:
    return ImportConfig.model_validate({"source": source, "name": "bench", **values})


def test_an_imported_set_has_a_name(checkout: tuple[Path, dict[str, Path]], data_home: Path) -> None:
    root, folders = checkout
    summary = import_tasks(config(root))
    assert (summary.written, summary.num_tasks, summary.num_graphs) == (True, 4, 12)
    assert summary.path == data_home / "bench.parquet"
    tasks = load_tasks("bench")
    assert [task.content_hash for task in tasks] == [task.content_hash for task in load_tasks(root)]
    assert {task.facts["kind"] for task in tasks} == {"fusible"}  # from PassNet's path
    one = next(iter(folders))
    assert load_task(f"bench/{one}").task_id == one
    with pytest.raises(MalformedTaskError, match="did you mean bench"):
        load_tasks("bensh")
    # import again: nothing is lost by mistake
    with pytest.raises(MalformedTaskError, match="--replace"):
        import_tasks(config(root))
    assert import_tasks(config(root, replace=True)).written


def test_lists_choose_and_split(checkout: tuple[Path, dict[str, Path]], tmp_path: Path) -> None:
    root, folders = checkout
    ids = list(folders)
    (tmp_path / "eval.txt").write_text(list_of(root, [folders[ids[2]], folders[ids[0]]]))
    (tmp_path / "train.csv").write_text(f"sample_path,other\nPassNet/{list_of(root, [folders[ids[3]]]).strip()},1\n")
    lists = {"eval": tmp_path / "eval.txt", "train": tmp_path / "train.csv"}
    assert import_tasks(config(root, lists=lists)).splits == {"eval": 2, "train": 1}
    assert [task.task_id for task in load_tasks("bench:eval")] == [ids[2], ids[0]]  # in the list's order
    assert [task.task_id for task in load_tasks("bench:train")] == [ids[3]]
    (tmp_path / "splits.json").write_text(json.dumps({"eval": ids[:1], "train": ids[1:]}))
    import_tasks(config(root, split_file=tmp_path / "splits.json", replace=True))
    assert [task.split for task in load_tasks("bench")] == ["eval", "train", "train", "train"]
    (tmp_path / "splits.csv").write_text("task_id,split\n" + "".join(f"{task_id},eval\n" for task_id in ids))
    assert import_tasks(config(root, split_file=tmp_path / "splits.csv", replace=True)).splits == {"eval": 4}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("samples/00/11/abc\n", "list.txt:1: no task samples/00/11/abc; is the data complete"),
        ("{0}\n{1}\n{0}\n", "list.txt:3: {0} is listed already in {where}:1"),
        ("\n", "empty"),
    ],
)
def test_a_list_at_fault_is_named(
    checkout: tuple[Path, dict[str, Path]], tmp_path: Path, text: str, words: str
) -> None:
    root, folders = checkout
    path = tmp_path / "list.txt"
    path.write_text(text.format(*folders))
    with pytest.raises(MalformedTaskError) as caught:
        import_tasks(config(root, lists={"eval": path}))
    assert words.format(*folders, where=path) in str(caught.value)


def test_pins_fix_the_content(checkout: tuple[Path, dict[str, Path]], tmp_path: Path, data_home: Path) -> None:
    root, folders = checkout
    ids = list(folders)
    (tmp_path / "eval.txt").write_text("\n".join(ids[:2]))
    import_tasks(config(root, lists={"eval": tmp_path / "eval.txt"}, write_pins=tmp_path / "handed_on.json"))
    pins = load_pins(tmp_path / "handed_on.json")
    assert list(pins.tasks) == ids[:2]
    assert pins.tasks[ids[0]].sha256 == load_task(folders[ids[0]]).content_hash
    # somebody else, with the same data as rows: exactly those tasks
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows_of(root)))
    other = config(tmp_path / "rows.jsonl", name="other", pins=tmp_path / "handed_on.json")
    assert import_tasks(other).splits == {"eval": 2}
    assert [replace(task, facts={}) for task in load_tasks("other:eval")] == [
        replace(task, facts={}) for task in load_tasks("bench:eval")
    ]
    # data that differs in one number is another benchmark
    meta = next(root.rglob("float16/**/net_1/weight_meta.py"))
    meta.write_text(meta.read_text().replace("std = 1.000", "std = 1.001"))
    with pytest.raises(MalformedTaskError, match=f"task {ids[1]} has content"):
        import_tasks(config(root, name="changed", pins=tmp_path / "handed_on.json"))
    assert sorted(path.name for path in data_home.iterdir() if "changed" in path.name) == []


def test_a_pinned_file_that_was_changed_is_refused(checkout: tuple[Path, dict[str, Path]], data_home: Path) -> None:
    root, folders = checkout
    ids = list(folders)
    import_tasks(config(root))
    tasks = load_tasks("bench")
    path = data_home / "bench.parquet"
    changed = replace(tasks[0], graphs=tasks[0].graphs[:2])
    write_parquet([changed, *tasks[1:]], path)
    with pytest.raises(MalformedTaskError, match=f"task {tasks[0].task_id} has content .* pins"):
        load_tasks("bench")
    with pytest.raises(MalformedTaskError, match=tasks[0].task_id):
        load_task(f"{path}/{tasks[0].task_id}")  # by path as well
    assert load_task(f"bench/{tasks[1].task_id}") == tasks[1]  # others are what they were
    write_parquet(tasks[1:], path)
    with pytest.raises(MalformedTaskError, match=f"lacks 1 .*{tasks[0].task_id}"):
        load_tasks(f"bench/{tasks[1].task_id}")
    write_parquet([*tasks, replace(tasks[0], task_id="extra")], path)
    with pytest.raises(MalformedTaskError, match=r"holds 1 .*\(extra\) that .* does not pin"):
        load_tasks("bench")
    write_parquet([replace(tasks[0], split="eval"), *tasks[1:]], path)
    with pytest.raises(MalformedTaskError, match=f"task {tasks[0].task_id} lies in split 'eval'"):
        load_tasks("bench")
    assert set(ids) == {task.task_id for task in tasks}


def test_refusals_are_named_and_nothing_is_written(checkout: tuple[Path, dict[str, Path]], data_home: Path) -> None:
    root, _ = checkout
    graphs = root / "graphs/hf_subgraphs_v2/fusible_subgraphs"
    paddle = graphs / "float32/0/samples/timm/net/_decomposed/net_0/graph_net.json"
    paddle.write_text('{"framework": "paddle"}')
    code = graphs / "bfloat16/0/samples/timm/net/_decomposed/net_2/model.py"
    code.write_text(code.read_text().replace("in_0 + in_1", "open('/etc/passwd')"))
    summary = import_tasks(config(root))
    assert not summary.written
    assert list(data_home.iterdir()) == []
    reasons = sorted(summary.refusals.values())
    assert len(reasons) == 2
    assert any("framework is 'paddle'" in reason and "net_0/graph_net.json" in reason for reason in reasons)
    assert any("call of 'open' is not allowed" in reason and "net_2/model.py:6" in reason for reason in reasons)
    summary = import_tasks(config(root, skip_refused=True))
    assert (summary.written, summary.num_tasks) == (True, 2)
    assert json.loads(summary.pins.read_text())["refused"] == summary.refusals


def test_graphs_without_tasks_become_tasks_when_asked(tmp_path: Path) -> None:
    root = tmp_path / "graph_net"
    for name in ("samples/timm/resnet18", "samples/timm/vgg/graph_1"):
        write_graph(make_graph("g"), root / name)
    with pytest.raises(MalformedTaskError, match="holds 2 graphs: add --each-graph"):
        import_tasks(config(root))
    import_tasks(config(root, each_graph=True))
    tasks = load_tasks("bench")
    assert [task.task_id for task in tasks] == ["samples__timm__resnet18", "samples__timm__vgg__graph_1"]
    assert tasks[0].graphs[0].name == "samples/timm/resnet18"
    (tmp_path / "list.txt").write_text("timm/vgg/graph_1\n")
    import_tasks(config(root, each_graph=True, lists={"": tmp_path / "list.txt"}, replace=True))
    assert [task.task_id for task in load_tasks("bench")] == ["samples__timm__vgg__graph_1"]


def test_the_data_folder_keeps_its_limit(checkout: tuple[Path, dict[str, Path]], data_home: Path) -> None:
    root, _ = checkout
    import_tasks(config(root))
    with pytest.raises(MalformedTaskError, match=r"more than its limit .*bench 0 MB.*raise max_mb"):
        import_tasks(config(root, name="second", max_mb=0.001))
    assert {path.name for path in data_home.iterdir()} == {"bench.parquet", "bench.pins.json"}
    with pytest.raises(MalformedTaskError, match="a set that ships"):
        import_tasks(config(root, name="mini"))


def test_another_folder_needs_no_variable(
    checkout: tuple[Path, dict[str, Path]], tmp_path: Path, data_home: Path
) -> None:
    root, _ = checkout
    summary = import_tasks(config(root, into=tmp_path / "elsewhere"))
    assert summary.path == tmp_path / "elsewhere/bench.parquet"
    assert len(load_tasks(tmp_path / "elsewhere/bench.parquet")) == 4
    assert not data_home.exists()
    with pytest.raises(MalformedTaskError, match="bundled or imported set"):
        load_tasks("bench")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "a:b", ".hidden", "a b"])
def test_a_name_that_no_reference_could_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        config(tmp_path, name=name)


def test_a_source_that_is_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(MalformedTaskError, match="no such file or folder"):
        import_tasks(config(tmp_path / "nowhere"))
    with pytest.raises(MalformedTaskError, match="no rows of path and content"):
        import_tasks(config(tmp_path / "notes.txt"))
    with pytest.raises(MalformedTaskError, match="no task folder"):
        import_tasks(config(tmp_path))


def test_a_graph_of_a_set_that_does_not_parse_names_the_set(data_home: Path) -> None:
    import pyarrow as pa

    from data.task_table import SCHEMA

    data_home.mkdir(parents=True)
    row = {"task_id": "t", "split": "", "graphs": [{"name": "g", "model_py": "class (", "graph_net_json": "{}"}]}
    pa.parquet.write_table(pa.Table.from_pylist([row], schema=SCHEMA), data_home / "broken.parquet")
    with pytest.raises(MalformedGraphError, match=r"broken\.parquet: g/model\.py:1: not Python"):
        load_tasks("broken")
