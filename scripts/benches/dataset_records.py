"""Many long records made from one real one, for `bench dataset`: as a collection with two attempts at each task.

Names in what the policy wrote are changed by seed, and its turns are repeated, so changed, until a record has the size
asked for. Planted among them are attempts without a final verdict, repeats, and passes that differ in a comment.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError, UserError
from trajectories.record import Trajectory
from trajectories.selection import SelectionConfig, refusal
from trajectories.selection_choice import NEARLY_SAME_PASS, SAME_CONVERSATION
from trajectories.store import TRAJECTORIES_DIR, load_trajectories

TASK = "mini/sentence_masked_mean_pooling"
NO_FINAL = "no final verdict"
_WORD = re.compile(r"\b[a-z_][a-z_0-9]{2,}\b")
_CHANGED = 0.4
"""Share of the names that a record changes: n-grams of five tokens then seldom stay as they were."""


@dataclass
class Planted:
    """What a build should make of the records."""

    num_good: int = 0
    num_bytes: int = 0
    refusals: Counter[str] = field(default_factory=Counter)


def collect_one(folder: Path) -> Trajectory:
    """One attempt of the built-in expert, in the real environment before the real judge (a shortened protocol)."""
    from data.passbench import load_tasks
    from eval_harness.executor import LocalExecutor
    from trajectories.collect import CollectConfig, run_collect

    short = {"num_clusters": 2, "pairs_per_cluster": 3, "timing_cpu_s": 0, "max_noise": 4.0}
    config = CollectConfig(
        name="one",
        tasks=[TASK],
        policy={"kind": "expert"},
        protocol_overrides=short | {"num_draws": 2, "max_timed_graphs": 1},
        final_protocol_overrides=short,
        num_workers=1,
        out_dir=folder,
    )
    with LocalExecutor(device="cpu", num_judges=1) as judge:
        run_collect(config, load_tasks(TASK), judge, progress=False)
    return load_one(folder)


def load_one(folder: Path) -> Trajectory:
    """The longest good record of a collection. Raises UserError if there is none."""
    good = [each for each in load_trajectories(folder) if refusal(each, SelectionConfig()) is None]
    if not good:
        raise UserError(f"{folder}: no record that selection keeps; give another --collection")
    return max(good, key=lambda each: len(each.model_dump_json()))


def write_records(real: Trajectory, folder: Path, num_records: int, num_bytes: int) -> Planted:
    """Write so many records below folder, of about num_bytes each."""
    (folder / TRAJECTORIES_DIR).mkdir(parents=True)
    planted = Planted()
    record: dict[str, Any] = {}
    for number in range(num_records):
        task, attempt = divmod(number, 2)
        kind = _kind(task, attempt)
        if kind in (SAME_CONVERSATION, NEARLY_SAME_PASS):  # record: the attempt before
            record = _again(record, attempt, comment=kind == NEARLY_SAME_PASS, score=0.01)
        else:
            record = _vary(real, f"synthetic_{task:05d}", attempt, number, num_bytes)
        if kind == NO_FINAL:
            record["final_verdict"] = None
        text = json.dumps(record, ensure_ascii=False)
        (folder / TRAJECTORIES_DIR / f"{record['trajectory_id']}.json").write_text(text, encoding="utf-8")
        planted.num_bytes += len(text.encode())
        if kind is None:
            planted.num_good += 1
        else:
            planted.refusals[kind] += 1
    return planted


def _kind(task: int, attempt: int) -> str | None:
    """Of an attempt: None for a good one, else why it is to be refused."""
    if attempt == 0:
        return None
    return {0: SAME_CONVERSATION, 1: NEARLY_SAME_PASS, 2: NO_FINAL}.get(task % 5)


def _vary(real: Trajectory, task_id: str, attempt: int, seed: int, num_bytes: int) -> dict[str, Any]:
    rng = random.Random(seed)
    record: dict[str, Any] = json.loads(real.model_dump_json())
    best = record["evaluations"][record["best_evaluation"]]
    names = sorted({word for text in best["files"].values() for word in _WORD.findall(text)} - set(keyword.kwlist))
    record |= {
        "task_id": task_id,
        "trajectory_id": f"{task_id}__{attempt:03d}",
        "attempt_index": attempt,
        "task_hash": hashlib.sha256(task_id.encode()).hexdigest(),
        "graph_hashes": {name: hashlib.sha256(f"{task_id}/{name}".encode()).hexdigest() for name in real.graph_hashes},
    }
    rename = _renaming(names, rng)
    for evaluation in record["evaluations"]:
        evaluation["files"] = {path: rename(text) for path, text in evaluation["files"].items()}
    head = [message for message in record["messages"] if message["turn"] is None]
    turns = [message for message in record["messages"] if message["turn"] is not None]
    # the turns that are repeated lie before the real ones: what a selection cuts off at the end is not they
    size = len(json.dumps(record))
    extra: list[dict[str, Any]] = []
    num_extra = 0
    before_last = [message for message in turns if message["turn"] < max(each["turn"] for each in turns)]
    if not before_last:
        raise HarnessError(f"{real.trajectory_id}: has one turn; there is nothing to repeat")
    num_turns = before_last[-1]["turn"]
    while size < num_bytes:
        again = _renaming(names, rng)
        for message in before_last:
            made = _written_anew(message, again, f"_{num_extra}") | {"turn": message["turn"] + num_extra}
            size += len(json.dumps(made))
            extra.append(made)
        num_extra += num_turns
    for message in turns:
        message["turn"] += num_extra
    for evaluation in record["evaluations"]:
        evaluation["turn"] += num_extra
    record["messages"] = [*head, *extra, *(_written_anew(message, rename, "") for message in turns)]
    record["num_turns"] += num_extra
    record["final_verdict"] |= {"task_id": task_id, "task_hash": record["task_hash"]}
    return record


def _again(record: dict[str, Any], attempt: int, *, comment: bool, score: float) -> dict[str, Any]:
    """Another attempt with the same conversation; comment: with a remark in its pass and its last words."""
    copied: dict[str, Any] = json.loads(json.dumps(record))
    copied |= {"attempt_index": attempt, "trajectory_id": f"{record['task_id']}__{attempt:03d}"}
    copied["final_verdict"]["as_covered"] -= score
    if comment:
        best = copied["evaluations"][copied["best_evaluation"]]
        best["files"] = {path: f"# tried again\n{text}" for path, text in best["files"].items()}
        copied["messages"][-1]["content"] += " Tried again."
    return copied


def _written_anew(message: dict[str, Any], rename: Callable[[str], str], suffix: str) -> dict[str, Any]:
    """A message with other names in it and other call ids."""
    made = dict(message)
    if message["role"] == "assistant":
        made["content"] = rename(message["content"])
        made["tool_calls"] = [
            {"id": call["id"] + suffix, "name": call["name"], "arguments": rename(call["arguments"])}
            for call in message["tool_calls"]
        ]
    elif message["tool_call_id"] is not None:
        made["tool_call_id"] = message["tool_call_id"] + suffix
    return made


def _renaming(names: list[str], rng: random.Random) -> Callable[[str], str]:
    changed = {name: f"{name}_{rng.randrange(1000)}" for name in names if rng.random() < _CHANGED}
    keys = {"command", "path", "file_text", "old_str", "new_str", "view_range", "insert_line", "create", "view"}
    return lambda text: _WORD.sub(lambda word: changed.get(word[0], word[0]) if word[0] not in keys else word[0], text)
