"""Checks the expert's Triton passes without a GPU: `python -m tests.expert_offline run|compile|plan [TASKS] [options]`.

`run` calls every pass in Triton's interpreter, through the harness's own matching and rewriting, and compares with
eager; `compile` sends every kernel through Triton's compiler to PTX for a Hopper GPU, and times the wrapper; `plan`
counts the tasks that it plans whole, in part, or not. Not a test by itself (test_expert_triton.py samples it). What it
cannot see: races, memory faults, and speed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import os
import random
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.graph import Graph
from data.inputs import draw_inputs
from data.model_check import load_graph_module
from data.passbench import load_tasks
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.candidate_process.rules import describe_rule, replacement_function
from eval_harness.comparison import OutputMeta, compare_metas, first_correct_level
from eval_harness.oracle import to_float64
from eval_harness.rewriting import RuleDescription, build_module, rewrite
from eval_harness.source_rules import check_sources
from eval_harness.tracing import trace_graph
from eval_harness.variants import VariantSource
from tests.expert_families import family_tasks
from trajectories.policies.expert_pass import PassPlan, plan_pass

STRICT = -5
LOOSE = -2
"""At sizes that nobody asked for rounding is not compared, only what is computed."""


def import_rules(plan: PassPlan, folder: Path) -> list[types.ModuleType]:
    """The rules of a pass, imported from a folder of their own."""
    for name in [name for name in sys.modules if name.split(".")[0] == "pass_dir"]:
        del sys.modules[name]
    Candidate(plan.files).write_to(folder / "pass_dir")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return [importlib.import_module(f"pass_dir.{rule.name}") for rule in plan.rules]
    finally:
        sys.path.remove(str(folder))


def rewritten(graph: Graph, rules: Sequence[types.ModuleType], device: str = "cpu") -> tuple[Any, str, int]:
    """The graph with its matches replaced; what did not match; how many eager operators are left."""
    described = [RuleDescription.from_json(describe_rule(rule, rule.__name__.split(".")[-1])) for rule in rules]
    traced = trace_graph(graph)
    result = rewrite(traced, described)
    left = [node for node in traced.ir.calls if node.name not in result.replaced_nodes]
    functions = {item.rule: replacement_function(rule, item.rule) for item, rule in zip(described, rules, strict=True)}
    module = build_module(result.ir, functions, device=device, num_outputs=result.num_outputs)
    problem = "" if result.num_matches else result.report
    problem += "; ".join(item.message for item in result.violations)
    return module, problem, len(left)


def check_graph(graph: Graph, rules: Sequence[types.ModuleType], seed: int) -> str:
    """Empty if the rewritten graph agrees with eager on one draw, else what differs."""
    module, problem, _ = rewritten(graph, rules)
    if problem:
        return f"NO_MATCH {problem[:300]}"
    inputs = list(draw_inputs(graph, seed=seed).values())
    before = [value.clone() for value in inputs]
    with torch.no_grad():
        expected = load_graph_module(graph, "cpu")(*[value.clone() for value in inputs])
        wide = build_module(to_float64(rewrite(trace_graph(graph), []).ir), {}, device="cpu")
        exact = wide(*[value.double() if value.is_floating_point() else value.clone() for value in inputs])
        ours = module(*inputs)
    outcome, message = compare_metas([OutputMeta.of(o) for o in ours], [OutputMeta.of(o) for o in expected])
    if outcome is not None:
        return f"{outcome} {message}"
    for mine, reference, oracle in zip(ours, expected, exact, strict=True):
        level, _, message = first_correct_level(mine, reference, oracle)
        if level is None or level > STRICT:
            return f"WRONG_VALUES t = {level}: {message}"
    if not all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)):
        return "INPUT_MUTATED"
    return ""


def check_unseen(graph: Graph, rules: Sequence[types.ModuleType], seed: int) -> str:
    """Empty if the pass is right, refuses, or does not match at other sizes and in another dtype."""
    source, generator = VariantSource(trace_graph(graph)), random.Random(seed)
    for variant in [
        *itertools.islice(source.draw_shapes(generator), 2),
        *itertools.islice(source.draw_dtypes(generator), 1),
    ]:
        inputs = list(draw_inputs(variant.graph, seed=seed).values())
        try:
            with torch.no_grad():
                expected = load_graph_module(variant.graph, "cpu")(*[value.clone() for value in inputs])
        except Exception:  # eager itself does not run it
            continue
        module, problem, _ = rewritten(variant.graph, rules)
        if problem:
            continue
        try:
            ours = module(*inputs)
        except Exception:  # it refuses, which is right
            continue
        outcome, message = compare_metas([OutputMeta.of(o) for o in ours], [OutputMeta.of(o) for o in expected])
        levels = [] if outcome else [first_correct_level(a, b)[0] for a, b in zip(ours, expected, strict=True)]
        if outcome is not None or any(level is None or level > LOOSE for level in levels):
            return f"UNSEEN {variant.text}: {outcome or 'WRONG_VALUES'} {message} {levels}"
    return ""


def check_task(task: Task, folder: Path, *, num_graphs: int, seed: int = 5, unseen: bool = False) -> list[str]:
    """Problems of a task's pass, on its smallest graphs; empty if there are none."""
    plan = plan_pass(task.graphs, "cuda")
    if not plan.rules:
        return [f"no pass: {'; '.join(plan.refused)[:200]}"]
    problems = [f"VIOLATION {item.rule} {item.message[:200]}" for item in check_sources(Candidate(plan.files))]
    try:
        rules = import_rules(plan, folder)
    except Exception as error:  # the pass is what is tested
        return [*problems, f"COMPILE_ERROR {type(error).__name__}: {str(error)[-400:]}"]
    for graph in sorted(task.graphs, key=_elements)[:num_graphs]:
        try:
            problem = check_graph(graph, rules, seed) or (check_unseen(graph, rules, seed) if unseen else "")
        except Exception as error:  # the pass is what is tested
            problem = f"RUNTIME_ERROR {type(error).__name__}: {str(error)[-400:]}"
        if problem:
            problems.append(f"{graph.name}: {problem}")
    return problems


