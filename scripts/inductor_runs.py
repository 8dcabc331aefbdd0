"""Graphs in random order through TorchInductor and the judge, for `passwright profile-inductor`; one line a graph."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data.graph import Graph, MalformedGraphError
from data.splits import operator_sequence
from data.task import Task
from data.task_stats import dtype_of
from eval_harness.errors import HarnessError, ReferenceFailedError, UserError
from eval_harness.executor import Evaluator
from eval_harness.inductor_profile import ProfiledGraph
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import GraphVerdict

MAX_FAILURES_IN_A_ROW = 5
TIMEOUTS = {"graph_timeout_s": 300.0, "task_timeout_s": 900.0}
"""TorchInductor compiles on one core; what a slow machine cuts short would be booked as its failure."""


class ProfileFile:
    """One line of conditions, then one a graph; the last of a graph counts. A line that was cut off is dropped."""

    def __init__(self, path: Path, conditions: Mapping[str, Any], *, resume: bool) -> None:
        """Raises UserError: the file was written under other conditions, or cannot be read."""
        self.path, self.records = path, dict[str, ProfiledGraph]()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not resume:
            path.replace(path.with_name(f"{path.stem}.previous{path.suffix}"))
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if whole and json.loads(whole[0]) != json.loads(json.dumps(conditions)):
            raise UserError(f"{path}: was measured under other conditions; give --no-resume, or another --out")
        for number, line in enumerate(whole[1:], start=2):
            try:
                record = ProfiledGraph.model_validate_json(line)
            except ValidationError:
                raise UserError(f"{path}:{number}: no record of a graph; remove that line, or --no-resume") from None
            self.records[record.graph_hash] = record
        if whole != lines:
            os.truncate(path, sum(len(line.encode()) for line in whole))
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        if not whole:
            self._write(json.dumps(conditions))

    def append(self, record: ProfiledGraph) -> None:
        with self._lock:
            self.records[record.graph_hash] = record
            self._write(record.model_dump_json(exclude_defaults=True))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def draw_graphs(tasks: Sequence[Task], *, seed: int, sample: int | None) -> list[tuple[Task, Graph]]:
    """Graphs of all tasks in random order, equal ones once; a larger sample of one seed begins with the smaller one."""
    found = {graph.content_hash: (task, graph) for task in tasks for graph in task.graphs}
    order = sorted(found)
    random.Random(seed).shuffle(order)
    return [found[key] for key in order[:sample]]


def profile_graph(
    task: Task, graph: Graph, evaluator: Evaluator, protocol: EvaluationProtocol, draws: Sequence[str]
) -> ProfiledGraph:
    """One graph: called directly, through torch.compile, and for each kind of draws whether it is right."""
    alone = Task(task.task_id, (graph,))
    protocol = protocol.model_copy(update=TIMEOUTS)

    def judged(**changed: Any) -> GraphVerdict:
        verdict = evaluator.submit("inductor", alone, protocol=protocol.model_copy(update=changed)).result()
        return verdict.graphs[0]

    record = ProfiledGraph(
        task_id=task.task_id, graph=graph.name, graph_hash=graph.content_hash,
        num_nodes=len(operator_sequence(graph)), dtype=dtype_of(graph),
    )  # fmt: skip
    try:
        record.direct = judged()
        record.guarded = judged(apply="compile")
        record.outcomes = {kind: judged(inputs=kind, timing=False).outcome for kind in draws}
    except (ReferenceFailedError, MalformedGraphError, UserError, HarnessError) as error:
        record.error = f"{type(error).__name__}: {error}"
    return record


def run_profile(
    graphs: Sequence[tuple[Task, Graph]],
    evaluator: Evaluator,
    protocol: EvaluationProtocol,
    results: ProfileFile,
    *,
    draws: Sequence[str],
    num_workers: int,
    deadline: float | None,
    on_graph: Callable[[int, ProfiledGraph], None],
) -> bool:
    """Every graph that has no record yet; False if the deadline (time.monotonic) ended it. Raises HarnessError."""
    open_graphs = [
        (place, task, graph)
        for place, (task, graph) in enumerate(graphs)
        if (known := results.records.get(graph.content_hash)) is None or not known.is_measured
    ]
    pending: Iterator[tuple[int, Task, Graph]] = iter(open_graphs)
    lock = threading.Lock()
    failures = 0

    def work() -> None:
        nonlocal failures
        while True:
            with lock:
                is_over = deadline is not None and time.monotonic() >= deadline
                item = None if is_over or failures >= MAX_FAILURES_IN_A_ROW else next(pending, None)
            if item is None:
                return
            place, task, graph = item
            record = profile_graph(task, graph, evaluator, protocol, draws)
            results.append(record)
            with lock:
                is_ours = record.error is not None and record.error.startswith("HarnessError")
                failures = failures + 1 if is_ours else 0
            on_graph(place, record)

    with ThreadPoolExecutor(num_workers, thread_name_prefix="profile") as pool:
        for worker in [pool.submit(work) for _ in range(num_workers)]:
            worker.result()
    if failures >= MAX_FAILURES_IN_A_ROW:
        last = next(reversed(results.records.values())).error
        raise HarnessError(f"{failures} evaluations in a row failed, the last with: {last}")
    return next(pending, None) is None

