"""A zoo of tiny models becomes a file of tasks: every stage for real, resumed, refused where too little comes out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.construct import run_pool
from data.construct.bucketing import Bucketed, BucketKey
from data.construct.build import BuildError, Built, build_tasks
from data.construct.build_config import BuildConfig, ModelsConfig, SplitsConfig
from data.construct.checking import Check, CheckLog, answers, check_graphs
from data.construct.choosing import KIND_OF, choose
from data.construct.instance_store import Member
from data.construct.run_check import check_instance
from data.graph import Graph
from data.passbench import BUNDLED_DIR, load_tasks
from data.splits import leak_report, operator_sequence
from tests.helpers import add_relu_mul

MODELS = ModelsConfig(only=("tiny.mlp", "tiny.broken_up"), zoo="tests.tiny_zoo", shapes=3, time_limit_s=200.0)
CONFIG = BuildConfig(
    name="tiny",
    models=MODELS,
    splits=SplitsConfig(eval=1, train=4, eval_classical=1, train_classical=1, single_op=2),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    out = tmp_path_factory.mktemp("build")
    return out, build_tasks(CONFIG, out, num_workers=1)


def test_a_zoo_becomes_tasks_that_run_and_do_not_leak(built: tuple[Path, Built]) -> None:
    _, made = built
    tasks = load_tasks(f"{made.path}")
    assert [task.content_hash for task in tasks] == [task.content_hash for task in made.tasks]
    splits = {task.split for task in tasks}
    assert {"eval", "single_op"} <= splits <= set(KIND_OF)
    assert leak_report(tasks).clean
    for task in tasks:
        assert {graph.net["kind"] for graph in task.graphs} == {KIND_OF[task.split]}
        assert len({operator_sequence(graph) for graph in task.graphs}) == 1
        assert set(task.facts) == {"title", "origin", "kind"}
        for graph in task.graphs:
            assert check_instance(graph) is None
            assert graph.net["num_operators"] == len(operator_sequence(graph))
            assert ".tiny." in graph.net["provenance"]["model"]
    dtypes = {spec.dtype for task in tasks for graph in task.graphs for spec in graph.specs.values()}
    assert {"torch.float32", "torch.float16", "torch.bfloat16"} <= dtypes


def test_the_card_counts_what_is_there(built: tuple[Path, Built]) -> None:
    _, made = built
    text = made.card.read_text()
    assert f"{len(made.tasks)} tasks, {sum(len(task.graphs) for task in made.tasks)} graphs" in text
    for split in {task.split for task in made.tasks}:
        mine = [task for task in made.tasks if task.split == split]
        assert f"| `{split}` | {len(mine)} | {sum(len(task.graphs) for task in mine)} |" in text
    assert "configs/tasks/tiny.yaml" in text


def test_a_build_that_is_done_is_not_done_again(built: tuple[Path, Built]) -> None:
    out, made = built
    before = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("[!.]*") if path.is_file()}
    before |= {
        path: path.stat().st_mtime_ns
        for path in [*(out / "instances").iterdir(), out / "check.jsonl", out / "screen.jsonl"]
    }
    again = build_tasks(CONFIG, out, num_workers=1)
    assert again.path.read_bytes() == made.path.read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_too_few_models_are_an_error_that_says_where_to_look(built: tuple[Path, Built]) -> None:
    out, _ = built
    models = MODELS.model_copy(update={"min_architectures": 3})
    with pytest.raises(BuildError, match=r"2 architectures.*min_architectures=3.*result\.json"):
        build_tasks(CONFIG.model_copy(update={"models": models}), out, num_workers=1)


def member(uid: str, operators: str, kind: str = "fusible", size: int = 1) -> Member:
    key = BucketKey(tuple(operators.split()), ((size,),), ("float32",))
    return Member(Bucketed(uid, key), kind, "text", "bert", Path("x"))  # type: ignore[arg-type]


def test_what_is_refused_is_in_no_group_and_what_is_held_out_is_not_trained_on() -> None:
    sequences = ["add relu", "mul sum sqrt", "exp sub tanh log", "neg abs", "cat linear gelu mul", "softmax dropout"]
    members = [
        member(f"{number}{index}", operators, size=index % 3)
        for number, operators in enumerate(sequences)
        for index in range(40)
    ]
    members += [member(f"c{index}", "add relu mul sum", "classical") for index in range(4)]
    config = SplitsConfig(eval=2, train=50, eval_classical=1, train_classical=5, single_op=0, max_eval_graphs=7)
    refused = {"01", "10", "20", "c0"}
    choice = choose(members, config, refused)
    assert not {uid for _, uid in choice.keys} & refused
    assert len(choice.groups["eval"]) == 2 and all(len(group.uids) <= 7 for group in choice.groups["eval"])
    held_out = {group.operators for group in (*choice.groups["eval"], *choice.groups["eval_classical"])}
    trained = {group.operators for group in (*choice.groups["train"], *choice.groups["train_classical"])}
    assert trained and not held_out & trained
    assert choose(list(reversed(members)), config, refused).groups == choice.groups


def test_a_check_that_hangs_costs_its_process_and_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = [Graph(name, add_relu_mul().files) for name in ("a", "b")]
    runs = Check("check", "data.construct.run_check:check_instance", {"time_limit_s": 5.0, "max_bytes": 1 << 20}, 5.0)
    path = tmp_path / "check.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(run_pool, "GRACE_S", -1e3)  # it cannot come back in time
        check_graphs(graphs[:1], [CheckLog(path, runs)], num_workers=1)
    log = CheckLog(path, runs)
    assert "does not come back" in (log.reasons["a"] or "")
    check_graphs(graphs, [log], num_workers=1)
    assert log.reasons["b"] is None and "does not come back" in (log.reasons["a"] or "")
    with path.open("a") as file:
        file.write('{"uid": "c", "rea')  # stopped while it wrote
    assert CheckLog(path, runs).reasons.keys() == {"a", "b"}
    other = replace(runs, settings={"time_limit_s": 5.0, "max_bytes": 2 << 20})
    assert CheckLog(path, other).reasons == {}
    assert len([json.loads(line) for line in path.read_text().splitlines()[:2]]) == 2


def test_screening_is_asked_of_what_runs_and_refuses_with_its_reason(tmp_path: Path) -> None:
    good = Graph("good", add_relu_mul().files)
    first, second, *rest = good.arguments
    source = (
        "import torch\n\n\nclass GraphModule(torch.nn.Module):\n"
        f"    def forward(self, {', '.join([first, second, *rest])}):\n"
        f"        return ({first} * 0.0001 * torch.sigmoid({second}),)\n"
    )
    small = Graph("small", {**good.files, "model.py": source})
    broken = Graph("broken", {**good.files, "model.py": source.replace("0.0001", "torch.nothing")})
    runs = Check("check", "data.construct.run_check:check_instance", {"time_limit_s": 5.0, "max_bytes": 1 << 20}, 5.0)
    screen = Check("screen", "eval_harness.screening:screen_reason", {"num_seeds": 4}, 60.0)
    logs = [CheckLog(tmp_path / f"{check.name}.jsonl", check) for check in (runs, screen)]
    check_graphs([good, small, broken], logs, num_workers=1)
    found = answers(logs)
    assert found["good"] is None and (found["small"] or "").startswith("near_zero: near_zero; same_for_all_seeds")
    assert "torch.nothing" in (found["broken"] or "")
    assert logs[1].reasons.keys() == {"good", "small"}
    assert answers([CheckLog(tmp_path / "check.jsonl", runs), CheckLog(tmp_path / "none.jsonl", screen)]).keys() == {
        "broken"
    }


def test_the_set_that_ships_is_what_its_card_says() -> None:
    tasks = load_tasks("passbench_lite")
    by_split = {split: [task for task in tasks if task.split == split] for split in KIND_OF}
    num_graphs = {split: sum(len(task.graphs) for task in mine) for split, mine in by_split.items()}
    assert len(by_split["eval"]) >= 200 and num_graphs["eval"] >= 1500
    assert len(by_split["train"]) >= 2000 and len(by_split["train_classical"]) >= 400
    assert len(by_split["eval_classical"]) >= 200 and len(by_split["single_op"]) >= 50
    sizes = [len(task.graphs) for task in by_split["eval"]]
    assert min(sizes) == 1 and max(sizes) > 50
    nets = [graph.net for task in tasks for graph in task.graphs]
    assert len({net["provenance"]["architecture"] for net in nets}) >= 120
    assert {net["domain"] for net in nets} >= {"text", "vision", "audio", "multimodal"}
    assert all(net["kind"] == KIND_OF[task.split] for task in tasks for net in [task.graphs[0].net])
    held_out = {operator_sequence(task.graphs[0]) for task in by_split["eval"]}
    assert not held_out & {operator_sequence(graph) for task in by_split["train"] for graph in task.graphs}
    card = (BUNDLED_DIR / "passbench_lite.md").read_text()
    for split, mine in by_split.items():
        assert f"| `{split}` | {len(mine):,} | {num_graphs[split]:,} |" in card
    assert (BUNDLED_DIR / "passbench_lite.parquet").stat().st_size < 25 * 2**20
