"""Runs of one collection that are not alike: shards and their merge, resumes, stops by signals, progress."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from eval_harness.errors import HarnessError, UserError
from scripts import cli
from scripts.benches.collect_stubs import stub_endpoint
from scripts.verbs.collect import status_of
from tests.canned_evaluator import CannedEvaluator
from tests.test_collect import TASKS, Teacher, collect
from trajectories.collect import CollectConfig, run_collect
from trajectories.collect_index import INDEX_FILE, load_rows
from trajectories.collect_merge import merge_collections
from trajectories.collect_text import render_run, render_summary
from trajectories.ledger import Ledger
from trajectories.plan import Shard, StopRules
from trajectories.progress import Display, Snapshot, short_count, short_time
from trajectories.store import TrajectoryStore, load_trajectories

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def fresh_teacher():
    Teacher.asked.clear()
    Teacher.fail_from, Teacher.pause_s = None, 0.0


def comparable(trajectory):
    exclude = {"started_at", "duration_s"}
    data = trajectory.model_dump(mode="json", exclude=exclude)
    for message in data["messages"]:
        (message["usage"] or {}).pop("latency_s", None)
    data["usage"].pop("latency_s")
    return data


# shards


def collect_shard(root, text, **changes):
    config = CollectConfig(
        **({"name": "c", "tasks": ["x"], "policy": {"kind": "t"}, "num_attempts": 2, "out_dir": root} | changes)
    )
    return run_collect(
        config,
        TASKS,
        CannedEvaluator(),
        factories={"t": Teacher},
        progress=False,
        shard=Shard.parse(text) if text else None,
    )


def test_merged_shards_are_the_whole_and_go_on_like_it(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    collect_shard(folders[0], "1/2")
    summary = collect_shard(folders[1], "2/2", budget_usd=0.5, num_workers=1)
    assert not summary.is_complete and summary.num_tasks == 1 and summary.num_planned == 2
    merged = merge_collections(folders, tmp_path / "merged")
    assert merged.num_planned == 6 and merged.num_finished == 5 and not merged.is_complete
    assert merged.spent_usd == pytest.approx(2.1)
    before = {each.trajectory_id for each in load_trajectories(tmp_path / "merged") if each.final_verdict}
    Teacher.asked.clear()
    assert collect_shard(tmp_path / "merged", None).is_complete
    assert {name for name, _ in Teacher.asked}.isdisjoint(before)
    whole = {
        each.trajectory_id: comparable(each)
        for each in (collect_shard(tmp_path / "w", None), TrajectoryStore(tmp_path / "w"))[1]
    }
    assert {each.trajectory_id: comparable(each) for each in TrajectoryStore(tmp_path / "merged")} == whole
    assert Ledger(tmp_path / "merged" / "ledger.jsonl").spent_usd == pytest.approx(2.4)


def test_a_merge_names_the_shards_that_are_missing(tmp_path, caplog):
    for index in (1, 3):
        collect_shard(tmp_path / str(index), f"{index}/4")
    merge_collections([tmp_path / "1", tmp_path / "3"], tmp_path / "m")
    assert "not among the folders: shard 2/4, 4/4; going on" in caplog.text


def test_what_cannot_be_merged_is_refused_before_anything_is_written(tmp_path):
    collect_shard(tmp_path / "a", "1/2")
    collect_shard(tmp_path / "b", "2/2")
    collect_shard(tmp_path / "again", "1/2")
    collect_shard(tmp_path / "other", "2/2", seed=1)
    for folders, fault in (
        (["a", "again"], "holds the same attempt"),
        (["a", "other"], "no shard of the same collection"),
        (["a", "nothing"], "is not a folder that"),
    ):
        with pytest.raises(UserError, match=fault):
            merge_collections([tmp_path / name for name in folders], tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="is there already"):
        merge_collections([tmp_path / "a", tmp_path / "b"], tmp_path / "other")
    store = TrajectoryStore(tmp_path / "b")
    store.lock()
    with pytest.raises(UserError, match="another process is collecting"):
        merge_collections([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    store.close()
    assert not (tmp_path / "out").exists()


def test_a_folder_keeps_to_its_shard(tmp_path):
    collect_shard(tmp_path / "a", "1/2")
    for other in ("2/2", "1/3", None):
        with pytest.raises(UserError, match="was begun with --shard 1/2"):
            collect_shard(tmp_path / "a", other)
    collect_shard(tmp_path / "b", None)
    with pytest.raises(UserError, match="was begun without --shard"):
        collect_shard(tmp_path / "b", "1/2")
    config = CollectConfig(name="c", tasks=["x"], policy={"kind": "t"})
    roots = {config.root_of(Shard(i, 2)) for i in (1, 2)} | {config.root_of(None)}
    assert len(roots) == 3 and all(root.parent == Path("runs/collect") for root in roots)


def test_merge_by_the_command(tmp_path, capsys):
    collect_shard(tmp_path / "a", "1/2")
    collect_shard(tmp_path / "b", "2/2")
    arguments = ["collect", "--merge", str(tmp_path / "a"), str(tmp_path / "b")]
    assert cli.main(arguments) == 2
    assert cli.main([*arguments, "--out", str(tmp_path / "m")]) == 0
    assert "6 of 6 attempts finished" in capsys.readouterr().out
    assert render_run(tmp_path / "m").startswith("6 of 6")


# resumes


def test_the_summary_tells_the_time_of_all_runs_and_what_a_failure_ended(tmp_path):
    Teacher.fail_from = 2
    failed = collect_shard(tmp_path / "c", None, num_attempts=1, num_workers=1, max_infrastructure_errors=99)
    num = failed.stop_reasons["POLICY_ERROR"]
    assert f"{num} attempts were ended by a failure that is not the policy's; the same" in render_summary(failed)
    Teacher.fail_from = None
    whole = collect_shard(tmp_path / "c", None, num_attempts=1)
    assert whole.is_complete and "failure" not in render_summary(whole)
    long = whole.model_copy(update={"duration_s": 5.0, "total_duration_s": 50.0})
    assert render_summary(long).endswith("50 s")


def test_a_run_in_which_everything_failed_says_so_to_the_shell(tmp_path):
    """An endpoint that is down must not let `collect && dataset build` go on."""
    Teacher.fail_from = 0
    nothing = collect_shard(tmp_path / "c", None, num_attempts=1, num_workers=1, max_infrastructure_errors=99)
    assert status_of(nothing) == 3
    Teacher.fail_from = None
    assert status_of(collect_shard(tmp_path / "c", None, num_attempts=1)) == 0


def test_how_far_and_how_fast_may_change_but_not_what(tmp_path):
    policy = {"kind": "teacher"}
    collect(tmp_path, policy={**policy, "timeout_s": 5, "prices": {"input": 1}, "model": "m"}, budget_usd=0.1)
    changes = {"budget_usd": 9, "budget_tokens": 10**9, "budget_hours": 9, "num_workers": 1, "order": "shuffled"}
    changes |= {"max_concurrent_answers": 2, "stop": StopRules(patience=5), "assume": {"turns": 3}}
    collect(tmp_path, policy={**policy, "timeout_s": 9, "max_retries": 1, "model": "m"}, **changes)
    with pytest.raises(UserError, match=r"policy\.model changed"):
        collect(tmp_path, policy={**policy, "model": "other"})
    with pytest.raises(UserError, match=r"limits\.max_turns changed"):
        collect(tmp_path, policy={**policy, "model": "m"}, limits={"max_turns": 3})


def test_a_collection_grows_by_attempts_and_by_tasks(tmp_path):
    assert collect(tmp_path, max_tasks=1, num_attempts=1).num_finished == 1
    grown = collect(tmp_path, max_tasks=2, num_attempts=2)
    assert grown.num_finished == grown.num_planned == 4
    assert collect(tmp_path, num_attempts=3).num_finished == 9
    assert all(count == 1 for count in Teacher.asked.values()), "no answer was paid twice"
    with pytest.raises(UserError, match=r"another configuration \(num_attempts changed"):
        collect(tmp_path, num_attempts=2)
    with pytest.raises(UserError, match=r"another configuration \(max_tasks, .*task_hashes"):
        collect(tmp_path, num_attempts=3, max_tasks=2)
    with pytest.raises(UserError, match=r"seed changed"):
        collect(tmp_path, num_attempts=4, seed=5)


def test_a_shard_grows_by_attempts_alone(tmp_path):
    collect_shard(tmp_path / "c", "1/2", max_tasks=2, num_attempts=1)
    assert collect_shard(tmp_path / "c", "1/2", max_tasks=2, num_attempts=2).num_finished == 2
    with pytest.raises(UserError, match="another configuration"):
        collect_shard(tmp_path / "c", "1/2", num_attempts=2)


def test_a_manifest_of_an_older_version_is_taken_up(tmp_path):
    collect(tmp_path, budget_usd=0.5)
    path = tmp_path / "c" / "manifest.json"
    manifest = json.loads(path.read_text())
    for key in ("agent", "limits"):  # as written before these settings were there
        del manifest["config"][key]
    path.write_text(json.dumps(manifest | {"config_hash": "old"}))
    assert collect(tmp_path).is_complete
    path.write_text(json.dumps(manifest | {"config_hash": "old", "config": manifest["config"] | {"seed": 5}}))
    with pytest.raises(UserError, match=r"another configuration \(seed changed"):
        collect(tmp_path)


def test_the_stored_record_never_goes_back(tmp_path, monkeypatch):
    collect(tmp_path, budget_usd=1.1, num_workers=1)
    stored = {each.trajectory_id: len(each.messages) for each in TrajectoryStore(tmp_path / "c")}
    assert min(stored.values()) > 0 and any(not each.final_verdict for each in TrajectoryStore(tmp_path / "c"))
    original = TrajectoryStore.write

    def write(self, trajectory):
        size = (len(trajectory.messages), len(trajectory.evaluations))
        assert size[0] >= stored.get(trajectory.trajectory_id, 0), "a kill now would lose a turn"
        stored[trajectory.trajectory_id] = size[0]
        original(self, trajectory)

    monkeypatch.setattr(TrajectoryStore, "write", write)
    assert collect(tmp_path).is_complete


def test_a_failure_while_what_is_stored_is_gone_through_loses_nothing(tmp_path):
    class Down(CannedEvaluator):
        """The judge is down."""

        def submit(self, candidate, task, **options):
            failed = Future()
            failed.set_exception(HarnessError("judge down"))
            return failed

    collect(tmp_path, budget_usd=0.25, num_workers=1, num_attempts=1, tasks=TASKS[:1])
    path = next((tmp_path / "c" / "trajectories").glob("*.json"))
    data = json.loads(path.read_text())
    assert data["num_turns"] == 3 and len(data["evaluations"]) == 1
    data["evaluations"][0]["files"]["Fuse.py"] += "#"  # as if the editor worked otherwise then
    path.write_text(json.dumps(data))
    collect(tmp_path, Down(), num_attempts=1, tasks=TASKS[:1])
    after = json.loads(path.read_text())
    assert after["num_turns"] == 3 and len(after["messages"]) == len(data["messages"])


def test_the_index_is_found_again_from_the_records(tmp_path):
    collect(tmp_path)
    root = tmp_path / "c"
    rows = {row.trajectory_id: row for row in load_rows(TrajectoryStore(root))}
    assert len(rows) == 6 and all(row.kept and row.score == 1.5 and row.is_solved for row in rows.values())
    (root / INDEX_FILE).write_text('{"torn')
    assert {row.trajectory_id: row for row in load_rows(TrajectoryStore(root))} == rows
    (root / INDEX_FILE).unlink()
    store = TrajectoryStore(root)
    store.path("task1__000").unlink()  # by hand, to have it made again
    Teacher.asked.clear()
    assert collect(tmp_path).is_complete
    assert {name for name, _ in Teacher.asked} == {"task1__000"}
    assert len((root / INDEX_FILE).read_text().splitlines()) == 6


def test_a_resume_reads_no_record_that_the_index_knows(tmp_path, monkeypatch):
    collect(tmp_path)
    monkeypatch.setattr("trajectories.collect_index.load_trajectory", lambda path: pytest.fail(f"{path} is read"))
    assert collect(tmp_path).is_complete


def test_stop_rules_spare_attempts_and_looser_ones_make_them(tmp_path):
    summary = collect(tmp_path, num_attempts=4, stop=StopRules(patience=1))
    assert summary.is_complete and summary.num_finished == 6 and summary.num_skipped == 6
    assert summary.tasks_given_up == {"no gain": 3}
    summary = collect(tmp_path, num_attempts=4)
    assert summary.is_complete and summary.num_finished == 12 and summary.num_skipped == 0


# stops

SLOW = """
import sys
from pathlib import Path
from tests.canned_evaluator import CannedEvaluator, make_task
from trajectories import collect
from trajectories.collect import CollectConfig, run_collect
from trajectories.collect_signals import StopSignals
root, address, poll_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
collect._POLL_S = poll_s
handle = StopSignals._handle
def say_and_handle(self, number, frame):
    print("signal seen", file=sys.stderr, flush=True)
    handle(self, number, frame)
