"""`passwright bench expert`: its arithmetic on verdicts made by hand, its file of results, cut-off and resume."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from data.passbench import load_tasks, write_parquet
from eval_harness.errors import HarnessError, ReferenceFailedError, UserError
from eval_harness.executor import LocalExecutor
from eval_harness.judge_pool import JudgePool
from eval_harness.presets import load_protocol
from eval_harness.scores import score_verdict
from eval_harness.verdict import GraphVerdict, Outcome, Verdict
from scripts import cli
from scripts.benches import expert_runs
from scripts.benches.expert_figures import NO_PASS, Scorer, plan_figures, share_figures, worst_tasks
from scripts.benches.expert_plan import RunSettings, draw_graph, draw_order, plan_task
from scripts.benches.expert_records import (
    ComparisonRecord,
    Member,
    PlanRecord,
    Progress,
    ResultFile,
    TaskRecord,
)
from scripts.benches.expert_runs import ExpertRun
from scripts.benches.expert_summary import summarise, targets
from scripts.benches.expert_tables import render
from scripts.benches.intervals import binomial_interval, mean_interval
from scripts.benches.output import report
from tests.helpers import add_relu_mul, add_relu_mul_pass, make_task

ROOT = Path(__file__).resolve().parent.parent
CONDITIONS = {"device": "cpu", "versions": {"torch": "2"}}


def correct(name: str, speedup: float | None = 2.0, **fields) -> GraphVerdict:
    fields = {"coverage": 1.0, "reference_latency_us": 50.0, "graph_hash": name} | fields
    return GraphVerdict(graph=name, outcome=Outcome.CORRECT, first_correct_t=-6, speedup=speedup, **fields)


def wrong(name: str, outcome: Outcome = Outcome.RUNTIME_ERROR, **fields) -> GraphVerdict:
    return GraphVerdict(graph=name, outcome=outcome, **{"graph_hash": name} | fields)


def verdict_of(task_id: str, *graphs: GraphVerdict) -> Verdict:
    return Verdict(
        candidate_hash="c", task_id=task_id, task_hash="t", protocol="reward", device="cpu", graphs=list(graphs),
        complete=not any(graph.outcome is Outcome.UNSTABLE for graph in graphs), timings={"timing": 1.0, "total": 2.0},
    )  # fmt: skip


def record(task_id: str, *graphs: GraphVerdict, state: str = "whole", refused=(), error=None) -> TaskRecord:
    plan = PlanRecord(state=state, refused=list(refused), candidate_hash="c" if graphs else "", seconds=0.5)
    verdict = verdict_of(task_id, *graphs) if graphs else None
    return TaskRecord(task_id=task_id, task_hash="t", plan=plan, verdict=verdict, error=error)


# ---- intervals


@given(st.integers(1, 60).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_binomial_interval_is_exact(case):
    count, total = case
    low, high = binomial_interval(count, total)

    def at_least(share: float, wanted: int) -> float:
        return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(wanted, total + 1))

    assert low <= count / total <= high
    assert low == 0.0 if count == 0 else at_least(low, count) == pytest.approx(0.025, rel=1e-6)
    assert high == 1.0 if count == total else 1 - at_least(high, count + 1) == pytest.approx(0.025, rel=1e-6)


def test_the_mean_interval_is_students_over_single_values_and_knows_that_a_tasks_graphs_are_alike():
    low, high = mean_interval([[1.0], [2.0], [4.0], [5.0]])
    reach = stdtrit(3, 0.975) * math.sqrt(10 / 3 / 4)
    assert (low, high) == (pytest.approx(3 - reach), pytest.approx(3 + reach))
    # ten equal graphs a task are no more evidence than one
    assert mean_interval([[1.0] * 10, [2.0] * 10, [4.0] * 10, [5.0] * 10]) == pytest.approx((low, high))
    assert mean_interval([[1.0, 2.0], []]) is None


# ---- figures


def test_the_share_counts_tasks_with_every_graph_correct_and_leaves_our_failures_out():
    records = [
        record("a", correct("g0"), correct("g1")),
        record("b", correct("g0"), wrong("g1")),
        record("c", state="none", refused=["no"]),
        record("d", error="JudgeError: lost"),
        record("e", correct("g0"), wrong("g1", Outcome.UNSTABLE)),
    ]
    share = share_figures(records)
    assert (share["correct"], share["of"], share["share"]) == (1, 4, 0.25)
    assert share["interval"] == binomial_interval(1, 4)


def test_a_row_agrees_with_the_scores_of_the_pooled_graphs():
    groups = [[correct("a", 2.0, coverage=0.5, gpu_speedup=3.0), wrong("b")], [correct("c", 0.5, gpu_speedup=12.0)]]
    row = Scorer().row(groups)
    scores = score_verdict([graph for group in groups for graph in group])
    assert row["as_score"] == pytest.approx(scores.as_score) and row["as_covered"] == pytest.approx(scores.as_covered)
    assert row["g_mean"] == pytest.approx(1.0) and row["gpu_g_mean"] == pytest.approx(6.0)
    assert (row["graphs"], row["correct"], row["subgraph_success"]) == (3, 2, pytest.approx(2 / 3))
    assert row["as_interval"][0] < row["as_score"] < row["as_interval"][1]
    unsteady = Scorer().row([*groups, [wrong("d", Outcome.UNSTABLE)]])
    assert unsteady["as_score"] == pytest.approx(row["as_score"]) and unsteady["not_scored"] == 1
    untimed = Scorer(is_timed=False).row([[correct("a", None)]])
    assert untimed["as_score"] is None and untimed["correct"] == 1


def test_against_compares_speeds_only_where_both_are_correct_and_scores_everywhere():
    ours = [[correct("a", 3.0)], [wrong("b")], [correct("c", 1.0)]]
    theirs = [[correct("a", 2.0)], [correct("b", 5.0)], [correct("c", 2.0)]]
    over = Scorer().against(ours, theirs)
    assert (over["graphs"], over["both_correct"], over["faster"]) == (3, 2, 1)
    assert over["ratio"] == pytest.approx(math.sqrt(1.5 * 0.5))
    assert over["as_ratio"] == pytest.approx(Scorer().row(ours)["as_score"] / Scorer().row(theirs)["as_score"])


def test_reasons_are_counted_by_tasks_without_the_numbers_in_them():
    planning = plan_figures(
        [
            record("a", state="none", refused=["`tmp_2 += tmp_3` is in place", "`tmp_0 += in_1` is in place"]),
            record("b", correct("g"), state="part", refused=["`tmp_7 += tmp_1` is in place"]),
            record("c", correct("g")),
            record("d", state="none"),
        ]
    )
    assert planning["plans"] == {"whole": 1, "part": 1, "none": 2, "error": 0}
    assert planning["reasons"] == {
        "`tmp += tmp` is in place": {"none": 1, "part": 1},
        "`tmp += in` is in place": {"none": 1},
        "no reason given": {"none": 1},
    }
    assert planning["seconds"] == 2.0


def test_the_worst_tasks_are_those_that_fail_then_those_that_are_slow():
    tasks = {name: make_task(add_relu_mul("g0"), task_id=name) for name in "abcd"}
    records = [
        record("a", correct("g0", 0.7)),
        record("b", correct("g0"), wrong("g1", message="it\nbroke")),
        record("c", correct("g0", 3.0)),
        record("d", state="none", refused=["no"]),
    ]
    worst = worst_tasks(records, tasks)
    assert [row["task"] for row in worst] == ["b", "a", "c"]
    assert (worst[0]["outcome"], worst[0]["why"]) == ("RUNTIME_ERROR", "it broke")
    assert "x0.70 where eager takes 50.0 us" in worst[1]["why"]


def compared(task, row: str, graph: GraphVerdict, *, guards: bool) -> ComparisonRecord:
    own = task.graphs[0]
    member = Member(task_id=task.task_id, graph=own.name, graph_hash=own.content_hash)
    candidate_hash = "c" if row == "expert" else ""
    return ComparisonRecord(
        row=row, guards=guards, members=[member], candidate_hash=candidate_hash, verdict=verdict_of("x", graph)
    )


def made_progress():
    """Three tasks of one graph: one CORRECT, one that fails, one whose baseline was unsteady."""
    tasks = [make_task(add_relu_mul(rows=8 * n), task_id=f"t{n}") for n in (1, 2, 3)]
    hashes = [task.graphs[0].content_hash for task in tasks]
    own = [
        correct("add_relu_mul", 2.0, graph_hash=hashes[0], reference_latency_us=12.0, gpu_speedup=4.0),
        wrong("add_relu_mul", graph_hash=hashes[1], message="out of bounds"),
        correct("add_relu_mul", 4.0, graph_hash=hashes[2]),
    ]
    theirs = [correct("x", 1.5), correct("x", 1.5), wrong("x", Outcome.UNSTABLE)]
    guarded = [correct("x", 1.2), None, correct("x", 1.1)]
    comparisons = []
    for task, direct, behind in zip(tasks, theirs, guarded, strict=True):
        comparisons.append(compared(task, "inductor", direct, guards=False))
        comparisons.append(compared(task, "inductor", correct("x", 0.5), guards=True))
        comparisons.append(compared(task, "eager", correct("x", 1.0), guards=False))
        if behind is not None:
            comparisons.append(compared(task, "expert", behind, guards=True))
    members = [
        Member(task_id=task.task_id, graph="add_relu_mul", graph_hash=task.graphs[0].content_hash) for task in tasks
    ]
    records = [record(task.task_id, graph) for task, graph in zip(tasks, own, strict=True)]
    return tasks, Progress(reached=records, compared=members, comparisons=comparisons)


def made_settings(**fields) -> RunSettings:
    fields = {
        "device": "cpu",
        "protocol": load_protocol("reward"),
        "seed": 0,
        "baselines": ("eager", "inductor"),
    } | fields
    return RunSettings(**fields)


def test_rows_are_compared_on_the_same_graphs_and_a_failing_pass_is_no_better_behind_guards():
    tasks, progress = made_progress()
    figures = summarise(progress, {task.task_id: task for task in tasks}, made_settings())
    direct, guarded = figures["comparisons"]["without guards"], figures["comparisons"]["with guards"]
    assert (direct["asked"], direct["graphs"], guarded["graphs"]) == (3, 2, 3)  # the unsteady one is in no row
    assert direct["rows"]["expert"]["correct"] == 1 and direct["rows"]["inductor"]["correct"] == 2
    assert direct["over_inductor"]["ratio"] == pytest.approx(2.0 / 1.5)
    assert guarded["rows"]["expert"]["correct"] == 2
    assert guarded["over_inductor"]["ratio"] == pytest.approx(math.sqrt(1.2 * 1.1) / 0.5)
    groups = {group["group"]: group for group in figures["groups"]}
    assert groups["eager under 20 us"]["graphs"] == groups["eager from 20 us"]["graphs"] == 1
    assert groups["eager under 20 us"]["x_inductor"] == pytest.approx(1.5)
    assert groups["eager not timed"]["correct"] == 0
    assert figures["stages"]["expert"] == {"plan": 1.5, "timing": 3.0, "other": 3.0, "total": 6.0}
    assert figures["outcomes"] == {"CORRECT": 2, "RUNTIME_ERROR": 1}


def test_the_tables_and_targets_say_what_the_figures_say(tmp_path, capsys):
    tasks, progress = made_progress()
    progress.reached[2] = record("t3", state="none", refused=["no"])
    progress.was_cut_off = True
    figures = summarise(progress, {task.task_id: task for task in tasks}, made_settings())
    figures |= {"tasks": "made", "asked": 9, "sampled": 4, "seed": 0, "wall_s": 7.0}
    text = render(figures)
    assert "9 tasks; 4 in random order (seed 0); reached 3 of them (75%)" in text
    assert "cut off by --max-seconds" in text and "--resume goes on" in text
    assert "1 of 3 tasks = 33.3%" in text
    assert [row["tasks"] for row in figures["rows"].values()] == [3, 2]
    assert NO_PASS in text and "out of bounds" in text and "TorchInductor" in text
    on_gpu = targets(figures, "cuda:0")
    assert [target.is_met for target in on_gpu] == [False, True, False, False]
    assert on_gpu[2].measured == figures["comparisons"]["without guards"]["over_inductor"]["as_ratio"]
    assert len(targets(figures, "cpu")) == 1
    args = argparse.Namespace(device="cuda:0", json=None, out=tmp_path)
    facts = {"machine": {}, "versions": {}, "confinement": {}}
    assert report(args, "expert", body=text, figures=figures, targets=on_gpu, facts=facts) == 4
    assert "tasks with every graph CORRECT" in capsys.readouterr().err


def test_nothing_reached_is_still_a_table():
    figures = summarise(Progress(was_cut_off=True), {}, made_settings())
    figures |= {"tasks": "made", "asked": 9, "sampled": 4, "seed": 0, "wall_s": 7.0}
    assert "reached 0 of them (0%)" in render(figures)
    assert not any(target.is_met for target in targets(figures, "cuda:0"))


# ---- order and plans


@given(seed=st.integers(), sample=st.integers(1, 30), turned=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_larger_sample_begins_with_the_smaller_one_however_the_tasks_lie(seed, sample, turned):
    tasks = [make_task(add_relu_mul(), task_id=f"t{n}") for n in range(20)]
    whole = [task.task_id for task in draw_order(tasks, seed=seed, sample=None)]
    part = [task.task_id for task in draw_order(tasks[::-1] if turned else tasks, seed=seed, sample=sample)]
    assert part == whole[:sample] and sorted(whole) == sorted(task.task_id for task in tasks)


def test_the_compared_graphs_are_drawn_from_all_places_of_a_task():
    task = load_tasks("mini:train")[0]
    assert {draw_graph(task, seed).name for seed in range(60)} == {graph.name for graph in task.graphs}


def test_an_expert_that_fails_is_a_record(monkeypatch):
    from trajectories.policies import expert_pass

    def fails(graphs, device):
        raise IndexError("list index out of range")

    monkeypatch.setattr(expert_pass, "plan_pass", fails)
    plan, candidate = plan_task(load_tasks("mini:train")[0], "cpu")
    assert candidate is None and plan.state == "error"
    assert plan.refused == ["the expert fails: IndexError: list index out of range"]


# ---- the file of results


def test_results_survive_a_torn_line_and_the_last_of_a_task_counts(tmp_path):
    results = ResultFile(tmp_path, CONDITIONS, resume=True)
    results.append(record("a", wrong("g0")))
    results.append(record("a", correct("g0")))
    results.close()
    whole = results.path.read_bytes()
    results.path.write_bytes(whole + b'{"kind": "task", "task_id": "b", "ta')
    again = ResultFile(tmp_path, CONDITIONS, resume=True)
    assert again.tasks.keys() == {"a"} and again.tasks["a"].verdict.num_correct == 1
    again.append(record("c", state="none"))
    again.close()
    assert results.path.read_bytes().startswith(whole)
    assert ResultFile(tmp_path, CONDITIONS, resume=True).tasks.keys() == {"a", "c"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text.replace('"torch":"2"', '"torch":"1"'), ["versions torch 1, not 2", "--no-resume"]),
        (lambda text: text.replace('"state":"whole"', '"state":"?"'), ["expert.jsonl:2", "plan.state"]),
        (lambda text: text.split("\n", 1)[1], ["not written by this version"]),
    ],
)
def test_other_results_are_refused_and_kept(tmp_path, spoil, words):
    results = ResultFile(tmp_path, CONDITIONS, resume=True)
    results.append(record("a", correct("g0")))
    results.close()
    text = spoil(results.path.read_text())
    results.path.write_text(text)
    with pytest.raises(UserError) as refused:
        ResultFile(tmp_path, CONDITIONS, resume=True)
    message = str(refused.value)
    assert "\n" not in message and str(results.path) in message and all(word in message for word in words), message
    ResultFile(tmp_path, CONDITIONS, resume=False).close()
    assert (tmp_path / "expert.previous.jsonl").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sample", "0"], "--sample 0"),
        (["--with", "triton"], "--with triton"),
        (["--correctness-only", "--with", "inductor"], "--correctness-only"),
        (["--tasks", "nowhere"], "nowhere"),
        (["--device", "gpu"], "--device gpu"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, capsys, arguments, words):
    assert cli.main(["bench", "expert", "--out", str(tmp_path / "out"), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "out").exists()


# ---- runs: the real pool, with judges that answer at once


class QuickJudge:
    """A judge of its own words: every graph CORRECT, unless the test says otherwise."""

    device = "cpu"

    def __init__(self, log: list[tuple[str, int, str]], *, delay_s: float = 0.0, raises=None, slow: str = "") -> None:
        """slow: a task that takes two seconds."""
        self.log, self.delay_s, self.raises, self.slow = log, delay_s, raises, slow
        self.is_started = False

    def start(self) -> None:
        self.is_started = True

    def evaluate(self, subject, task, protocol, *, seed, progress=None) -> Verdict:
        time.sleep(2.0 if task.task_id == self.slow else self.delay_s)
        self.log.append((subject if isinstance(subject, str) else "expert", len(task.graphs), protocol.apply))
        if self.raises is not None:
            raise self.raises
        graphs = [correct(graph.name, 1.5, graph_hash=graph.content_hash) for graph in task.graphs]
        return verdict_of(task.task_id, *graphs)

    def interrupt(self) -> None: ...

    def kill(self) -> None:
        self.is_started = False

    close = kill


def run_tasks(tmp_path, tasks, *, judges, deadline_s=None, **fields):
    results = ResultFile(tmp_path, CONDITIONS, resume=True)
    try:
        with JudgePool(judges) as pool:
            deadline = None if deadline_s is None else time.monotonic() + deadline_s
            return ExpertRun(made_settings(**fields), tasks, pool, results).run(deadline)
    finally:
        results.close()


@pytest.fixture(scope="module")
def mini():
    return draw_order(load_tasks("mini:train"), seed=1, sample=9)


def test_a_run_compares_one_graph_of_each_task_by_every_row(tmp_path, mini):
    log: list[tuple[str, int, str]] = []
    progress = run_tasks(tmp_path, mini, judges=[QuickJudge(log), QuickJudge(log)], max_compared=5)
    with_pass = [one for one in progress.reached if one.verdict is not None]
    assert [one.task_id for one in progress.reached] == [task.task_id for task in mini]
    assert not progress.was_cut_off and len(progress.compared) == 5
    assert [member.task_id for member in progress.compared] == [one.task_id for one in with_pass[:5]]
    counts = {key: sum(n for who, n, apply in log if (who, apply) == key) for key in {(w, a) for w, _, a in log}}
    assert counts[("eager", "direct")] == counts[("inductor", "direct")] == counts[("inductor", "compile")] == 5
    assert counts[("expert", "compile")] == 5
    assert counts[("expert", "direct")] == sum(len(one.verdict.graphs) for one in with_pass)
    figures = summarise(progress, {task.task_id: task for task in mini}, made_settings())
    assert figures["comparisons"]["with guards"]["graphs"] == figures["comparisons"]["without guards"]["graphs"] == 5


def test_a_run_that_is_cut_off_has_the_head_of_the_order_and_goes_on_without_doing_twice(tmp_path, mini):
    log: list[tuple[str, int, str]] = []
    judges = [QuickJudge(log, delay_s=0.2), QuickJudge(log, delay_s=0.2)]
    started = time.monotonic()
    first = run_tasks(tmp_path, mini, judges=judges, deadline_s=0.7, baselines=())
    assert time.monotonic() - started < 5 and first.was_cut_off and 0 < len(first.reached) < len(mini)
    assert [one.task_id for one in first.reached] == [task.task_id for task in mini[: len(first.reached)]]
    done = len(log)
    again = run_tasks(tmp_path, mini, judges=[QuickJudge(log)], baselines=())
    assert [one.task_id for one in again.reached] == [task.task_id for task in mini]
    assert again.num_resumed >= len(first.reached) and not again.was_cut_off
    num_with_pass = sum(one.verdict is not None for one in again.reached)
    assert len(log) == num_with_pass and done < num_with_pass


def test_what_ended_behind_a_gap_is_kept_and_in_no_figure(tmp_path, mini, monkeypatch):
    monkeypatch.setattr(expert_runs, "GRACE_S", 0.1)
    judges = [QuickJudge([], slow=mini[1].task_id), QuickJudge([], slow=mini[1].task_id)]
    progress = run_tasks(tmp_path, mini[:5], judges=judges, deadline_s=0.8, baselines=())
    assert [one.task_id for one in progress.reached] == [mini[0].task_id]
    assert progress.num_beyond == 3 and progress.was_cut_off
    assert run_tasks(tmp_path, mini[:5], judges=[QuickJudge([])], baselines=()).num_resumed == 4


def test_a_pass_that_changed_is_evaluated_again_and_another_is_not(tmp_path, mini):
    log: list[tuple[str, int, str]] = []
    run_tasks(tmp_path, mini[:3], judges=[QuickJudge(log)], baselines=())
    num = len(log)
    path = tmp_path / "expert.jsonl"
    lines = path.read_text().splitlines()
    changed = json.loads(lines[-1])
    changed["plan"]["candidate_hash"] = "older"
    path.write_text("\n".join([*lines[:-1], json.dumps(changed)]) + "\n")
    run_tasks(tmp_path, mini[:3], judges=[QuickJudge(log)], baselines=())
    assert len(log) == num + 1


def test_what_the_harness_fails_on_is_in_no_share_and_is_tried_again(tmp_path, mini):
    log: list[tuple[str, int, str]] = []
    failing = QuickJudge(log, raises=ReferenceFailedError("eager gives inf", "runtime"))
    progress = run_tasks(tmp_path, mini[:2], judges=[failing], baselines=())
    assert all("eager gives inf" in (one.error or "") for one in progress.reached)
    assert share_figures(progress.reached)["of"] == 0
    again = run_tasks(tmp_path, mini[:2], judges=[QuickJudge(log)], baselines=())
    assert all(one.error is None for one in again.reached) and again.num_resumed == 0


def test_a_machine_that_fails_every_time_ends_the_run(tmp_path, mini):
    judge = QuickJudge([], raises=HarnessError("no device"))
    with pytest.raises(HarnessError, match="5 evaluations in a row failed, the last with: no device"):
        run_tasks(tmp_path, mini, judges=[judge], baselines=())


# ---- the real harness


@pytest.mark.slow
def test_without_the_clock_a_verdict_is_complete_and_has_no_score():
    protocol = load_protocol("reward", timing=False, num_draws=1, unseen_shapes=0, unseen_dtypes=0)
    task = make_task(add_relu_mul(rows=8, columns=16))
    with LocalExecutor("cpu") as executor:
        verdict = executor.submit(add_relu_mul_pass(), task, protocol=protocol).result(timeout=120)
    assert verdict.complete and verdict.as_score is None and verdict.es == {}
    (graph,) = verdict.graphs
    assert graph.outcome is Outcome.CORRECT and graph.speedup is None and "not timed" in graph.message
    assert "timing" not in verdict.timings


@pytest.mark.slow
def test_a_run_that_is_killed_keeps_what_it_has_and_the_next_one_finishes(tmp_path):
    tasks = [make_task(add_relu_mul(rows=rows, columns=32), task_id=f"rows_{rows}") for rows in (8, 16)]
    write_parquet(tasks, tmp_path / "two.parquet")
    command = [
        sys.executable, "-m", "scripts.cli", "bench", "expert", "--tasks", str(tmp_path / "two.parquet"),
        "--device", "cpu", "--correctness-only", "--out", str(tmp_path / "out"), "--json", str(tmp_path / "out.json"),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[1/2]"):
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert sum('"kind":"task"' in line for line in (tmp_path / "out/expert.jsonl").read_text().splitlines()) == 1
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode in (0, 4), ended.stderr
    assert "1 of them were evaluated by an earlier run" in ended.stdout
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    assert figures["reached"] == 2 and figures["resumed"] == 1 and not figures["is_timed"]
    assert figures["share"]["of"] == 2 and sum(figures["outcomes"].values()) == 2
