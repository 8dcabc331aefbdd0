"""PassNet and GraphNet data as others publish it: checkouts, copies without links, rows, constraints; one of many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.constraints_file import graph_constraints, parse_constraints
from data.graph import Graph, MalformedGraphError
from data.passbench import MalformedTaskError, load_task, load_tasks, write_graph, write_parquet
from data.rows import RowsTree, find_row_files
from data.task import Task
from data.task_table import TaskTable
from tests.upstream_tree import ACTIVATIONS, make_graph, rows_of, write_checkout

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = """from sympy import Symbol, Expr, Rel, Eq

S0 = Symbol("S0")
width = Symbol("S1")

dynamic_dim_constraint_symbols = [S0, width]

dynamic_dim_constraint_symbol2example_value = {S0: 2, width: 224}

dynamic_dim_constraint_relations = [Eq(width, 32 * (width // 32)), S0 > 0]

dynamic_dim_constraint_input_shapes = [
    ([64, 3, 7, 7], "L_weight_"),
    (
        [S0, 3, width, width],
        "L_x_",
    ),
    ([S0, width // 32 + 1], "L_position_"),
]
"""


def test_constraints_become_data() -> None:
    found = parse_constraints(CONSTRAINTS, "net/input_tensor_constraints.py")
    assert found.symbols == {"S0": 2, "S1": 224}
    assert found.shapes["L_weight_"] == (64, 3, 7, 7)
    assert found.shapes["L_x_"] == ("S0", 3, "S1", "S1")
    assert set(found.dynamic) == {"L_x_", "L_position_"}
    assert found.shape_of("L_position_") == (2, 8)
    assert found.shape_of("L_x_", {"S0": 5, "S1": 64}) == (5, 3, 64, 64)
    assert found.holds()
    assert found.holds({"S1": 96})
    assert not found.holds({"S1": 100})  # not a multiple of 32
    assert not found.holds({"S0": 0})


def test_a_graph_without_constraints_has_none_and_a_whole_graph_has_its_own() -> None:
    plain = make_graph("net")
    assert graph_constraints(plain) is None
    assert graph_constraints(Graph("net", {**plain.files, "input_tensor_constraints.py": "\n"})) is None
    dynamic = Graph("net", {**plain.files, "input_tensor_constraints.py": CONSTRAINTS})
    constraints = graph_constraints(dynamic)
    assert constraints is not None
    assert constraints.symbols == {"S0": 2, "S1": 224}


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("S0 = Symbol", "import os; S0 = Symbol", 3, "import os"),
        ('Symbol("S0")', 'open("S0")', 3, "no assignment of symbols"),
        ("S0 > 0", "S0.evil()", 10, "no arithmetic"),
        ("64, 3, 7, 7", "64, S2", 13, "'S2' is no symbol"),
        ("width: 224", "width: 2.5", 8, "symbol: int"),
        ("{S0: 2, ", "{", 6, "no example value of S0"),
        ("S0 > 0", "S0 ** 99999 > 0", 10, "exponent"),
        ("[S0, width // 32", "[S0, width // 32 if", 18, "not Python"),
    ],
)
def test_constraints_that_are_code_are_refused_with_the_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(MalformedGraphError) as caught:
        parse_constraints(CONSTRAINTS.replace(old, new, 1), "net/c.py")
    assert f"net/c.py:{line}" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


expressions = st.recursive(
    st.one_of(st.integers(0, 9).map(str), st.sampled_from(["S0", "S1"])),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(expressions, st.integers(1, 50), st.integers(1, 50))
def test_a_dimension_is_computed_as_python_would(text: str, first: int, second: int) -> None:
    source = CONSTRAINTS.replace("width", "S1").replace("[S0, S1 // 32 + 1]", f"[{text}]")
    try:
        expected = eval(text, {}, {"S0": first, "S1": second})
        eval(text, {}, {"S0": 7, "S1": 7})
    except ZeroDivisionError:
        return
    found = parse_constraints(source, "c.py")
    if expected < 0:
        with pytest.raises(ValueError, match="no whole number"):
            found.shape_of("L_position_", {"S0": first, "S1": second})
    else:
        assert found.shape_of("L_position_", {"S0": first, "S1": second}) == (expected,)


@pytest.mark.parametrize("links", ["symbolic", "text", "none"])
def test_a_checkout_loads_whatever_became_of_its_links(tmp_path: Path, links: str) -> None:
    folders = write_checkout(tmp_path / "net", links=links)
    tasks = load_tasks(tmp_path / "net")
    assert {task.task_id for task in tasks} == set(folders)
    assert all([len(task.graphs), len(task.uids)] == [3, 3] for task in tasks)
    one = next(iter(folders))
    assert load_task(folders[one]) == next(task for task in tasks if task.task_id == one)
    reference = write_checkout(tmp_path / "reference")
    assert {task.task_id: task.content_hash for task in load_tasks(tmp_path / "reference")} == {
        task.task_id: task.content_hash for task in tasks
    }
    assert set(reference) == set(folders)


def test_a_link_left_as_text_leads_to_a_folder_of_another_name(tmp_path: Path) -> None:
    write_graph(make_graph("g"), tmp_path / "shelf/one")
    (tmp_path / "task").mkdir()
    (tmp_path / "task/graphs").write_text("../shelf\n")
    (tmp_path / "task/graph_list.txt").write_text("graphs/one\n")
    assert load_task(tmp_path / "task").graphs[0].name == "graphs/one"
    (tmp_path / "task/graphs").write_text("../elsewhere\n")
    with pytest.raises(MalformedTaskError, match=r"graphs/one/graph_net\.json: missing, but"):
        load_task(tmp_path / "task")


def test_a_task_folder_that_is_a_link_is_found_and_a_circle_ends(tmp_path: Path) -> None:
    folders = write_checkout(tmp_path / "net", num_tasks=2)
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    first, second = folders.values()
    (chosen / "first").symlink_to(first)
    (chosen / "second").write_text(str(Path("..") / second.relative_to(tmp_path)))
    (chosen / "round").symlink_to(chosen)
    assert {task.task_id for task in load_tasks(chosen)} == set(folders)


def write_rows(kind: str, rows: list[dict[str, str]], folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    table = pa.Table.from_pylist([{**row, "source_folder": "x"} for row in rows])
    if kind == "parquet":
        pq.write_table(table, folder / "rows.parquet", row_group_size=5)
        return folder / "rows.parquet"
    if kind == "jsonl":
        (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return folder / "rows.jsonl"
    if kind == "hub":  # a downloaded repository of shards
        (folder / "data").mkdir()
        for shard in range(3):
            pq.write_table(table.slice(shard * 9, 9 if shard < 2 else None), folder / f"data/train-{shard}.parquet")
        return folder
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=7)
    (folder / "state.json").write_text("{}")
    return folder


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "hub", "saved"])
def test_rows_of_path_and_content_are_a_checkout(tmp_path: Path, kind: str) -> None:
    write_checkout(tmp_path / "net")
    expected = load_tasks(tmp_path / "net")
    source = write_rows(kind, rows_of(tmp_path / "net"), tmp_path / kind)
    assert load_tasks(source) == expected
    if kind == "parquet":
        assert load_task(f"{source}/{expected[2].task_id}") == expected[2]


def test_datasets_own_files_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write_checkout(tmp_path / "net", num_tasks=2)
    rows = rows_of(tmp_path / "net")
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"GraphNet": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "dict"))
    assert load_tasks(tmp_path / "saved") == load_tasks(tmp_path / "net") == load_tasks(tmp_path / "dict")


def test_rows_at_fault_are_named(tmp_path: Path) -> None:
    write_checkout(tmp_path / "net", num_tasks=1)
    rows = rows_of(tmp_path / "net")
    for name, changed, words in (
        ("twice", [*rows, rows[0]], "appears in two rows"),
        ("torn", [*rows[:-1], {"path": rows[-1]["path"]}], "no object with path and content"),
    ):
        with pytest.raises(MalformedTaskError, match=words):
            load_tasks(write_rows("jsonl", changed, tmp_path / name))
    no_graph = [row for row in rows if not (row["path"].endswith("model.py") and "/float16/" in row["path"])]
    with pytest.raises(MalformedTaskError, match=r"float16/.*model\.py: missing"):
        load_tasks(write_rows("parquet", no_graph, tmp_path / "incomplete"))
    no_task = [row for row in rows if not row["path"].endswith("graph_list.txt")]
    with pytest.raises(MalformedTaskError, match="--each-graph"):
        load_tasks(write_rows("parquet", no_task, tmp_path / "no_task"))


def test_a_paddle_graph_is_refused_by_name(tmp_path: Path) -> None:
    write_checkout(tmp_path / "net", num_tasks=1)
    rows = rows_of(tmp_path / "net")
    for row in rows:
        if row["path"].endswith("graph_net.json") and "/bfloat16/" in row["path"]:
            row["content"] = '{"framework": "paddle"}'
    with pytest.raises(MalformedGraphError, match=r"bfloat16/0/.*net_0/graph_net\.json: framework is 'paddle'"):
        load_tasks(write_rows("parquet", rows, tmp_path / "rows"))


def test_only_wanted_blocks_of_rows_are_read(tmp_path: Path) -> None:
    write_checkout(tmp_path / "net")
    rows = rows_of(tmp_path / "net")
    source = write_rows("jsonl", rows, tmp_path / "rows")
    tree = RowsTree(find_row_files(source))
    wanted = rows[3]["path"]
    tree.fetch([wanted])
    source.write_bytes(b"")  # nothing more can be read
    assert tree.read(wanted) == rows[3]["content"]
    with pytest.raises(MalformedTaskError, match="became shorter"):
        tree.fetch([rows[5]["path"]])


def many_tasks(num: int) -> list[Task]:
    graphs = [make_graph("g", activation, rows=rows) for rows in range(1, 9) for activation in ACTIVATIONS]
    return [
        Task(f"task_{number:04}", (graphs[number % len(graphs)],), split="eval" if number % 3 else "train")
        for number in range(num)
    ]


def test_one_task_is_read_without_decoding_the_others(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    tasks = many_tasks(300)
    path = tmp_path / "many.parquet"
    write_parquet(iter(tasks), path)
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups > 3
    # every group but the first is made unreadable; its two key columns stay
    torn = bytearray(path.read_bytes())
    for group in range(1, metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if chunk.path_in_schema not in ("task_id", "split"):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                torn[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(torn)
    assert load_task(f"{path}/task_0007") == tasks[7]
    with pytest.raises(MalformedTaskError, match=r"many\.parquet: not a file of tasks"):
        load_task(f"{path}/task_0299")


def test_the_key_columns_say_everything_about_a_reference(tmp_path: Path) -> None:
    write_parquet(many_tasks(10), tmp_path / "t.parquet")
    table = TaskTable(tmp_path / "t.parquet")
    assert table.keys[:2] == [("task_0000", "train"), ("task_0001", "eval")]
    assert [task.task_id for task in table.read(["task_0008", "task_0002"])] == ["task_0002", "task_0008"]


def test_folders_and_jsonl_need_neither_pyarrow_nor_torch(tmp_path: Path) -> None:
    write_checkout(tmp_path / "net", num_tasks=1)
    source = write_rows("jsonl", rows_of(tmp_path / "net"), tmp_path / "rows")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyarrow', 'torch', 'datasets')))\n"  # None: importing fails
        "from data.passbench import load_tasks; import data.task_import, data.task_faults, data.task_stats\n"
        f"print(len(load_tasks({str(tmp_path / 'net')!r})), len(load_tasks({str(source)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.split() == ["1", "1"], done.stderr
