"""Budgets, the gate in front of a teacher, the ledger added up, and what a dry run says."""

import json
import threading
import time
from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.errors import UserError
from scripts import cli
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from tests.test_collect_plan import row
from trajectories.budget import Budget, BudgetLimits
from trajectories.collect import CollectConfig, run_collect
from trajectories.collect_estimate import estimate_collection
from trajectories.collect_meters import AnswerGate, Gauge
from trajectories.collect_prices import price_of
from trajectories.collect_text import render_run
from trajectories.environment import AttemptCancelledError
from trajectories.estimate import Assumptions, assume, measure, render_estimate
from trajectories.ledger import Ledger
from trajectories.policies.replay import pass_folder_answers
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.policy import ContextLimitError, PolicyError
from trajectories.progress import Clock
from trajectories.record import StopReason, Usage
from trajectories.store import TrajectoryStore

TASKS = [make_task(f"task{i}") for i in range(4)]


class Paid(ScriptedPolicy):
    """Two teachers by the attempt; an answer costs 0.1 USD and 100 tokens and counts how many are under way."""

    is_stateless = True
    under_way: ClassVar[Counter] = Counter()
    most: ClassVar[Counter] = Counter()
    mutex: ClassVar = threading.Lock()

    def __init__(self, own):
        super().__init__(pass_folder_answers(pass_files("as=1.5")))
        self.pause_s = own.get("pause_s", 0.0)
        self.name = "?"

    def start(self, task, *, attempt_index, seed, device):
        self.name = f"teacher{attempt_index % 2}"

    def answer(self, messages, tools):
        with self.mutex:
            self.under_way[self.name] += 1
            self.most[self.name] = max(self.most[self.name], self.under_way[self.name])
        time.sleep(self.pause_s)
        with self.mutex:
            self.under_way[self.name] -= 1
        self._position = sum(message.role == "assistant" for message in messages)
        usage = Usage(cost_usd=0.1, input_tokens=80, output_tokens=20)
        return super().answer(messages, tools).model_copy(update={"usage": usage})

    def describe(self):
        return {"kind": "paid", "teacher": self.name}


@pytest.fixture(autouse=True)
def fresh_counts():
    Paid.under_way, Paid.most = Counter(), Counter()


def collect(root, *, pause_s=0.0, **changes):
    settings = {"name": "c", "tasks": ["x"], "num_attempts": 2, "num_workers": 3, "out_dir": root}
    config = CollectConfig(**(settings | {"policy": {"kind": "paid", "pause_s": pause_s}} | changes))
    return run_collect(config, TASKS, CannedEvaluator(), factories={"paid": Paid}, progress=False)


@pytest.mark.parametrize(
    ("budget", "num_paid"), [({"budget_usd": 1.0}, 10), ({"budget_tokens": 1000}, 10), ({"budget_usd": 0.0}, 0)]
)
def test_each_budget_ends_the_run_and_more_goes_on(tmp_path, budget, num_paid):
    summary = collect(tmp_path, num_workers=1, **budget)
    assert Ledger(tmp_path / "ledger.jsonl").num_answers == num_paid
    assert not summary.is_complete and set(summary.stop_reasons) <= {"SUBMITTED", "BUDGET_LIMIT"}
    summary = collect(tmp_path, num_workers=4, **{name: 100 * (value + 1) for name, value in budget.items()})
    assert summary.is_complete and summary.spent_usd == summary.usage.cost_usd == pytest.approx(8 * 4 * 0.1)


