"""`passwright tasks`: what each action prints, what it refuses in one line, and what it leaves on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.construct import run_pool
from data.construct.run_pool import check_runs
from data.graph import Graph
from data.passbench import load_tasks, write_graph, write_task
from data.task import Task
from data.task_faults import find_faults, spec_faults
from scripts import cli
from tests.upstream_tree import list_of, make_graph, write_checkout


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home/passwright/tasks"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, list[str]]:
    """Exit status, stdout and the lines of stderr."""
    status = cli.main(["tasks", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err.splitlines()


def test_import_then_use_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], data_home: Path) -> None:
    root = tmp_path / "net"
    folders = write_checkout(root)
    (tmp_path / "eval.txt").write_text(list_of(root, list(folders.values())[:3]))
    pins = tmp_path / "pins.json"
    arguments = ["--name", "passbench", "--list", f"eval={tmp_path / 'eval.txt'}", "--write-pins", pins]
    status, out, lines = run(capsys, "import", root, *arguments)
    assert status == 0, lines
    assert out.startswith("3 tasks (3 eval), 9 graphs")
    assert f"in {data_home / 'passbench.parquet'}, pinned in passbench.pins.json" in out
    status, out, _ = run(capsys, "list")
    assert "passbench" in out.splitlines()[-1]
    assert "3 eval" in out
    assert "pinned" in out
    status, out, _ = run(capsys, "list", "passbench:eval", "--json", "-")
    assert [entry["task_id"] for entry in json.loads(out)] == list(folders)[:3]
    status, _, lines = run(capsys, "list", "pasbench:eval")
    assert (status, len(lines)) == (2, 1)
    assert "did you mean passbench" in lines[0]
    # overrides and a configuration file say the same as flags
    (tmp_path / "import.yaml").write_text(f"source: {root}\nname: again\npins: {pins}\n")
    status, out, lines = run(capsys, "import", "--config", tmp_path / "import.yaml", "name=third", "--json", "-")
    assert status == 0, lines
    assert json.loads(out)["splits"] == {"eval": 3}
    status, _, lines = run(capsys, "import", root, "--name", "x", "max_mbs=1")
    assert (status, len(lines)) == (2, 1)
    assert "did you mean 'max_mb'?" in lines[0]


def test_a_refused_import_says_each_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "net"
    write_checkout(root)
    for net in root.rglob("float16/**/graph_net.json"):
        net.write_text('{"framework": "paddle"}')
    status, out, lines = run(capsys, "import", root, "--name", "passbench")
    assert status == 2
    assert sum("refused samples/" in line and "framework is 'paddle'" in line for line in lines) == 4
    assert "nothing written: 4 of 4 tasks refused" in out


def test_export_gives_back_every_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "net"
    folders = write_checkout(root)
    model = next(root.rglob("model.py"))
    model.write_bytes(model.read_bytes().replace(b"\n", b"\r\n") + b"\r\n# \xc3\xa9nd")
    assert run(capsys, "import", root, "--name", "passbench")[0] == 0
    assert run(capsys, "export", "passbench", "--out", tmp_path / "out")[0] == 0
    for task_id, folder in folders.items():
        out = tmp_path / "out" / task_id
        for name in ("graph_list.txt", "sample_uids.txt"):
            assert (out / name).read_bytes() == (folder / name).read_bytes()
        for graph in (folder / "graph_list.txt").read_text().split():
            expected = {file.name: file.read_bytes() for file in (root / graph).iterdir()}
            assert {file.name: file.read_bytes() for file in (out / graph).iterdir()} == expected
    assert load_tasks(tmp_path / "out") == load_tasks("passbench")
    status, _, lines = run(capsys, "export", "passbench", "--out", tmp_path / "out")
    assert (status, len(lines)) == (2, 1)
    assert "there already" in lines[0]


def faulty_task_dir(root: Path) -> Path:
    """A task with one fault of each kind, and a task that does not load."""
    good = make_graph("graphs/good")
    meta = good.files["weight_meta.py"]
    graphs = (
        good,
        make_graph("graphs/call", model=good.model_source.replace("in_0 + in_1", "torch.load('x')")),
        Graph("graphs/hash", {**make_graph("h", "tanh").files, "graph_hash.txt": "0" * 64}),
        make_graph("graphs/std", "sigmoid", weight_meta=meta.replace("std = 1.000", 'std = float("inf")', 1)),
        Graph("graphs/constraints", {**make_graph("c", "exp").files, "input_tensor_constraints.py": "import os\n"}),
        replace_name(good, "graphs/same"),
    )
    write_task(Task("faulty", graphs, split="train"), root / "faulty")
    write_task(Task("held_out", (replace_name(good, "graphs/good"),), split="eval"), root / "held_out")
    write_task(Task("torn", (good, replace_name(good, "graphs/two"))), root / "torn")
    (root / "torn/graphs/good/model.py").write_text("class GraphModule(:")
    (root / "torn/graphs/two/graph_net.json").write_text("{")
    return root


def replace_name(graph: Graph, name: str) -> Graph:
    return Graph(name, graph.files)


def test_check_names_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty_task_dir(tmp_path / "tasks")
    status, out, lines = run(capsys, "check", tmp_path / "tasks", "--no-run", "--json", "-")
    assert status == 2
    faults = json.loads(out)
    assert len(lines) == len(faults) + 1
    found = {(fault["task"].rpartition("/")[2], fault["graph"], fault["check"]) for fault in faults}
    assert found == {
        ("torn", None, "format"),
        ("faulty", "graphs/call", "calls"),
        ("faulty", "graphs/hash", "hash"),
        ("faulty", "graphs/std", "statistics"),
        ("faulty", "graphs/constraints", "constraints"),
        ("faulty", "graphs/same", "hash"),
        ("faulty", None, "leak"),
    }
    assert sum(fault["check"] == "format" for fault in faults) == 2  # both graphs of the torn task
    text = "\n".join(lines)
    for words in (
        "good/model.py:1: not Python",
        "two/graph_net.json: not JSON",
        "graphs/call/model.py:6: call of torch.load is not allowed",
        "states 000000000000",
        "std is inf",
        "input_tensor_constraints.py:1: 'import os'",
        "has the same content as graphs/good",
        "shares the operators add relu with held_out",
    ):
        assert words in text, text
    assert lines[-1].startswith("2 tasks, 7 graphs: 9 faults (2 format")


@pytest.mark.slow
def test_check_runs_graphs_and_survives_what_they_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = make_graph("graphs/wrong", model=make_graph("x").model_source.replace("in_0 + in_1", "in_0 @ in_0"))
    nan = make_graph("graphs/nan", model=make_graph("x").model_source.replace("torch.relu(tmp_0)", "(tmp_0 * 0).log()"))
    write_task(Task("t", (make_graph("graphs/good"), wrong, nan)), tmp_path / "t")
    status, out, lines = run(capsys, "check", tmp_path / "t", "--jobs", "2", "--json", "-")
    assert status == 2, lines
    reasons = {fault["graph"]: fault["reason"] for fault in json.loads(out)}
    assert set(reasons) == {"graphs/wrong", "graphs/nan"}
    assert "does not run" in reasons["graphs/wrong"]
    assert "not finite" in reasons["graphs/nan"]
    (tmp_path / "one").mkdir()
    write_task(Task("t", (make_graph("graphs/good"),)), tmp_path / "one/t")
    status, _, lines = run(capsys, "check", tmp_path / "one")
    assert (status, lines[-1]) == (0, "1 tasks, 1 graphs: all well formed, and all run")


@pytest.mark.slow
def test_a_graph_that_does_not_come_back_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_pool, "GRACE_S", 0.0)
    model = make_graph("x").model_source.replace("in_0 + in_1", "in_0 @ in_1")
    meta = make_graph("x").files["weight_meta.py"].replace("[4, 8]", "[9000, 9000]").replace("[8]", "[9000, 9000]")
    slow, good = make_graph("slow", model=model, weight_meta=meta), make_graph("good")
    found = dict(check_runs([slow, good], num_workers=1, time_limit_s=1.0, max_bytes=4 << 30))
    assert "takes longer than 1 s" in (found[0] or "")
    assert len(found) == 2
    assert found[1] is None


def test_leaks_and_uids_are_found_without_reading_files() -> None:
    graph = make_graph("g")
    tasks = [
        Task("a" * 64, (graph,), split="train", uids=("u",)),
        Task("b", (replace_name(graph, "h"),), split="eval"),
    ]
    faults = find_faults(tasks)
    assert [fault.check for fault in faults] == ["hash", "leak", "leak"]
    assert "shares the graph" in faults[-1].reason
    assert find_faults([replace(tasks[1], split="")]) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"std": -1.0}, "std is -1.0"),
        ({"mean": float("nan")}, "mean is nan"),
        ({"min_val": 3, "max_val": 1}, "min_val 3 is above max_val 1"),
        ({"data": [[1, 2], [3, 4]]}, "data has 4 values"),
        ({"shape": (-1, 2)}, "below 0"),
        ({"shape": (1,), "std": float("nan")}, None),  # of one element
        ({"data": [0.0] * 32}, None),
    ],
)
def test_statistics_that_no_tensor_has(changed: dict[str, object], words: str | None) -> None:
    spec = make_graph("g").specs["in_0"].model_copy(update=changed)
    found = list(spec_faults(spec))
    assert (found == []) if words is None else (words in found[0])


def test_stats_count_what_the_bundled_tasks_are(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "stats", "mini", "--json", "-")
    assert status == 0
    stats = json.loads(out)
    tasks = load_tasks("mini")
    graphs = [graph for task in tasks for graph in task.graphs]
    assert stats["all"]["num_tasks"] == len(tasks)
    assert stats["all"]["num_graphs"] == len(graphs) == sum(split["num_graphs"] for split in stats["splits"].values())
    assert stats["all"]["num_sources"] == len({graph.model_source for graph in graphs})
    assert sum(stats["all"]["dtypes"].values()) == len(graphs)
    assert set(stats["all"]["dtypes"]) == {"float32", "float16", "bfloat16"}
    assert stats["all"]["max_group_size"] == max(len(task.graphs) for task in tasks)
    assert sum(stats["all"]["group_sizes"].values()) == len(tasks)
    assert sum(stats["all"]["operator_counts"].values()) == len(graphs)
    status, out, _ = run(capsys, "stats", "mini:eval")
    assert out.splitlines()[0].split()[:3] == ["split", "tasks", "graphs"]
    assert "operators in distinct sources: " in out


def test_stats_read_the_fields_of_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = {
        "framework": "torch", "kind": "fusible", "domain": "audio", "family": "elementwise",
        "provenance": {"architecture": "hubert", "licence": "Apache-2.0"},
    }  # fmt: skip
    tagged = {"framework": "torch", "heuristic_tag": "nlp"}
    graphs = (make_graph("a", graph_net=json.dumps(net)), make_graph("b", "tanh", graph_net=json.dumps(tagged)))
    write_task(Task("t", graphs), tmp_path / "t")
    _, out, _ = run(capsys, "stats", tmp_path / "t", "--json", "-")
    found = json.loads(out)["all"]
    assert (found["kinds"], found["domains"]) == ({"fusible": 1}, {"audio": 1, "text": 1})
    assert (found["architectures"], found["num_architectures"]) == ({"hubert": 1}, 1)
    assert found["licences"] == {"Apache-2.0": 1, "unstated": 1}
    assert found["families"] == {"elementwise": 1, "unstated": 1}


def test_show_prints_a_table_and_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = tuple(make_graph(f"graphs/{rows}", rows=rows) for rows in range(1, 51))
    write_task(Task("many", graphs), tmp_path / "many")
    _, out, _ = run(capsys, "show", tmp_path / "many")
    assert "  operators: add relu" in out
    assert "  graphs/3  float32[3 x 8], float32[8]" in out
    assert "... 10 more; --all shows them" in out
    assert out.count("class GraphModule") == 1
    _, out, _ = run(capsys, "show", tmp_path / "many", "--graph", "graphs/7")
    assert "7 x 8" in out
    assert "graphs/3" not in out
    _, out, _ = run(capsys, "show", tmp_path / "many", "--all")
    assert out.count("class GraphModule") == 50
    _, out, lines = run(capsys, "show", "mini:eval")
    assert "class GraphModule" not in out
    assert "add /TASK_ID" in lines[-1]


def test_list_says_a_damaged_set_and_goes_on(capsys: pytest.CaptureFixture[str], data_home: Path) -> None:
    data_home.mkdir(parents=True)
    (data_home / "torn.parquet").write_bytes(b"PAR1")
    status, out, lines = run(capsys, "list")
    assert status == 0
    assert "mini" in out
    assert any("torn.parquet: cannot be read" in line for line in lines)


def test_build_checks_its_configuration_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "built"
    for arguments, words in (
        (["models.shape=3"], "did you mean 'models.shapes'?"),
        (["splits.eval=-1"], "splits.eval"),
        (["--config", tmp_path / "no.yaml"], "no such configuration file"),
        (["--jobs", "0"], "--jobs 0"),
    ):
        status, _, lines = run(capsys, "build", *arguments, "--out", out, "--dry-run")
        assert (status, len(lines)) == (2, 1), lines
        assert words in lines[0]
    assert not out.exists()


def test_build_begins_anew_only_in_its_own_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph(make_graph("g"), tmp_path / "mine")
    status, _, lines = run(
        capsys, "build", "models.only=[transformers.bert]", "--out", tmp_path / "mine", "--no-resume"
    )
    assert status == 2
    assert "holds something else than a build" in lines[-1]
    assert (tmp_path / "mine/model.py").exists()
