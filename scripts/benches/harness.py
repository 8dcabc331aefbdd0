"""Graphs a minute: this harness against a fresh interpreter a graph, on the same passes, trials and machine.

Peers: fresh_interpreter.py (what PassNet's public evaluator does, with this repository's rewriting), and with
`--graphnet DIR` that evaluator itself from a checkout of PaddlePaddle/GraphNet, with its identity backend (its pass
backend fails on patterns with several outputs). Ours: protocol `passnet` with the peer's warm-ups and trials, `strict`,
and `reward`. The judge is started before: a run of many evaluations starts it once; its start is said apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import HarnessError
from scripts.arguments import check_device, say
from scripts.benches.examples import EXAMPLES, load_example
from scripts.benches.output import Target, machine_facts, render_table, report

if TYPE_CHECKING:
    from data.task import Task

HELP = "Graphs a minute against a fresh interpreter a graph, and where each evaluation's time goes."

NUM_WARMUP, NUM_TRIALS = 25, 100
"""PassNet's public evaluator's."""
PEER_TIMEOUT_S = 300.0
TARGETS = {
    "cuda": {"same trials": 10.0, "reward": 10.0, "strict": 4.0},
    "cpu": {"same trials": 8.0, "reward": 10.0},
}
"""Graphs a minute over the fresh interpreter's, for a ten-graph task."""
NUM_GRAPHS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graphs", type=int, default=NUM_GRAPHS, metavar="N", help="of the task; default: 10")
    parser.add_argument("--peer-graphs", type=int, default=3, metavar="N", help="graphs each peer runs; default: 3")
    parser.add_argument("--graphnet", type=Path, metavar="DIR", help="a checkout of PaddlePaddle/GraphNet, as a peer")


def run(args: argparse.Namespace) -> int:
    device = check_device(args.device)
    kind = device.split(":")[0]
    example, reference = next(iter(EXAMPLES[kind].items()))
    task = _task(reference, args.graphs)
    peers = _peers(args, example, task, device)
    if not peers["fresh interpreter"]["graphs"]:
        raise HarnessError("the fresh interpreter failed on every graph, as told above: without it there is no ratio")
    ours, start_s, stages = _ours(example, reference, task, device)
    base = peers["fresh interpreter"]
    rows = [[name, rate["graphs"], rate["seconds"], _a_minute(rate), _a_minute(rate) / _a_minute(base), rate["note"]]
            for name, rate in (peers | ours).items()]  # fmt: skip
    table = render_table(("evaluator", "graphs", "s", "graphs/min", "times", "note"), rows)
    times = render_table(("protocol", "stage", "s"), stages)
    targets = [
        Target(f"{name}: graphs a minute over the fresh interpreter's", _a_minute(ours[name]) / _a_minute(base), bound,
               "at least")
        for name, bound in TARGETS[kind].items()
    ]  # fmt: skip
    body = f"{example} on {reference}; the judge's start (once a run): {start_s:.1f} s\n{table}\n\n{times}"
    figures = {"example": example, "peers": peers, "ours": ours, "judge_start_s": start_s, "stages": stages}
    return report(args, "harness", body=body, figures=figures, targets=targets, facts=machine_facts(device))


def _task(reference: str, num_graphs: int) -> Task:
    """The task with as many graphs as asked for; where it has fewer, some come again under another name."""
    from data.graph import Graph
    from data.passbench import load_task
    from data.task import Task

    graphs = list(load_task(reference).graphs)
    again = [Graph(f"{graph.name}_again", graph.files) for graph in graphs]
    return Task(task_id=reference.rpartition("/")[2], graphs=tuple([*graphs, *again][:num_graphs]))


def _peers(args: argparse.Namespace, example: str, task: Task, device: str) -> dict[str, dict[str, Any]]:
    from data.passbench import write_graph

    graphs = task.graphs[: args.peer_graphs]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"graph_{index}" for index in range(len(graphs))]
        for graph, path in zip(graphs, paths, strict=True):
            write_graph(graph, path)
        root = Path(__file__).resolve().parents[2]
        module = "scripts.benches.fresh_interpreter"
        commands = [["-m", module, example, str(path), device, str(NUM_WARMUP), str(NUM_TRIALS)] for path in paths]
        found = {"fresh interpreter": _time_commands(commands, root, "torch.compile with the pass")}
        if args.graphnet:
            # a GPU is named without its number there
            common = ["--compiler", "nope", "--device", device.split(":")[0]]
            common += ["--warmup", str(NUM_WARMUP), "--trials", str(NUM_TRIALS)]
            module = "graph_net_bench.torch.test_compiler"
            commands = [["-m", module, "--model-path", str(path), *common] for path in paths]
            found["public evaluator"] = _time_commands(commands, args.graphnet, "PassNet's, identity backend")
    return found


def _time_commands(commands: list[list[str]], root: Path, note: str) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    seconds, reasons = 0.0, []
    for command in commands:
        say(f"peer: {command[1]} {len(commands)} graphs")
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True,
            timeout=PEER_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            reasons.append((done.stderr.strip().splitlines() or ["no output"])[-1])
            say(f"peer failed: {reasons[-1]}")
        else:
            seconds += time.monotonic() - start
    failed = f"; {len(reasons)} of {len(commands)} failed" if reasons else ""
    return {"graphs": len(commands) - len(reasons), "seconds": seconds, "note": note + failed}


def _ours(
    example: str, reference: str, task: Task, device: str
) -> tuple[dict[str, dict[str, Any]], float, list[list[Any]]]:
    from eval_harness.executor import LocalExecutor
    from eval_harness.presets import load_protocol

    candidate = load_example(example)
    protocols = {
        "same trials": load_protocol("passnet", num_warmup=NUM_WARMUP, num_trials=NUM_TRIALS),
        "strict": load_protocol("strict"),
        "reward": load_protocol("reward"),
    }
    found, stages = {}, []
    with LocalExecutor(device) as executor:
        start = time.monotonic()
        # what a judge does once in its life: its start, the machine's A/A floor
        executor.submit("eager", _task(reference, 1), protocol=protocols["reward"]).result()
        start_s = time.monotonic() - start
        for name, protocol in protocols.items():
            say(f"{name}: {len(task.graphs)} graphs")
            start = time.monotonic()
            verdict = executor.submit(candidate, task, protocol=protocol).result()
            seconds = time.monotonic() - start
            num_correct = sum(graph.outcome == "CORRECT" for graph in verdict.graphs)
            timed = sum(graph.speedup is not None for graph in verdict.graphs)
            note = f"{num_correct} CORRECT, {timed} timed"
            found[name] = {"graphs": len(task.graphs), "seconds": seconds, "note": note}
            stages += [[name, stage, spent] for stage, spent in verdict.timings.items()]
    return found, start_s, stages


def _a_minute(rate: dict[str, Any]) -> float:
    return float(rate["graphs"] / rate["seconds"] * 60) if rate["seconds"] else 0.0
