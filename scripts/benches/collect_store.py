"""What it costs to keep a running attempt on disk, turn by turn: the store's journal, or the whole record anew."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from data.graph import Graph
from data.passbench import load_tasks
from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.presets import load_protocol
from scripts.benches.collect_stubs import claimed_verdict
from scripts.benches.stub_endpoint import RULE_FILE
from trajectories.policies.scripted import call_message
from trajectories.record import EvaluationRecord, Message, Trajectory
from trajectories.store import TrajectoryStore, write_atomically

NUM_TURNS, EVALUATION_EVERY = 50, 3
REASONING_CHARS, FILE_CHARS, REPLY_CHARS, PROMPT_CHARS = 4_000, 3_600, 1_500, 22_000


def time_store(num_graphs: int) -> list[list[object]]:
    """Rows (graphs, way, CPU ms a turn, wall ms a turn) of one attempt of 50 turns, kept twice a turn."""
    task = _task(num_graphs)
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="bench-collect-") as folder:
        store = TrajectoryStore(Path(folder))
        store.open_for_writing({})
        path = store.path("t__000")

        def rewrite(trajectory: Trajectory) -> None:
            write_atomically(path, trajectory.model_dump_json(indent=1))

        ways: dict[str, Callable[[Trajectory], None]] = {"journal": store.write, "whole record": rewrite}
        for way, keep in ways.items():
            cpu_s = wall_s = 0.0
            for trajectory in _attempt(task):
                cpu, wall = time.process_time(), time.perf_counter()
                keep(trajectory)
                cpu_s += time.process_time() - cpu
                wall_s += time.perf_counter() - wall
            rows.append([num_graphs, way, 1e3 * cpu_s / NUM_TURNS, 1e3 * wall_s / NUM_TURNS])
        store.close()
    return rows


def _task(num_graphs: int) -> Task:
    graph = load_tasks("mini:train")[0].graphs[0]
    return Task(task_id="t", graphs=tuple(Graph(f"graph_{index}", graph.files) for index in range(num_graphs)))


def _attempt(task: Task) -> Iterator[Trajectory]:
    """The record each time that it has changed: after every answer, and after what it did."""
    trajectory = Trajectory(
        trajectory_id="t__000",
        task_id=task.task_id,
        task_hash=task.content_hash,
        graph_hashes={graph.name: graph.content_hash for graph in task.graphs},
        attempt_index=0,
        policy={"kind": "stub"},
        messages=[Message(role="user", content="u" * PROMPT_CHARS)],
    )
    arguments = {"command": "create", "path": f"pass_dir/{RULE_FILE}", "file_text": "x" * FILE_CHARS}
    for turn in range(1, NUM_TURNS + 1):
        answer = call_message(("file_editor", arguments), turn=turn)
        trajectory.messages.append(answer.model_copy(update={"turn": turn, "reasoning": "r" * REASONING_CHARS}))
        yield trajectory
        trajectory.messages.append(Message(role="tool", content="t" * REPLY_CHARS, turn=turn))
        if turn % EVALUATION_EVERY == 0:
            rule = f"# as=1.{turn}\n".ljust(FILE_CHARS, "#")
            candidate = Candidate({RULE_FILE: rule, MANIFEST_FILE: '["Fuse"]'})
            verdict = claimed_verdict(candidate, task, load_protocol("reward"), seconds=1.0)
            record = EvaluationRecord(turn=turn, verdict=verdict, files=dict(candidate.files))
            trajectory.evaluations = [*trajectory.evaluations, record]
        yield trajectory
