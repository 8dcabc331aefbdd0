"""`python -m data.construct.build_mini --out FILE`: recipes -> models -> slices -> tasks -> one Parquet file.

TLDR: for each recipe and variant, zoo builds and runs a model, extract captures it, subgraph cuts the slices, writer
writes them; then every graph is checked (it loads, runs, and its outputs are finite and vary) and the tasks are split
by operator sequence. Needs `transformers`; the harness never does.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from tqdm import tqdm

from data.construct.extract import CapturedGraph, capture
from data.construct.recipes import RECIPES, Recipe
from data.construct.run_check import check_instance
from data.construct.subgraph import Slice, find_slices
from data.construct.writer import write_slice
from data.construct.zoo import build_model
from data.graph import Graph, MalformedGraphError
from data.passbench import write_parquet
from data.splits import leak_report, split_tasks
from data.task import Task

logger = logging.getLogger(__name__)

EVAL_SHARE = 0.28
SPLIT_SEED = 0
_SHORT_DTYPE = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def build_task(recipe: Recipe) -> Task:
    """One task of a recipe. Raises ValueError if a variant holds no such slice or a graph fails the check."""
    graphs: list[Graph] = []
    origin = ""
    for size, dtype in recipe.variants:
        captured, origin = _captured(recipe.model, size, dtype)
        parts = list(_distinct_shapes(captured, recipe.operators))[: recipe.num_shapes]
        if not parts:
            raise ValueError(
                f"{recipe.task_id}: no slice {' '.join(recipe.operators)} in {recipe.model} {size} {dtype}"
            )
        for part in parts:
            name = f"{recipe.task_id}_{_SHORT_DTYPE[dtype]}_{len(graphs)}"
            graph = write_slice(part, f"graphs/{name}", model_name=name, family=recipe.family)
            check_graph(graph)
            graphs.append(graph)
    facts = {"title": recipe.title, "origin": origin, "kind": recipe.kind}
    return Task(recipe.task_id, tuple(graphs), uids=tuple(graph.content_hash for graph in graphs), facts=facts)


def check_graph(graph: Graph) -> None:
    """Raise MalformedGraphError unless the graph may become a part of a task."""
    reason = check_instance(graph)
    if reason is not None:
        raise MalformedGraphError(f"{graph.name}: {reason}")


@lru_cache(maxsize=8)
def _captured(model: str, size: str, dtype: str) -> tuple[list[CapturedGraph], str]:
    """The graphs of one model, and where its class is defined."""
    example = build_model(model, size, getattr(torch, dtype))
    kind = type(example.module)
    return capture(example.module, example.args, example.kwargs), f"{kind.__module__}.{kind.__qualname__}"


def _distinct_shapes(captured: Sequence[CapturedGraph], operators: Sequence[str]) -> Iterator[Slice]:
    seen = set()
    for entry in captured:
        for part in find_slices(entry, operators):
            shapes = tuple(part.stats[node.name].shape for node in part.inputs)
            if shapes not in seen:
                seen.add(shapes)
                yield part


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--only", nargs="*", help="task ids to build; all by default")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = [recipe for recipe in RECIPES if not options.only or recipe.task_id in options.only]
    # recipes of one model in a row: its captures are made once
    by_model = sorted(chosen, key=lambda recipe: (recipe.model, recipe.variants))
    tasks = {recipe.task_id: build_task(recipe) for recipe in tqdm(by_model, desc="tasks", unit="task")}
    split = split_tasks([tasks[recipe.task_id] for recipe in chosen], EVAL_SHARE, SPLIT_SEED)
    report = leak_report(split)
    for line in report.lines():
        logger.info("%s", line)
    if not report.clean:
        raise SystemExit("the splits leak; nothing was written")
    write_parquet(split, options.out)
    num_graphs = sum(len(task.graphs) for task in split)
    logger.info("%s: %d tasks, %d graphs", options.out, len(split), num_graphs)


if __name__ == "__main__":
    main()
