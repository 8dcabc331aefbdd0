"""Prints a table of evaluations on a CUDA device: `python -m tests.gpu_table`. For docs/results.md. Not a test."""

from __future__ import annotations

import time
from pathlib import Path

from data.passbench import load_tasks
from eval_harness.candidate import Candidate
from eval_harness.executor import LocalExecutor
from eval_harness.presets import load_protocol
from tests.helpers import add_layer_norm, add_relu_mul, make_task

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SHOWCASES = {
    "maskformer_window_layer_norm": "window_layernorm_h1_triton",
    "sentence_masked_mean_pooling": "mask_pooling_h2_triton",
}


def main() -> None:
    tasks = {task.task_id: task for task in load_tasks("mini")}
    with LocalExecutor("cuda:0") as executor:
        start = time.perf_counter()
        for size in (64, 1024):
            report("eager A/A", executor, "eager", make_task(add_relu_mul(rows=size), add_layer_norm(rows=size)))
        print(f"{time.perf_counter() - start:.1f} s with the judge's start")
        for task_id, folder in SHOWCASES.items():
            if task_id in tasks:
                candidate = Candidate.from_dir(EXAMPLES / folder / "pass_dir")
                report(folder, executor, candidate, tasks[task_id])
                report("inductor", executor, "inductor", tasks[task_id])


def report(name, executor, subject, task) -> None:
    start = time.perf_counter()
    verdict = executor.submit(subject, task, protocol=load_protocol("strict")).result()
    seconds = time.perf_counter() - start
    print(f"== {name} on {task.task_id}: {seconds:.1f} s, AS {verdict.as_score}, stages {verdict.timings}")
    print(f"   A/A floor {verdict.machine.get('aa_floor_log_ratio')}, {verdict.machine.get('gpu')}")
    for graph in verdict.graphs:
        interval = tuple(round(x, 3) for x in graph.speedup_interval) if graph.speedup_interval else None
        print(
            f"   {graph.graph[:40]:40} {graph.outcome:14} t {graph.first_correct_t} speedup {graph.speedup or 0:.3f} "
            f"{interval} gpu {graph.gpu_speedup or 0:.2f} cov {graph.coverage} us {graph.latency_us or 0:.1f} "
            f"eager {graph.reference_latency_us or 0:.1f} {graph.message[:120]}"
        )


if __name__ == "__main__":
    main()