StopSignals._handle = say_and_handle
policy = {"kind": "openai", "model": "stub", "base_url": address}
config = CollectConfig(name="c", tasks=["x"], policy=policy, out_dir=root)
try:
    run_collect(config, [make_task("t")], CannedEvaluator(), progress=False)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "poll_s", "is_stored"),
    [
        pytest.param([signal.SIGTERM], 0.1, True, id="one"),
        pytest.param([signal.SIGINT] * 2, 0.1, False, id="two"),
        pytest.param([signal.SIGINT] * 2, 60, False, id="two-before-the-first-is-acted-on"),
    ],
)
def test_one_signal_waits_for_the_answer_under_way_and_two_do_not(tmp_path, signals, poll_s, is_stored):
    log = tmp_path / "log"
    # the one is waited for; the two come long before this answer, however busy the machine
    with stub_endpoint("--latency", 2 if is_stored else 60, "--log", log) as address:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, tmp_path / "c", address, str(poll_s)], cwd=REPOSITORY, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        said = ""
        for number in signals:  # each is seen before the next: two that wait together are one to the process
            process.send_signal(number)
            for line in process.stderr:
                said += line
                if line == "signal seen\n":
                    break
        assert process.wait(50) == 130
    assert "1 answers are waited for" in said + process.stderr.read()
    stored = list(TrajectoryStore(tmp_path / "c"))
    assert [each.num_turns for each in stored] == ([1] if is_stored else [])
    assert Ledger(tmp_path / "c" / "ledger.jsonl").num_answers == len(stored)
    assert json.loads((tmp_path / "c" / "summary.json").read_text())["num_finished"] == 0


