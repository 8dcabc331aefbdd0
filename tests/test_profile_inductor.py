"""`passwright profile-inductor`: the tables from verdicts, and runs that are cut off and gone on with."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.task import Task
from eval_harness.errors import HarnessError, UserError
from eval_harness.inductor_profile import CAUSES, KERNEL_RANGES, ProfiledGraph, summarise
from eval_harness.paper_figures import PASSNET_APPENDIX_G
from eval_harness.presets import load_protocol
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from scripts.cli import main
from scripts.inductor_runs import ProfileFile, draw_graphs, run_profile
from scripts.inductor_tables import render
from tests.helpers import make_graph


def verdict(speedup: float | None, *, gpu: float | None = None, eager_us: float = 100.0, **more: Any) -> GraphVerdict:
    fields = {"graph": "g", "graph_hash": "h", "outcome": Outcome.CORRECT, "first_correct_t": -10} | more
    return GraphVerdict(**fields, speedup=speedup, gpu_speedup=gpu, reference_latency_us=eager_us)


def profiled(direct: float, guarded: float, *, nodes: int = 5, gpu: float | None = None, eager_us: float = 100.0):
    return ProfiledGraph(
        task_id="t", graph="g", graph_hash=f"{direct} {guarded} {nodes} {gpu}", num_nodes=nodes, dtype="float32",
        direct=verdict(direct, gpu=gpu, max_abs_difference=0.0, speedup_interval=(direct - 0.05, direct + 0.05)),
        guarded=verdict(guarded, eager_us=eager_us),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (profiled(1.5, 1.01), None),
        (profiled(0.9, 0.8), CAUSES[0]),
        (profiled(1.5, 0.8, gpu=0.9), CAUSES[0]),  # a GPU's time says more of kernels than the host's clock
        (profiled(0.9, 0.8, gpu=1.5), CAUSES[1]),
        (profiled(0.97, 0.8), CAUSES[1]),  # its interval reaches 1
        (profiled(0.9, 0.8, gpu=0.99), CAUSES[1]),  # within the noise of two profiles
        (profiled(1.2, 0.8, nodes=15), CAUSES[2]),
        (profiled(1.2, 0.8, nodes=15, eager_us=2000.0), CAUSES[3]),
    ],
)
def test_a_slowdown_has_the_first_cause_that_holds(record: ProfiledGraph, cause: str | None) -> None:
    assert record.cause == cause


def test_the_tables_of_a_few_graphs() -> None:
    records = [
        profiled(1.5, 1.1), profiled(0.9, 0.5), profiled(2.0, 0.8, nodes=20), profiled(1.1, 0.9, nodes=3),
        ProfiledGraph(task_id="t", graph="g", graph_hash="x", num_nodes=2, dtype="float32", error="HarnessError: y"),
        ProfiledGraph(task_id="t", graph="g", graph_hash="y", num_nodes=2, dtype="float32",
                      direct=GraphVerdict(graph="g", graph_hash="y", outcome=Outcome.RUNTIME_ERROR),
                      guarded=GraphVerdict(graph="g", graph_hash="y", outcome=Outcome.RUNTIME_ERROR)),
    ]  # fmt: skip
    figures = summarise(records)
    assert (figures["num_graphs"], figures["num_measured"], figures["num_failed_by_us"]) == (6, 5, 1)
    assert figures["success"] == 4 / 5 and figures["slowdowns"] == 3 / 4
    assert figures["kernel_speedups"] == {"below 1": 0.25, "1 to 1.2": 0.25, "1.2 to 2": 0.25, "2 and more": 0.25}
    assert [each["num"] for each in figures["causes"]] == [1, 1, 1, 0]
    assert figures["causes"][0]["median_speedup"] == 0.5
    nodes = {each["nodes"]: (each["num"], each["slow"]) for each in figures["by_nodes"]}
    assert nodes["1-5"] == (3, pytest.approx(2 / 3)) and nodes["15-29"] == (1, 1.0) and nodes["6-14"] == (0, None)
    # 100 us of eager's: 100/1.1 - 100/1.5, 100/0.5 - 100/0.9, 100/0.8 - 100/2 and 100/0.9 - 100/1.1
    assert figures["dispatch_us"] == pytest.approx((100 / 1.1 - 100 / 1.5 + 75) / 2)
    assert figures["precision"]["bitwise_equal"] == 1.0 and figures["precision"]["num"] == 4
    text = render(figures | {"asked": 6, "is_whole": True})
    assert "84.5%" in text and "61.5%" in text and "0.68" in text


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=30))
def test_every_speedup_is_in_one_range(speedups: list[float]) -> None:
    figures = summarise([profiled(speedup, 1.0, nodes=number) for number, speedup in enumerate(speedups, 1)])
    assert sum(figures["kernel_speedups"].values()) == pytest.approx(1.0)
    assert [name for name, *_ in KERNEL_RANGES] == list(PASSNET_APPENDIX_G["kernel_speedups"])
    assert sum(each["num"] for each in figures["by_nodes"]) == len(speedups)


def test_the_paper_s_shares_add_up() -> None:
    assert sum(PASSNET_APPENDIX_G["kernel_speedups"].values()) == pytest.approx(1.0, abs=0.006)
    assert sum(share for share, _ in PASSNET_APPENDIX_G["causes"].values()) == pytest.approx(1.0, abs=0.006)
    assert tuple(PASSNET_APPENDIX_G["causes"]) == CAUSES


# runs


class Judge:
    """Answers at once; `fail`: names of graphs that our side fails on."""

    device = "cpu"

    def __init__(self, fail: tuple[str, ...] = (), outcome: Outcome = Outcome.CORRECT) -> None:
        self.fail, self.outcome, self.asked = fail, outcome, list[tuple[str, str, str, bool]]()

    def submit(self, candidate: Any, task: Task, *, protocol: Any, seed: int | None = None) -> Future[Verdict]:
        (graph,) = task.graphs
        self.asked.append((graph.name, protocol.apply, protocol.inputs, protocol.timing))
        future: Future[Verdict] = Future()
        if graph.name in self.fail:
            future.set_exception(HarnessError("broken"))
            return future
        found = verdict(1.5 if protocol.apply == "direct" else 0.9) if protocol.timing else verdict(None)
        future.set_result(Verdict(
            candidate_hash="inductor", task_id=task.task_id, task_hash="h", protocol=protocol.name, device="cpu",
            complete=True, graphs=[found.model_copy(update={"graph": graph.name, "graph_hash": graph.content_hash})],
        ))  # fmt: skip
        return future


def make_tasks(count: int) -> list[Task]:
    return [
        Task(f"t{i}", (make_graph(f"g{i}", f"return (in_0 + {i},)", {"in_0": ((4, 4), "float32")}),))
        for i in range(count)
    ]


def run(folder: Path, judge: Judge, tasks: list[Task], *, resume: bool = True, deadline: float | None = None) -> Any:
    results = ProfileFile(folder / "graphs.jsonl", {"machine": "m"}, resume=resume)
    try:
        graphs = draw_graphs(tasks, seed=0, sample=None)
        whole = run_profile(
            graphs, judge, load_protocol("reward"), results, draws=("passnet", "robust"), num_workers=2,
            deadline=deadline, on_graph=lambda place, record: None,
        )  # fmt: skip
    finally:
        results.close()
    return whole, results.records


def test_every_graph_is_measured_once_over_two_runs(tmp_path: Path) -> None:
    tasks, judge = make_tasks(6), Judge()
    whole, records = run(tmp_path, judge, tasks[:4])
    assert whole and len(records) == 4 and all(record.is_measured for record in records.values())
    for how in ("direct", "compile"):
        assert judge.asked.count(("g0", how, "robust", True)) == 1
    assert {(inputs, timing) for _, _, inputs, timing in judge.asked} == {
        ("robust", True), ("passnet", False), ("robust", False)
    }  # fmt: skip
    again = Judge()
    # a killed run leaves half a line
    with (tmp_path / "graphs.jsonl").open("a") as file:
        file.write('{"task_id": "t')
    whole, records = run(tmp_path, again, tasks)
    assert whole and len(records) == 6 and {name for name, *_ in again.asked} == {"g4", "g5"}
    assert len((tmp_path / "graphs.jsonl").read_text().splitlines()) == 1 + 6


def test_what_we_failed_on_is_tried_again_and_a_broken_machine_ends_the_run(tmp_path: Path) -> None:
    tasks = make_tasks(8)
    _, records = run(tmp_path, Judge(fail=("g1",)), tasks[:3])
    assert [record.error for record in records.values() if record.error] == ["HarnessError: broken"]
    _, records = run(tmp_path, Judge(), tasks[:3])
    assert not any(record.error for record in records.values())
    with pytest.raises(HarnessError, match="in a row failed, the last with: HarnessError: broken"):
        run(tmp_path, Judge(fail=tuple(f"g{i}" for i in range(8))), tasks)


def test_a_run_ends_at_its_deadline(tmp_path: Path) -> None:
    whole, records = run(tmp_path, Judge(), make_tasks(3), deadline=time.monotonic() - 1)
    assert not whole and not records


def test_other_conditions_are_refused(tmp_path: Path) -> None:
    run(tmp_path, Judge(), make_tasks(1))
    with pytest.raises(UserError, match="other conditions; give --no-resume"):
        ProfileFile(tmp_path / "graphs.jsonl", {"machine": "other"}, resume=True)
    (tmp_path / "graphs.jsonl").write_text('{"machine": "m"}\n{}\n')
    with pytest.raises(UserError, match=r"graphs.jsonl:2: no record of a graph"):
        ProfileFile(tmp_path / "graphs.jsonl", {"machine": "m"}, resume=True)
    ProfileFile(tmp_path / "graphs.jsonl", {"machine": "m"}, resume=False).close()
    assert (tmp_path / "graphs.previous.jsonl").exists()


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    tasks = make_tasks(9)
    whole = [graph.name for _, graph in draw_graphs(tasks + tasks[:2], seed=3, sample=None)]
    assert len(whole) == 9 and [g.name for _, g in draw_graphs(tasks, seed=3, sample=4)] == whole[:4]


@pytest.mark.slow
def test_real_graphs_through_the_real_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["profile-inductor", "--tasks", "mini", "--sample", "1", "--out", str(tmp_path / "p"), "--json", "-"])
    out = capsys.readouterr()
    assert status in (0, 4), out.err
    figures = json.loads(out.out)["figures"]
    assert figures["num_measured"] == 1 and set(figures["draws"]) == {"num", "passnet", "robust"}
    assert "compile and verify" in out.err
    assert main(["profile-inductor", "--sample", "0"]) == 2