def test_hours_of_earlier_runs_count(tmp_path):
    tmp_path.mkdir(exist_ok=True)
    lines = [{"run": "a", "elapsed_s": 10}, {"run": "a", "elapsed_s": 3000}, {"run": "b", "elapsed_s": 500}]
    (tmp_path / "progress.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"run": "b", "elap')
    assert Clock(tmp_path).earlier_s == 3500
    assert collect(tmp_path, budget_hours=3500 / 3600).num_finished == 0
    assert collect(tmp_path, budget_hours=2).is_complete
    assert all(json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()[4:])
    again = Clock(tmp_path)
    assert 3500 < again.earlier_s < 3560


def test_many_attempts_overshoot_by_about_one_answer(tmp_path):
    collect(tmp_path, num_workers=8, pause_s=0.05, budget_usd=1.5, num_attempts=4)
    assert 1.3 <= Ledger(tmp_path / "ledger.jsonl").spent_usd <= 1.75  # without foresight: up to 2.2
    stops = {trajectory.stop_reason for trajectory in TrajectoryStore(tmp_path)}
    assert StopReason.BUDGET_LIMIT in stops


def test_what_answers_under_way_may_cost_ends_no_attempt(tmp_path, monkeypatch):
    """Only what is spent does: else all planned attempts end, unmade, while one slow answer is waited for."""

    def start(self, task, *, attempt_index, seed, device):
        self.name, self.pause_s = "teacher", 0.5 if task.task_id == "task0" else 0.01

    monkeypatch.setattr(Paid, "start", start)
    summary = collect(tmp_path, num_workers=4, budget_usd=1.55, num_attempts=10)
    turns = [trajectory.num_turns for trajectory in TrajectoryStore(tmp_path)]
    assert summary.spent_usd == pytest.approx(1.6) and sum(turns) == 16
    assert turns.count(0) <= 4 and len(turns) <= 9


def test_a_wait_for_the_budget_ends_when_an_answer_has_come(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    budget = Budget(BudgetLimits(usd=1.0), ledger, lambda: 0.0)
    ledger.append("a", 1, Usage(cost_usd=0.6))
    ledger.close()
    budget.book("a", 0.6, 0)
    assert budget.take("a") is None and budget.take("b") == "budget_usd of 1.00" and budget.spent is None
    threading.Timer(0.05, budget.give_back, ["a"]).start()
    started = time.monotonic()
    budget.wait(timeout_s=30)
    budget.wait(timeout_s=30)  # nothing is under way: nothing to wait for
    assert time.monotonic() - started < 10 and budget.take("b") is None


def test_a_further_run_guesses_by_what_answers_have_cost(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("a", 1, Usage(cost_usd=0.4))
    ledger.close()
    budget = Budget(BudgetLimits(usd=1.0), Ledger(tmp_path / "ledger.jsonl"), lambda: 0.0)
    assert [budget.take(name) for name in "bcd"] == [None, None, "budget_usd of 1.00"]


@pytest.mark.parametrize("error", [PolicyError, ContextLimitError])
def test_money_for_an_answer_that_broke_off_for_good_is_in_the_ledger(tmp_path, monkeypatch, error):
    def break_off(self, messages, tools):
        raise error("cut", lost=Usage(cost_usd=0.3, output_tokens=7, num_estimated=1))

    monkeypatch.setattr(Paid, "answer", break_off)
    summary = collect(tmp_path, num_workers=1, num_attempts=1, budget_usd=0.5)
    assert summary.spent_usd == pytest.approx(0.6) and summary.usage.cost_usd == 0  # 0.3, and 0.3 more


def test_an_attempt_that_asks_again_is_not_counted_twice(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    budget = Budget(BudgetLimits(usd=1.0), ledger, lambda: 0.0)
    ledger.append("a", 1, Usage(cost_usd=0.4))
    budget.book("a", 0.4, 0)
    assert budget.take("a") is None and budget.take("a") is None  # 0.4 spent
    assert budget.take("b") is None  # 0.4 under way
    assert budget.take("c") == "budget_usd of 1.00"
    budget.give_back("b")
    assert budget.take("c") is None and budget.spent is None
    ledger.close()


@pytest.mark.parametrize(
    ("limit", "most"),
    [(2, {"teacher0": 2, "teacher1": 2}), ({"teacher1": 1, "*": 3}, {"teacher0": 3, "teacher1": 1}), (None, {})],
)
def test_a_teacher_has_so_many_answers_at_a_time(tmp_path, limit, most):
    collect(tmp_path, num_workers=8, pause_s=0.03, max_concurrent_answers=limit)
    for name in ("teacher0", "teacher1"):
        assert Paid.most[name] == most.get(name, 4), Paid.most


def test_a_wait_for_a_place_ends_with_the_run():
    cancelled = threading.Event()
    gate = AnswerGate(1, cancelled.is_set)
    gate.enter("a")
    gate.enter("b")
    cancelled.set()
    with pytest.raises(AttemptCancelledError):
        gate.enter("a")
    gate.leave("a")
    gate.enter("a")
    assert gate.all.num_under_way == 2 and gate.by_teacher["a"].num_under_way == 1


def test_a_gauge_counts_up_to_its_capacity():
    gauge = Gauge(2)
    for _ in range(3):
        gauge.begin()
    time.sleep(0.1)
    for _ in range(3):
        gauge.end()
    busy_s = gauge.busy_s
    assert 0.19 <= busy_s <= 0.4 and gauge.busy_s == busy_s and gauge.num_ended == 3


def test_the_ledger_is_added_up_by_teacher_task_and_kept_trajectory(tmp_path):
    summary = collect(tmp_path, num_attempts=3)
    entries = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert {entry["teacher"] for entry in entries} == {"teacher0", "teacher1"}
    assert {(entry["task_id"], entry["trajectory_id"][:5]) for entry in entries} == {
        (f"task{i}", f"task{i}") for i in range(4)
    }
    costs = json.loads((tmp_path / "costs.json").read_text())
    assert summary.teachers["teacher0"].num_finished == 8 and summary.teachers["teacher1"].num_finished == 4
    for part in ("teachers", "tasks", "kept"):
        assert sum(each["spent_usd"] for each in costs[part].values()) == pytest.approx(summary.spent_usd), part
    assert summary.num_kept == len(costs["kept"]) == 12
    assert costs["tasks"]["task0"]["usd_per_kept"] == pytest.approx(0.4) == summary.usd_per_kept
    shown = render_run(tmp_path)
    assert "12 of 12 attempts finished" in shown and "teacher1: 4 finished, 4 kept, 16 answers" in shown
    assert "4.80 USD (0.400 for each that is kept)" in shown


def test_a_ledger_without_teachers_is_read(tmp_path):
    old = {"time": "", "trajectory_id": "task0__000", "turn": 1, "cost_usd": 0.5, "output_tokens": 3}
    (tmp_path / "ledger.jsonl").write_text(json.dumps(old) + "\n")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.by_task["task0"].cost_usd == ledger.spent_usd == 0.5 and list(ledger.by_teacher) == [""]


# the dry run


def test_what_is_assumed_adds_up():
    price = price_of({"prices": {"input": 2.0, "output": 10.0, "cached_input": 0.2}})
    one = assume(TASKS, Assumptions(turns=3, output_tokens_per_turn=100, reply_tokens_per_turn=50, cached_share=0.5),
                 prompt_chars=3300, max_turns=2, price=price)  # fmt: skip
    # two turns: the prompt twice, and the first turn once more
    assert one.turns == 2 and one.input_tokens == pytest.approx(2 * 1000 + 150) and one.output_tokens == 200
    assert one.usd == pytest.approx((1075 * 2 + 1075 * 0.2 + 200 * 10) / 1e6)


@given(num=st.integers(1, 20), usd=st.floats(0, 10))
@settings(max_examples=30, deadline=None)
def test_what_is_measured_is_the_mean(num, usd):
    rows = [row(index=i).model_copy(update={"usage": Usage(cost_usd=usd * (i + 1))}) for i in range(num)]
    one = measure([*rows, row(is_finished=False)])
    assert one.usd == pytest.approx(usd * (num + 1) / 2) and one.judge_s == pytest.approx(3.0)
    assert (one.usd_error is None) == (num == 1)
    assert measure([row(is_finished=False)]) is None


def test_prices_of_a_mixture_are_weighted():
    price = price_of({"kind": "mixture", "teachers": [
        {"weight": 3, "kind": "openai", "prices": {"input": 1.0}}, {"kind": "openai", "prices": {"input": 5.0}},
    ]})  # fmt: skip
    assert price.is_known and price.usd(1e6, 0, 0) == pytest.approx(2.0)
    assert not price_of({"kind": "openai"}).is_known and price_of({"kind": "expert"}).is_known


@pytest.fixture
def config(tmp_path):
    return CollectConfig(
        name="c", tasks=["x"], policy={"kind": "scripted", "answers": ["no"]}, out_dir=tmp_path / "c", num_attempts=3,
        budget_tokens=5_000_000, num_workers=2,
    )  # fmt: skip


def test_a_dry_run_says_what_it_goes_by(config, tmp_path):
    by_assumption = estimate_collection(config, TASKS, num_judges=2)
    assert by_assumption.num_open == 12 and "assumption" in by_assumption.source
    assert by_assumption.evaluations == 12 * 9 and not (tmp_path / "c").exists()
    assert "budget_tokens ends the run after about 7 of these" in render_estimate(by_assumption)
    collect(tmp_path / "other", num_attempts=3)
    by_other = estimate_collection(config, TASKS, measured=tmp_path / "other")
    assert "12 attempts of" in by_other.source and by_other.per_attempt.turns == 4
    assert by_other.per_attempt.usd == 0  # this teacher costs nothing
    with pytest.raises(UserError, match="is not a folder that"):
        estimate_collection(config, TASKS, measured=tmp_path)


def test_a_dry_run_of_a_collection_that_has_begun_counts_what_is_left(config, tmp_path):
    collect(tmp_path / "c", budget_usd=2.5, num_attempts=3, num_workers=1)
    estimate = estimate_collection(config, TASKS)
    assert estimate.num_planned == 12 and estimate.num_open == 6 and "6 finished attempts of this" in estimate.source
    assert estimate.per_attempt.usd == pytest.approx(0.4) and estimate.usd == pytest.approx(2.4)
    text = render_estimate(estimate)
    assert "6 to go" in text and "2.40 USD +- 0" in text


def test_the_dry_run_of_the_command_prints_and_begins_nothing(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text('name: c\ntasks: ["mini:train"]\nnum_attempts: 2\npolicy: {kind: scripted, answers: ["no"]}\n')
    arguments = ["collect", "--config", str(path), "--dry-run", "--out", str(tmp_path / "c")]
    assert cli.main([*arguments, "--shard", "2/3", "--json", str(tmp_path / "e.json"), "max_tasks=5"]) == 0
    shown = capsys.readouterr().out
    assert "2 tasks, 4 attempts planned, 4 to go" in shown and "assumption" in shown and "USD" in shown
    assert json.loads((tmp_path / "e.json").read_text())["evaluations"] > 0 and not (tmp_path / "c").exists()
    assert cli.main(["collect", "--config", str(path), "--from", "x"]) == 2
    assert cli.main(["collect"]) == 2


def test_planning_needs_neither_a_gpu_nor_a_key(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    path = tmp_path / "c.yaml"
    policy = "{kind: openai, model: m, api_key_env: NO_SUCH_KEY, prices: {input: 1}}"
    path.write_text(f'name: c\ntasks: ["mini:train"]\ndevice: cuda\npolicy: {policy}\n')
    assert cli.main(["collect", "--config", str(path), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "GPU-days" in shown and "before the run: policy.api_key_env: $NO_SUCH_KEY is not set" in shown
    assert cli.main(["collect", "--config", str(path), "--dry-run", "policy.modl=3"]) == 2


def test_the_first_answer_of_all_is_asked_for_alone(tmp_path):
    """Nothing is known of its price: sixteen of them at once could cost more than the whole budget."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    budget = Budget(BudgetLimits(usd=1.0), ledger, lambda: 0.0)
    assert budget.take("a") is None
    assert "not known yet" in budget.take("b") and budget.spent is None
    ledger.append("a", 1, Usage(cost_usd=0.4), teacher="t", task_id="x")
    budget.book("a", 0.4, 10)
    assert budget.take("b") is None and budget.take("c") is None  # 0.4 + 0.4 is below 1, and 1.2 is not
    assert budget.take("d") is not None
    without = Budget(BudgetLimits(), Ledger(tmp_path / "other.jsonl"), lambda: 0.0)
    assert without.take("a") is None and without.take("b") is None


def test_a_budget_of_nothing_asks_nothing(tmp_path):
    budget = Budget(BudgetLimits(usd=0.0), Ledger(tmp_path / "ledger.jsonl"), lambda: 0.0)
    assert budget.take("a") == budget.spent == "budget_usd of 0.00"
