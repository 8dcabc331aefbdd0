"""`passwright tasks screen`: graphs on which good and bad passes cannot be told apart, each with its reasons."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_json, add_resume, say, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:
    from data.graph import Graph

HELP = "which graphs tell good passes from bad ones: values, axes, inputs and operators without effect, lazy passes"

OUT = Path("runs/tasks/screen.jsonl")
BEATEN, BEATEN_TWICE = "beaten_by_inductor", 2.0
"""A baseline that a compiler alone beats so clearly says more about the baseline than about a pass (robust-kbench)."""
TIME_LIMIT_S = 120.0
"""Of one graph, all seeds and operators."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    parser.add_argument("--sample", type=int, metavar="N", help="graphs at random; default: all")
    parser.add_argument("--seed", type=int, default=0, help="draws the order; default: 0")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="draws of inputs a graph; default: 10")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="graphs at once; default: 1")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE",
        help="of passwright profile-inductor: graphs that TorchInductor alone makes twice as fast have a reason too",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"a line a graph; default: {OUT}")
    parser.add_argument(
        "--harness", action="store_true",
        help="instead: send passes that give zeros, or an input as it is, through the judge; none may be CORRECT",
    )  # fmt: skip
    add_json(parser, "the counts and findings")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from data.passbench import load_tasks
    from eval_harness.errors import UserError
    from eval_harness.screening import REASONS
    from scripts.inductor_runs import draw_graphs

    if min(args.jobs, args.sample or 1) < 1 or args.seeds < 2:
        raise UserError("--jobs and --sample: give at least 1; --seeds: at least 2")
    tasks = load_tasks(args.task)
    if args.harness:
        return _through_harness(args, draw_graphs(tasks, seed=args.seed, sample=args.sample))
    graphs = draw_graphs(tasks, seed=args.seed, sample=args.sample)
    beaten = _beaten(args.profile) if args.profile is not None else {}
    known = _read(args.out, args.seeds) if args.resume else {}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    waiting = [(task.task_id, graph) for task, graph in graphs if graph.content_hash not in known]
    with (
        args.out.open("a" if args.resume else "w", encoding="utf-8") as file,
        tqdm(total=len(graphs), initial=len(graphs) - len(waiting), desc="graphs", unit="graph", disable=None) as bar,
    ):
        for task_id, graph, findings in _screened(waiting, args.jobs, args.seeds):
            record = {"graph_hash": graph.content_hash, "task_id": task_id, "graph": graph.name, "seeds": args.seeds,
                      "findings": findings}  # fmt: skip
            known[graph.content_hash] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            bar.update()
            if findings:
                shown = ", ".join(f"{reason}{f' ({detail})' if detail else ''}" for reason, detail in findings)
                bar.write(f"{task_id[:12]} {graph.name}: {shown}", file=sys.stderr)
    records = [known[graph.content_hash] for _, graph in graphs]
    if args.profile is not None:
        records = [_with_baseline(record, beaten) for record in records]
    counts = Counter(reason for record in records for reason in {reason for reason, _ in record["findings"]})
    by_task: dict[str, list[bool]] = {}
    for record in records:
        by_task.setdefault(record["task_id"], []).append(bool(record["findings"]))
    num_dropped = sum(bool(record["findings"]) for record in records)
    empty = sum(all(found) for found in by_task.values())
    for reason, what in {**REASONS, BEATEN: f"TorchInductor alone is {BEATEN_TWICE:g} times as fast as eager"}.items():
        print(f"{counts[reason]:6}  {reason:24} {what}", file=sys.stderr if args.json == "-" else sys.stdout)
    say(f"{len(records)} graphs, {num_dropped} with a reason; of {len(by_task)} tasks {empty} have no other graph here")
    if args.json:
        write_json(args.json, {"num_graphs": len(records), "num_dropped": num_dropped, "num_tasks": len(by_task),
                               "num_tasks_dropped": empty, "reasons": dict(counts), "records": records})  # fmt: skip
    return 0


def _through_harness(args: argparse.Namespace, graphs: list[Any]) -> int:
    """Exit status 4 if a lazy pass is CORRECT."""
    from eval_harness.executor import LocalExecutor
    from eval_harness.presets import load_protocol
    from scripts.exit_status import DONE, TARGET_MISSED
    from scripts.tasks.probes import probe_graphs

    protocol = load_protocol("reward", timing=False)
    outcomes: Counter[str] = Counter()
    passed = []
    with LocalExecutor("cpu", num_judges=args.jobs) as executor:
        for task, graph, probe, outcome in probe_graphs(graphs, executor, protocol):
            outcomes[f"{probe}: {outcome}"] += 1
            if outcome == "CORRECT":
                passed.append({"task_id": task.task_id, "graph": graph.name, "probe": probe})
                say(f"{task.task_id[:12]} {graph.name}: {probe} is CORRECT")
    for text, count in sorted(outcomes.items()):
        print(f"{count:6}  {text}", file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, {"num_graphs": len(graphs), "outcomes": dict(outcomes), "passed": passed})
    return TARGET_MISSED if passed else DONE


def _beaten(path: Path) -> dict[str, float]:
    """Graph hash -> speedup of TorchInductor alone, of graphs on which it is large. Raises UserError."""
    from pydantic import ValidationError

    from eval_harness.errors import UserError
    from eval_harness.inductor_profile import ProfiledGraph

    if not path.is_file():
        raise UserError(f"--profile {path}: no such file; give the .jsonl that profile-inductor wrote")
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], start=2):
        try:
            record = ProfiledGraph.model_validate_json(line)
        except ValidationError:
            raise UserError(f"--profile {path}:{number}: no record of a profiled graph") from None
        if (record.kernel_speedup or 0.0) >= BEATEN_TWICE:
            found[record.graph_hash] = record.kernel_speedup or 0.0
    return found


def _with_baseline(record: dict[str, Any], beaten: dict[str, float]) -> dict[str, Any]:
    speedup = beaten.get(record["graph_hash"])
    if speedup is None:
        return record
    return {**record, "findings": [*record["findings"], [BEATEN, f"{speedup:.2f}x"]]}


def _screened(waiting: list[tuple[str, Graph]], jobs: int, seeds: int) -> Any:
    """(task, graph, [[reason, detail], ...]) as they come; a graph that hangs or kills its process has a reason too."""
    from data.construct.run_pool import run_each

    answers = run_each(
        [graph for _, graph in waiting], "eval_harness.screening:screen_graph", {"num_seeds": seeds},
        num_workers=jobs, time_limit_s=TIME_LIMIT_S,
    )  # fmt: skip
    for index, findings, reason in answers:
        task_id, graph = waiting[index]
        found = [[each.reason, each.detail] for each in findings or ()]
        yield task_id, graph, found if reason is None else [["does_not_run", reason]]


def _read(path: Path, seeds: int) -> dict[str, dict[str, Any]]:
    """Records of an earlier run with as many seeds; a line that was cut off is done again."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("seeds") == seeds:
            found[record["graph_hash"]] = record
    return found