def _elements(graph: Graph) -> int:
    return sum(math.prod(spec.shape) for spec in graph.specs.values())


def round_as_hardware_does() -> None:
    """The interpreter cuts float32 off where it becomes bfloat16; a GPU rounds to nearest even."""
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def rounded(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if str(target) == "bf16" and str(source) == "fp32":
            bits = torch.from_numpy(np.ascontiguousarray(data)).to(torch.bfloat16).view(torch.int16)
            return bits.numpy().view(np.uint16)
        return convert(data, source, target, mode)

    interpreter._convert_float = rounded


def use_offline_driver() -> None:
    """Let Triton compile for a Hopper GPU to PTX, and launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime import driver

    class Utils:
        def load_binary(self, *_: Any) -> tuple[int, int, int, int, int]:
            return 1, 2, 0, 0, 1024

        def get_device_properties(self, _: int) -> dict[str, int]:
            return {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": 32}

    class Driver:
        utils = Utils()
        launcher_cls = staticmethod(lambda *_: lambda *_: None)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda _: 0)

    CUDABackend.make_cubin = lambda self, src, *_: src.encode()
    driver.set_active(Driver())


def compile_task(task: Task, folder: Path, *, num_graphs: int) -> tuple[list[str], float]:
    """Problems of compiling a task's kernels for its smallest graphs, and microseconds of a call of the wrapper."""
    plan = plan_pass(task.graphs, "cuda")
    if not plan.rules:
        return ["no pass"], 0.0
    rules = import_rules(plan, folder)
    problems, fastest = [], math.inf
    for graph in sorted(task.graphs, key=_elements)[:num_graphs]:
        try:
            module, problem, _ = rewritten(graph, rules)
            inputs = list(draw_inputs(graph, seed=1).values())
            for _ in range(3):
                module(*inputs)
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(100):
                    module(*inputs)
                fastest = min(fastest, (time.perf_counter() - start) / 100 * 1e6)
        except Exception as error:
            problem = f"COMPILE_ERROR {type(error).__name__}: {str(error)[-600:]}"
        if problem:
            problems.append(f"{graph.name}: {problem}")
    return problems, fastest


def count_plans(tasks: Sequence[Task]) -> None:
    """Tasks planned whole, in part, or not at all, and the most frequent reasons."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for task in tasks:
        plan = plan_pass(task.graphs, "cuda")
        states["whole" if plan.files and not plan.refused else "in part" if plan.files else "not"] += 1
        reasons.update(reason for reason in set(plan.refused) if "graphs/" not in reason)
    print(
        f"{len(tasks)} tasks: " + ", ".join(f"{state} {n} ({n / len(tasks):.1%})" for state, n in states.most_common())
    )
    for reason, count in reasons.most_common(10):
        print(f"{count:5} {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mode", choices=["run", "compile", "plan"])
    parser.add_argument("tasks", nargs="?", default="passbench_lite:train", help="or: families (expert_families.py)")
    parser.add_argument("--graphs", type=int, default=1, help="smallest graphs of each task")
    parser.add_argument("--only", default="", help="beginnings of task ids, by commas")
    parser.add_argument("--sample", type=int, default=0, help="so many tasks, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="0/1", help="every n-th task, from the i-th: i/n")
    parser.add_argument("--unseen", action="store_true", help="run: also other sizes and another dtype")
    options = parser.parse_args()
    if options.mode == "plan":
        count_plans(load_tasks(options.tasks))
        return
    if options.mode == "run":
        os.environ["TRITON_INTERPRET"] = "1"
        round_as_hardware_does()
    else:
        use_offline_driver()
    number, count = map(int, options.shard.split("/"))
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    known = family_tasks() if options.tasks == "families" else load_tasks(options.tasks)
    tasks = [task for task in known if task.task_id.startswith(wanted)][number::count]
    if options.sample:
        tasks = random.Random(options.seed).sample(tasks, options.sample)
    bad: Counter[str] = Counter()
    times = []
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            if options.mode == "run":
                problems = check_task(task, Path(folder), num_graphs=options.graphs, unseen=options.unseen)
            else:
                problems, elapsed = compile_task(task, Path(folder), num_graphs=options.graphs)
                times.append(elapsed)
        for problem in problems:
            print(f"{task.task_id[:20]} {problem}", flush=True)
        bad["tasks with a problem"] += bool(problems)
    print(f"{len(tasks)} tasks, {bad['tasks with a problem']} with a problem")
    if times:
        finite = sorted(value for value in times if 0 < value < math.inf)
        print(f"wrapper: median {finite[len(finite) // 2]:.1f} us, largest {finite[-1]:.1f} us")


if __name__ == "__main__":
    main()
