"""Runs the expert's passes on a GPU and times them beside eager: `python -m tests.gpu_expert_passes [TASKS] [options]`.

Quick facts for whoever works on the expert: one draw, one process, back-to-back calls. Figures for others come from
`passwright bench expert`, through the harness. Not a test.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from data.graph import Graph
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from data.passbench import load_tasks
from eval_harness.comparison import OutputMeta, compare_metas, first_correct_level
from eval_harness.oracle import to_float64
from eval_harness.rewriting import build_module, rewrite
from eval_harness.tracing import trace_graph
from tests.expert_offline import STRICT, import_rules, rewritten
from trajectories.policies.expert_pass import plan_pass

DEVICE = "cuda"


def time_us(function: Callable[..., Any], arguments: Sequence[Any], calls: int = 200, rounds: int = 5) -> float:
    """Microseconds of a call among many, the median of some rounds."""
    for _ in range(10):
        function(*arguments)
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(found)


def gpu_us(function: Callable[..., Any], arguments: Sequence[Any], calls: int = 50) -> float:
    """Microseconds that the GPU itself is busy for a call, from a captured graph of calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function(*arguments)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls * 1e3


def check(ours: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> str:
    outcome, message = compare_metas([OutputMeta.of(o) for o in ours], [OutputMeta.of(o) for o in expected])
    if outcome is not None:
        return f"{outcome} {message}"
    for mine, reference, oracle in zip(ours, expected, exact, strict=True):
        level, _, message = first_correct_level(mine, reference, oracle)
        if level is None or level > STRICT:
            return f"WRONG_VALUES t = {level}: {message}"
    return ""


def run_graph(graph: Graph, rules: Sequence[Any], *, with_inductor: bool) -> tuple[str, dict[str, float]]:
    """What is wrong with the pass on a graph, and microseconds of each way to run it."""
    module, problem, _ = rewritten(graph, rules, device=DEVICE)
    if problem:
        return f"NO_MATCH {problem[:200]}", {}
    inputs = [value.to(DEVICE) for value in draw_inputs(graph, seed=7).values()]
    eager = load_graph_module(graph, DEVICE)
    wide = build_module(to_float64(rewrite(trace_graph(graph), []).ir), {}, device=DEVICE)
    with torch.no_grad():
        expected = eager(*inputs)
        exact = wide(*[value.double() if value.is_floating_point() else value for value in inputs])
        for _ in range(2):  # the first launch, and the kept one
            problem = problem or check(module(*inputs), expected, exact)
        if problem:
            return problem, {}
        times = {"eager": time_us(eager, inputs), "pass": time_us(module, inputs)}
        times |= {"eager gpu": gpu_us(eager, inputs), "pass gpu": gpu_us(module, inputs)}
        if with_inductor:
            torch._dynamo.reset()
            times["inductor"] = time_us(torch.compile(eager), inputs)
    return "", times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="?", default="passbench_lite:train")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seed", type=int, default=0, help="order of the tasks")
    parser.add_argument("--graphs", type=int, default=2, help="graphs of each task, drawn")
    parser.add_argument("--inductor", action="store_true", help="time torch.compile too, guards and all")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    tasks = list(load_tasks(options.tasks))
    generator.shuffle(tasks)
    start = time.monotonic()
    speedups: list[float] = []
    num_tasks = num_bad = 0
    for task in tasks:
        if time.monotonic() - start > options.seconds:
            break
        plan = plan_pass(task.graphs, DEVICE)
        num_tasks += 1
        with tempfile.TemporaryDirectory() as folder:
            rules = import_rules(plan, Path(folder))
            is_bad = False
            for graph in generator.sample(list(task.graphs), min(options.graphs, len(task.graphs))):
                try:
                    problem, times = run_graph(graph, rules, with_inductor=options.inductor)
                except Exception as error:  # the pass is what is tested
                    problem, times = f"RUNTIME_ERROR {type(error).__name__}: {str(error)[-300:]}", {}
                is_bad = is_bad or bool(problem)
                if times:
                    speedups.append(times["eager"] / times["pass"])
                size = sum(math.prod(spec.shape) for spec in graph.specs.values())
                figures = " ".join(f"{name} {value:.1f}" for name, value in times.items())
                title = plan.summary[0] if plan.summary else "-"
                print(f"{task.task_id[:10]} {title[:36]:36} n {size:8} {figures} {problem}", flush=True)
            num_bad += is_bad
    mean = math.exp(statistics.fmean(map(math.log, speedups))) if speedups else 0.0
    below = sum(value < 1 for value in speedups)
    print(f"{num_tasks} tasks, {num_bad} with a problem; {len(speedups)} graphs, geometric mean {mean:.3f} over eager, "
          f"{below} below 1")  # fmt: skip


if __name__ == "__main__":
    main()