# progress


def test_a_line_a_run_on_disk_and_the_figures_in_it(tmp_path):
    collect(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "c" / "progress.jsonl").read_text().splitlines()]
    assert lines[0]["event"] == "start" and lines[0]["config"]["name"] == "c"
    last = lines[-1]
    assert last["num_finished"] == last["num_planned"] == last["num_kept"] == 6 and last["num_solved_tasks"] == 3
    assert last["spent_usd"] == pytest.approx(2.4) and last["median_as_covered"] == 1.5 and last["num_running"] == 0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_in_a_terminal_and_plain_lines_elsewhere():
    snapshot = Snapshot(num_planned=8, num_finished=4, num_kept=2, spent_usd=1.5, eta_s=7200.0, median_as_covered=1.25,
                        evaluator_busy=0.93, num_tokens=12_345, budget_left={"budget_usd": 0.5})  # fmt: skip
    plain = io.StringIO()
    display = Display(is_on=True, stream=plain)
    for _ in range(3):
        display.show(snapshot)  # two of them within the same minute
    display.close()
    assert plain.getvalue().count("\n") == 1 and "\r" not in plain.getvalue()
    for part in ("4/8 attempts", "kept 2 (50%)", "AS 1.250", "93% busy", "ETA 2.0 h", "1.50 USD", "12.3 k tokens",
                 "50% of budget_usd left"):  # fmt: skip
        assert part in plain.getvalue()
    terminal = Terminal()
    display = Display(is_on=True, stream=terminal)
    display.show(snapshot)
    display.close()
    assert " 50%|" in terminal.getvalue() and "4/8 attempts" in re.sub(r"\x1b\[\w", "", terminal.getvalue())
    silent = io.StringIO()
    Display(is_on=False, stream=silent).show(snapshot, is_last=True)
    assert not silent.getvalue()


def test_times_and_counts_are_short():
    assert [short_time(s) for s in (0, 59, 60, 5000, 86_400, 200_000)] == [
        "0 s", "59 s", "1 min", "1.4 h", "24.0 h", "2.3 days",
    ]  # fmt: skip
    assert [short_count(n) for n in (0, 999, 1000, 4_560_000, 2e9)] == ["0", "999", "1 k", "4.56 M", "2 G"]
