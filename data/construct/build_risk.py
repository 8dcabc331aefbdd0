"""`python -m data.construct.build_risk --out FILE`: risk_models.py's functions -> the bundled set `bi_risk`.

A task has a graph for each number of rows, in float32, float16 and bfloat16 by turns; every graph is run as any other
is before it is kept. That each has a batch axis is tested beside the harness.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from data.construct.extract import capture
from data.construct.full_graph import full_graph
from data.construct.risk_models import BATCHES, RISK_TASKS, RiskTask
from data.construct.run_check import check_instance
from data.graph import GRAPH_NET_FILE, Graph, MalformedGraphError
from data.passbench import write_parquet
from data.task import Task

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SPLIT = "eval"


class _Module(torch.nn.Module):
    """A function as the module that Dynamo captures."""

    def __init__(self, recipe: RiskTask) -> None:
        super().__init__()
        self.function = recipe.function

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.function(*inputs)
        return found if isinstance(found, tuple) else (found,)


def build_task(recipe: RiskTask) -> Task:
    """One task of three graphs. Raises MalformedGraphError for a graph that breaks or fails its check."""
    graphs = []
    for rows, dtype in zip(BATCHES, DTYPES, strict=True):
        name = f"{recipe.task_id}_{str(dtype).removeprefix('torch.')}_{rows}"
        torch.manual_seed(rows)
        captured = capture(_Module(recipe), recipe.inputs(rows, dtype))
        if len(captured) != 1:
            raise MalformedGraphError(f"{name}: captured in {len(captured)} pieces")
        graph = full_graph(captured[0], f"graphs/{name}", model_name=name, dynamic=False).graph
        net = json.loads(graph.files[GRAPH_NET_FILE]) | {"family": recipe.family, "kind": "risk"}
        graph = Graph(graph.name, {**graph.files, GRAPH_NET_FILE: json.dumps(net, indent=4, sort_keys=True)})
        if (reason := check_instance(graph)) is not None:
            raise MalformedGraphError(f"{name}: {reason}")
        graphs.append(graph)
    uids = tuple(graph.content_hash for graph in graphs)
    facts = {"title": recipe.title, "origin": "data/construct/risk_models.py", "kind": "risk"}
    return Task(recipe.task_id, tuple(graphs), split=SPLIT, uids=uids, facts=facts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tasks = [build_task(recipe) for recipe in RISK_TASKS]
    write_parquet(tasks, options.out)
    logger.info("%s: %d tasks, %d graphs", options.out, len(tasks), sum(len(task.graphs) for task in tasks))


if __name__ == "__main__":
    main()
